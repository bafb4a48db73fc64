//! The front of zheng17: one crate to depend on. Backends are chosen by cargo features and asked for by name.
//!
//! ```no_run
//! use std::sync::Arc;
//! use zheng17::{Context, Params};
//!
//! # fn main() -> zheng17::Result<()> {
//! let dataset = zheng17::io::open("counts.h5".as_ref(), &Default::default())?;
//! let backend = Arc::new(zheng17::registry()?.create("serial")?);
//! let outcome = zheng17::recipe::run(backend, dataset.source, &Params::default(), &Context::default())?;
//! println!("{} genes selected", outcome.result.selected.len());
//! # Ok(())
//! # }
//! ```

mod choose;
#[cfg(feature = "lazy")]
mod estimate;
pub mod job;
#[cfg(feature = "lazy")]
mod memory;
#[cfg(feature = "lazy")]
mod plan;
#[cfg(feature = "plugins")]
mod plugins;

pub use choose::{Choice, choose};
#[cfg(feature = "lazy")]
pub use estimate::Estimate;
pub use job::Values;
#[cfg(feature = "lazy")]
pub use plan::{RunPlan, plan};
#[cfg(feature = "plugins")]
pub use plugins::{load_plugin, load_watched_plugin};
pub use zheng17_core as core;
pub use zheng17_core::backend::AUTO;
pub use zheng17_core::recipe::{self, Components, Outcome, Params, RecipeResult, RecipeVersion};
pub use zheng17_core::{AnyBackend, Capabilities, Context, Error, ErrorKind, Result, SparseBackend};
pub use zheng17_io as io;

use zheng17_core::backend::Registry;

/// The backend that holds the matrix in memory, and the one to use where there is no choice.
pub const DEFAULT_BACKEND: &str = if cfg!(feature = "rayon") { "rayon" } else { "serial" };

/// All backends of this build, the plugins that were loaded, and the backends of packages that are linked in.
///
/// A package is linked in if the program names it: `use their_backend as _;`. [`Registry`] says who has a name that is taken.
///
/// # Errors
/// [`ErrorKind::Usage`] if two backends have one name and neither gives way.
pub fn registry() -> Result<Registry> {
    let mut registry = built_in()?;
    #[cfg(feature = "plugins")]
    plugins::register(&mut registry)?;
    registry.register_linked()?;
    Ok(registry)
}

/// The backends that cargo features chose.
fn built_in() -> Result<Registry> {
    let mut registry = Registry::default();
    #[cfg(feature = "rayon")]
    zheng17_rayon::register(&mut registry)?;
    #[cfg(feature = "lazy")]
    zheng17_lazy::register(&mut registry)?;
    zheng17_serial::register(&mut registry)?;
    #[cfg(feature = "cuda")]
    zheng17_cuda::register(&mut registry)?;
    Ok(registry)
}
