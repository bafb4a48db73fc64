//! The part of the Python package that is in Rust: `zheng17._zheng17`. What users see is in `python/zheng17`.
//!
//! Matrices of scipy and numpy are read where they are; long work runs on threads of its own, without the interpreter's lock.

#![allow(unsafe_code, reason = "reads and fills the memory of numpy's arrays; each block says why it is sound")]
#![allow(
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    reason = "signatures are what Python hands over and takes"
)]

mod arrays;
mod call;
mod chunks;
mod errors;
mod files;
mod planner;
mod recipe;
mod sources;
mod steps;

use pyo3::prelude::*;

/// The native half of zheng17.
#[pymodule(name = "_zheng17")]
mod native {
    #[pymodule_export]
    use crate::chunks::{Moments, Scaling, Summary, moments, select, summarize};
    #[pymodule_export]
    use crate::files::{backends, load_plugin, plan, run};
    #[pymodule_export]
    use crate::planner::{Planner, cell_factors, float32_factors};
    #[pymodule_export]
    use crate::recipe::recipe;
    #[pymodule_export]
    use crate::sources::Source;
    #[pymodule_export]
    use crate::steps::{
        cell_totals, divide_genes, gene_statistics, log1p_values, principal_components, scale_cells, score_genes,
        standardise,
    };
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
