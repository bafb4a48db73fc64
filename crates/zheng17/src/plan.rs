//! What a run will do and take, before it runs.

use std::sync::Arc;

use zheng17_core::recipe::{Params, Statistics};
use zheng17_core::{ChunkSource, Context, Result, Shape, SparseBackend as _};
use zheng17_lazy::{MemoryPlan, WorkingMemory};

use crate::{Choice, Estimate, choose};

/// Bytes of a 32-bit value.
const F32: u64 = 4;

/// What will be in the output, for its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// The scaled values of all cells and selected genes, dense.
    Scaled,
    /// The values before scaling, sparse.
    Normalised,
    /// No values.
    None,
}

/// What a run will do and take. All sizes are estimates, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPlan {
    /// The backend.
    pub backend: String,
    /// Why it is this one, if nobody asked for it.
    pub reason: Option<String>,
    /// Threads.
    pub threads: usize,
    /// Cells that are worked on at a time by each of them.
    pub chunk_rows: usize,
    /// What goes over all cells, one after the other: what it is for, and what share of the source it reads.
    pub passes: Vec<(String, f64)>,
    /// Entries of the matrix.
    pub n_entries: u64,
    /// The matrix as the backend keeps it.
    pub matrix: u64,
    /// What is put into the spill file.
    pub spilled: u64,
    /// The most memory that the process takes.
    pub peak: u64,
    /// The output.
    pub output: u64,
}

/// Plans a run of the recipe on a source, which is not read but for a few cells.
///
/// # Errors
/// As [`choose`].
pub fn plan(
    backend: &str,
    source: &Arc<dyn ChunkSource>,
    params: &Params,
    values: Values,
    ctx: &Context,
) -> Result<RunPlan> {
    params.check()?;
    let Choice { backend, reason } = choose(backend, source, ctx)?;
    let backend = backend.capabilities();
    let estimate = Estimate::new(source)?;
    let Shape { n_cells, n_genes } = source.shape();
    let n_selected = params.n_top_genes.min(n_genes);
    let n_components = params.components.map_or(0, |components| components.number().min(n_selected));
    let selected = estimate.selected_bytes(n_selected);
    let threads = if backend.threads { ctx.threads.get() } else { 1 };

    let memory = MemoryPlan::for_source(source.as_ref(), ctx)?;
    let working = WorkingMemory {
        shape: source.shape(),
        n_entries: estimate.n_entries,
        threads,
        chunk_rows: memory.chunk_rows,
        n_selected: if n_components > 0 { n_selected } else { 0 },
    };
    let (kept, read_again, spilled) = if backend.out_of_core {
        let kept = estimate.matrix_bytes.min(memory.kept);
        let read_again = 1.0 - kept as f64 / estimate.matrix_bytes.max(1) as f64;
        let spilled = if ctx.spill_folder.is_some() { selected.saturating_sub(memory.kept) } else { 0 };
        (kept.max(selected.min(memory.kept)), read_again, spilled)
    } else if backend.threads {
        (estimate.matrix_bytes + selected, 0.0, 0)
    } else {
        (estimate.serial_bytes(n_selected), 0.0, 0)
    };
    let peak = memory.resident
        + (working.while_selecting() + kept).max(working.while_finding_components() + selected.min(kept));

    let mut passes = vec![("totals and moments of all genes".to_owned(), 1.0)];
    if params.version.statistics != Statistics::Exact {
        passes.push((format!("moments as {} computes them", params.version.name), read_again));
    }
    passes.push(("selection, totals of the selected genes".to_owned(), read_again));
    passes.push(("means and deviations of the selected genes".to_owned(), 0.0));
    if n_components > 0 {
        passes.push(("products of pairs of selected genes".to_owned(), 0.0));
        passes.push(("scores on the components, written".to_owned(), 0.0));
    }
    if values != Values::None {
        passes.push(("values, written".to_owned(), 0.0));
    }

    let (n_cells, n_selected) = (n_cells as u64, n_selected as u64);
    let of_values = match values {
        Values::Scaled => n_cells * n_selected * F32,
        Values::Normalised => estimate.selected_entries(n_selected as usize) * 2 * F32 + n_cells * 8,
        Values::None => 0,
    };
    Ok(RunPlan {
        backend: backend.name.clone(),
        reason,
        threads,
        chunk_rows: memory.chunk_rows,
        passes,
        n_entries: estimate.n_entries,
        matrix: if backend.out_of_core { kept } else { kept - selected.min(kept) },
        spilled,
        peak,
        output: of_values + n_cells * (n_components as u64 * F32 + BYTES_OF_A_CELL),
    })
}

/// Bytes of a cell in the tables of an output: its name and a total.
const BYTES_OF_A_CELL: u64 = 48;
