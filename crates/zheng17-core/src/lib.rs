//! The heart of zheng17: what a chunk of cells is, what backends can do with it, and the Zheng17 recipe on top.
//!
//! Every statistic of the recipe is a sum over cells, so the recipe is *summarise* chunks, *merge* the summaries, *plan* from
//! the merged one, *apply* the plan to chunks again. The sums are exact integers ([`exact`]), so the result has the same bits
//! whatever the order, the chunks or the machine.
//!
//! This crate names no backend and reads no file: backends implement [`SparseBackend`] or [`ChunkKernels`], files arrive as a
//! [`ChunkSource`].

pub mod backend;
pub mod context;
pub mod error;
pub mod exact;
pub mod kernels;
pub mod log1p;
pub mod matrix;
pub mod numbers;
pub mod recipe;
pub mod source;

pub use backend::{AnyBackend, Capabilities, SparseBackend};
pub use context::Context;
pub use error::{Error, ErrorKind, Result};
pub use kernels::ChunkKernels;
pub use matrix::{CsrBuffer, CsrView, Selection, Shape, Values, ValuesRef};
pub use source::ChunkSource;

#[doc(hidden)]
pub use inventory;
