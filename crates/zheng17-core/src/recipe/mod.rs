//! The Zheng17 recipe: filter genes, normalise cells, score genes by their dispersion, keep the best, renormalise, log1p,
//! scale; then PCA.
//!
//! Source: Zheng et al., Nature Communications 8, 14049 (2017), as scanpy's `recipe_zheng17` states it. The recipe exists
//! twice on purpose. [`run`] is *fused*: it asks a backend for summaries, [`plan`](plan::plan)s from them alone, and applies
//! the plan. [`stepwise`] composes the paper's steps from a backend's operations, one by one, and is the independent check.
//!
//! Nothing here names a backend, a file format or a thread.

mod fused;
mod ordered_f32;
pub mod params;
pub mod pca;
pub mod plan;
mod result;
pub mod score;
pub mod stepwise;

pub use fused::{Outcome, run, run_with_hvg_target};
pub use params::{Components, Params, RecipeVersion, Statistics};
pub use pca::Pca;
pub use result::{RecipeResult, Warning};
