//! Files: sources of chunks and sinks of results.
//!
//! [`open`] recognises a file by its content and gives a [`Dataset`]: a source of cells for the recipe, and what the file says
//! of cells and genes. This crate knows nothing of the recipe.

mod bands;
mod by_genes;
pub mod dataset;
mod dense;
mod features;
mod frame;
mod h5ad;
mod hdf5;
mod matrix;
mod mtx;
mod open;
pub mod table;
mod tenx;
mod texts;
mod values;
pub mod write;

pub use dataset::{Dataset, FeatureTypes, Format, OpenOptions};
pub use open::open;
