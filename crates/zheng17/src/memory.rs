//! What a run takes on each backend, against what it may take.

use std::sync::Arc;

use zheng17_core::backend::GRAM_BLOCK;
use zheng17_core::recipe::Params;
use zheng17_core::{ChunkSource, Context, Result, Shape};
use zheng17_lazy::{MemoryPlan, WorkingMemory, default_memory, resident_memory};
use zheng17_rayon::{USUAL_CHUNK_ENTRIES, chunk_rows, rows_at_once};

use crate::Estimate;

/// What is known of a run that bears on its memory. All sizes are in bytes.
pub(crate) struct Memory<'a> {
    source: &'a Arc<dyn ChunkSource>,
    ctx: &'a Context,
    pub(crate) estimate: Estimate,
    /// What the process should stay within.
    pub(crate) limit: u64,
    pub(crate) resident: u64,
    pub(crate) n_selected: usize,
    /// 0 if none are asked for.
    pub(crate) n_components: usize,
}

impl<'a> Memory<'a> {
    /// Looks at a few cells.
    pub(crate) fn new(source: &'a Arc<dyn ChunkSource>, params: &Params, ctx: &'a Context) -> Result<Self> {
        let n_selected = params.n_top_genes.min(source.shape().n_genes);
        Ok(Self {
            source,
            ctx,
            resident: resident_memory(),
            estimate: Estimate::new(source)?,
            limit: ctx.memory.unwrap_or_else(default_memory),
            n_selected,
            n_components: params.components.map_or(0, |components| components.number().min(n_selected)),
        })
    }

    /// What a run needs besides the chunks that are kept.
    pub(crate) fn working(&self, threads: usize, chunk_rows: usize) -> WorkingMemory {
        WorkingMemory {
            shape: self.source.shape(),
            n_entries: self.estimate.n_entries,
            threads,
            chunk_rows,
            n_selected: if self.n_components > 0 { self.n_selected } else { 0 },
        }
    }

    /// Bytes of the selected genes.
    pub(crate) fn selected(&self) -> u64 {
        self.estimate.selected_bytes(self.n_selected)
    }

    /// The plan of the backend lazy.
    pub(crate) fn lazy(&self) -> Result<MemoryPlan> {
        MemoryPlan::for_source(self.source.as_ref(), self.ctx)
    }

    /// The peak of the backend lazy.
    pub(crate) fn lazy_peak(&self, plan: &MemoryPlan) -> u64 {
        let working = self.working(plan.threads, plan.chunk_rows);
        let kept = if self.source.stored_by_genes() { self.selected() } else { self.estimate.matrix_bytes };
        let (kept, selected) = (kept.min(plan.kept), self.selected().min(plan.kept));
        self.peak(working, kept, selected)
    }

    /// What a backend in memory holds: the matrix, then the selected genes.
    pub(crate) fn held(&self, parallel: bool) -> (u64, u64) {
        let all = if parallel { self.estimate.matrix_bytes } else { self.estimate.serial_bytes(0) };
        let both = if parallel { all + self.selected() } else { self.estimate.serial_bytes(self.n_selected) };
        (all, both - all)
    }

    /// Threads and rows per chunk of a backend in memory.
    pub(crate) fn in_memory_chunks(&self, parallel: bool) -> (usize, usize) {
        let Shape { n_cells, .. } = self.source.shape();
        let threads = if parallel { self.ctx.threads.get() } else { 1 };
        let usual = || chunk_rows(n_cells, self.estimate.n_entries, USUAL_CHUNK_ENTRIES);
        let rows = self.ctx.chunk_rows.map_or_else(usual, std::num::NonZeroUsize::get);
        (threads, rows_at_once(rows, n_cells, threads))
    }

    /// The peak of a backend in memory.
    pub(crate) fn in_memory_peak(&self, parallel: bool) -> u64 {
        let (threads, rows) = self.in_memory_chunks(parallel);
        let (all, selected) = self.held(parallel);
        self.peak(self.working(threads, rows), all + selected, selected)
    }

    /// Threads and rows per chunk of a backend that keeps the matrix on devices.
    pub(crate) fn device_chunks(&self) -> (usize, usize) {
        let Shape { n_cells, .. } = self.source.shape();
        let rows = self.ctx.rows_per_chunk().min(GRAM_BLOCK).min(n_cells.max(1));
        (self.ctx.threads.get(), rows)
    }

    /// The peak, on the host, of a backend that keeps the matrix on devices with enough room.
    pub(crate) fn device_peak(&self) -> u64 {
        let (threads, rows) = self.device_chunks();
        self.peak(self.working(threads, rows), 0, 0)
    }

    fn peak(&self, working: WorkingMemory, kept: u64, selected: u64) -> u64 {
        let selecting = working.while_selecting().saturating_add(kept);
        self.resident.saturating_add(selecting.max(working.while_finding_components().saturating_add(selected)))
    }
}
