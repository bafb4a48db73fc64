//! Which backend suits a matrix and the memory there is.

use std::sync::Arc;

use zheng17_core::{AnyBackend, ChunkSource, Context, Error, Result, SparseBackend as _};

use crate::{DEFAULT_BACKEND, Estimate, registry};

/// The name that stands for the backend that suits.
pub const AUTO: &str = "auto";

/// A backend, and why it is this one.
pub struct Choice {
    /// The backend.
    pub backend: AnyBackend,
    /// Why, for people: a sentence without its end. `None` where the backend was asked for.
    pub reason: Option<String>,
}

/// The backend of a name, or for [`AUTO`] the one that suits: in memory if the matrix fits, else out of core.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for a name that no backend has, for a backend in memory when the matrix does not
/// fit the memory that was given, and for memory that is too little for anything; those of reading a few cells.
pub fn choose(name: &str, source: &Arc<dyn ChunkSource>, ctx: &Context) -> Result<Choice> {
    let registry = registry()?;
    if name == AUTO {
        let (name, reason) = suitable(source, ctx)?;
        return Ok(Choice { backend: registry.create(name)?, reason: Some(reason) });
    }
    let backend = registry.create(name)?;
    if let Some(limit) = ctx.memory
        && !backend.capabilities().out_of_core
    {
        let estimate = Estimate::new(source)?;
        let needed = if name == "rayon" { estimate.matrix_bytes } else { estimate.serial_bytes(0) };
        if needed > limit {
            return Err(Error::usage(format!(
                "the backend {name} holds the matrix in memory, which takes about {} MB, but {} MB were given; the backend \
                 lazy needs less",
                megabytes(needed),
                megabytes(limit)
            )));
        }
    }
    Ok(Choice { backend, reason: None })
}

fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

#[cfg(feature = "lazy")]
fn suitable(source: &Arc<dyn ChunkSource>, ctx: &Context) -> Result<(&'static str, String)> {
    /// What is needed besides the matrix: its selected genes.
    const WITH_SELECTED: f64 = 1.2;
    let plan = zheng17_lazy::MemoryPlan::for_source(source.as_ref(), ctx)?;
    let needed = (Estimate::new(source)?.matrix_bytes as f64 * WITH_SELECTED) as u64;
    let (name, fits) = if needed <= plan.kept { (DEFAULT_BACKEND, "and") } else { ("lazy", "but") };
    let (needed, there) = (megabytes(needed), megabytes(plan.kept));
    Ok((name, format!("the matrix takes about {needed} MB in memory, {fits} {there} MB are there for it")))
}

#[cfg(not(feature = "lazy"))]
#[allow(clippy::unnecessary_wraps, reason = "as the other one")]
fn suitable(_source: &Arc<dyn ChunkSource>, _ctx: &Context) -> Result<(&'static str, String)> {
    Ok((DEFAULT_BACKEND, "this build has none that works out of core".to_owned()))
}
