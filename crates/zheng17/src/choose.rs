//! Which backend suits a matrix and the memory there is.

use std::sync::Arc;

use zheng17_core::matrix::ValueKind;
use zheng17_core::source::CheckedSource;
use zheng17_core::{AnyBackend, ChunkSource, Context, CsrBuffer, Error, Result, Shape, SparseBackend as _};
use zheng17_kernels::KeptChunk;

use crate::{DEFAULT_BACKEND, registry};

/// The name that stands for the backend that suits.
pub const AUTO: &str = "auto";

/// Cells that are looked at to see how a matrix can be held.
const SAMPLE: usize = 256;

/// Bytes of an entry that is held as a 32-bit gene and a 32-bit value.
const BYTES_OF_AN_ENTRY: f64 = 8.0;

/// What is needed besides the matrix: its selected genes.
const WITH_SELECTED: f64 = 1.2;

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
    if name != AUTO {
        let backend = registry.create(name)?;
        if let Some(limit) = ctx.memory
            && !backend.capabilities().out_of_core
        {
            let needed = bytes_in_memory(source)?;
            if needed > limit {
                let mb = |bytes: u64| bytes.div_ceil(1_000_000);
                return Err(Error::usage(format!(
                    "the backend {name} holds the matrix in memory, which takes about {} MB; {} MB were given. The backend \
                     lazy needs less",
                    mb(needed),
                    mb(limit)
                )));
            }
        }
        return Ok(Choice { backend, reason: None });
    }
    let (name, reason) = suitable(source, ctx)?;
    Ok(Choice { backend: registry.create(name)?, reason: Some(reason) })
}

#[cfg(feature = "lazy")]
fn suitable(source: &Arc<dyn ChunkSource>, ctx: &Context) -> Result<(&'static str, String)> {
    use zheng17_lazy::{MemoryPlan, default_memory, resident_memory};
    let limit = ctx.memory.unwrap_or_else(default_memory);
    let threads = ctx.threads.get();
    let plan = MemoryPlan::new(source.shape(), source.n_entries(), threads, limit, resident_memory(), ctx.chunk_rows)?;
    let needed = bytes_in_memory(source)?;
    let mb = |bytes: u64| bytes.div_ceil(1_000_000);
    if needed <= plan.kept && DEFAULT_BACKEND != "lazy" {
        Ok((
            DEFAULT_BACKEND,
            format!("about {} MB hold the matrix, and {} MB are there for it", mb(needed), mb(plan.kept)),
        ))
    } else {
        Ok((
            "lazy",
            format!("about {} MB would hold the matrix, but {} MB are there for it", mb(needed), mb(plan.kept)),
        ))
    }
}

#[cfg(not(feature = "lazy"))]
fn suitable(_source: &Arc<dyn ChunkSource>, _ctx: &Context) -> Result<(&'static str, String)> {
    Ok((DEFAULT_BACKEND, "this build has none that works out of core".to_owned()))
}

/// Bytes that a matrix takes in memory, about: what a few of its cells take, times their number.
fn bytes_in_memory(source: &Arc<dyn ChunkSource>) -> Result<u64> {
    let Shape { n_cells, n_genes } = source.shape();
    let sample = n_cells.min(SAMPLE);
    if source.stored_by_genes() || sample == 0 {
        // Looking at cells would read everything.
        let n_entries = source.n_entries().map_or(n_cells as f64 * n_genes as f64, |n| n as f64);
        return Ok((n_entries * BYTES_OF_AN_ENTRY * WITH_SELECTED) as u64);
    }
    let mut cells = CsrBuffer::new(n_genes, ValueKind::F32);
    CheckedSource::new(Arc::clone(source))?.read_cells(0..sample, &mut cells)?;
    let bytes = KeptChunk::keep(cells.view()).bytes() as f64;
    let times = match source.n_entries() {
        Some(n_entries) if !cells.indices.is_empty() => n_entries as f64 / cells.indices.len() as f64,
        _ => n_cells as f64 / sample as f64,
    };
    Ok((bytes * times * WITH_SELECTED) as u64)
}
