//! What a run will do and take, before it runs.

use std::sync::Arc;

use zheng17_core::recipe::{Params, Statistics};
use zheng17_core::{ChunkSource, Context, Result, SparseBackend as _};

use crate::Choice;
use crate::Values;
use crate::choose::choose_for;
use crate::memory::Memory;

/// Bytes of a 32-bit value.
const F32: u64 = 4;

/// Bytes of a count and its gene on a device.
const NARROW_ENTRY: u64 = 3;

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
    /// The matrix as the backend keeps it in memory.
    pub matrix: u64,
    /// The matrix as the backend keeps it on devices. What has no room there is kept in memory besides.
    pub on_devices: u64,
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
/// As [`crate::choose`].
pub fn plan(
    backend: &str,
    source: &Arc<dyn ChunkSource>,
    params: &Params,
    values: Values,
    ctx: &Context,
) -> Result<RunPlan> {
    params.check()?;
    let memory = Memory::new(source, params, ctx)?;
    let Choice { backend, reason, .. } = choose_for(backend, &memory, params, ctx)?;
    let backend = backend.capabilities();
    let Memory { estimate, n_selected, n_components, .. } = memory;
    let n_cells = source.shape().n_cells;
    let selected = memory.selected();

    let of_backend = if backend.out_of_core {
        let plan = memory.lazy()?;
        // Sources that are stored by genes are not kept: their selected genes are gathered, and read twice for that.
        let by_genes = source.stored_by_genes();
        let kept = if by_genes { 0 } else { estimate.matrix_bytes.min(plan.kept) };
        let not_kept = 1.0 - kept as f64 / estimate.matrix_bytes.max(1) as f64;
        OfBackend {
            threads: plan.threads,
            chunk_rows: plan.chunk_rows,
            first_reading: if by_genes { 2.0 } else { 1.0 },
            second_reading: if by_genes { 2.0 * zheng17_lazy::share_of_selected(n_selected) } else { not_kept },
            again: not_kept,
            matrix: kept.max(selected.min(plan.kept)),
            on_devices: 0,
            spilled: if ctx.spill_folder.is_some() { selected.saturating_sub(plan.kept) } else { 0 },
            peak: memory.lazy_peak(&plan),
        }
    } else if backend.devices {
        let (threads, chunk_rows) = memory.device_chunks();
        let narrow = NARROW_ENTRY * estimate.n_entries;
        let on_devices = narrow.min(room_of_devices(ctx));
        OfBackend {
            threads,
            chunk_rows,
            first_reading: 1.0,
            second_reading: 0.0,
            again: 0.0,
            matrix: narrow - on_devices,
            on_devices,
            spilled: 0,
            peak: memory.device_peak() + narrow - on_devices,
        }
    } else {
        let (threads, chunk_rows) = memory.in_memory_chunks(backend.threads);
        OfBackend {
            threads,
            chunk_rows,
            first_reading: 1.0,
            second_reading: 0.0,
            again: 0.0,
            matrix: memory.held(backend.threads).0,
            on_devices: 0,
            spilled: 0,
            peak: memory.in_memory_peak(backend.threads),
        }
    };

    let mut passes = vec![("totals and moments of all genes".to_owned(), of_backend.first_reading)];
    if params.version.statistics != Statistics::Exact {
        passes.push((format!("moments as {} computes them", params.version.name), of_backend.again));
    }
    passes.push(("selection, totals of the selected genes".to_owned(), of_backend.second_reading));
    passes.push(("means and deviations of the selected genes".to_owned(), 0.0));
    if n_components > 0 {
        passes.push(("products of pairs of selected genes".to_owned(), 0.0));
    }
    if values != Values::None {
        passes.push(("values, written".to_owned(), 0.0));
    }
    if n_components > 0 {
        passes.push(("scores on the components, written".to_owned(), 0.0));
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
        threads: of_backend.threads,
        chunk_rows: of_backend.chunk_rows,
        passes,
        n_entries: estimate.n_entries,
        matrix: of_backend.matrix,
        on_devices: of_backend.on_devices,
        spilled: of_backend.spilled,
        peak: of_backend.peak,
        output: of_values + n_cells * (n_components as u64 * F32 + BYTES_OF_A_CELL),
    })
}

/// The bytes of a matrix that devices have room for, as far as is known without asking them: half of what they may use.
fn room_of_devices(ctx: &Context) -> u64 {
    let n_devices = ctx.devices.as_ref().map_or(1, Vec::len) as u64;
    ctx.device_memory.map_or(u64::MAX, |memory| memory / 2 * n_devices)
}

/// What depends on the backend.
struct OfBackend {
    threads: usize,
    chunk_rows: usize,
    /// How often the first pass, and that which selects, read the source.
    first_reading: f64,
    second_reading: f64,
    /// What share of it any other pass over all genes reads.
    again: f64,
    matrix: u64,
    on_devices: u64,
    spilled: u64,
    peak: u64,
}

/// Bytes of a cell in the tables of an output: its name and a total.
const BYTES_OF_A_CELL: u64 = 48;
