//! How much memory a run may use and what it goes to: chunks on their way, sums, results, and what is left to keep chunks in.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};
use zheng17_core::{ChunkSource, Context, Error, Result, Shape};
use zheng17_rayon::USUAL_CHUNK_ENTRIES;

/// The share of the memory that chunks on their way may take.
const SHARE_ON_THEIR_WAY: u64 = 4;

/// Bytes of an entry on its way: as it was read, with the slack of growing vectors, as it is kept, and its selected part.
const BYTES_ON_ITS_WAY: u64 = 24;

/// Bytes that a reader needs besides: compressed and decompressed chunks of the file.
const READER_BYTES: u64 = 4 << 20;

/// Bytes of a cell in totals and results.
const BYTES_OF_A_CELL: u64 = 96;

/// Bytes of a gene in summaries, once for each worker and twice more.
const BYTES_OF_A_GENE: u64 = 96;

/// Genes that are selected, as long as nobody knows.
const USUAL_SELECTED: usize = 1000;

/// Matrices of selected genes × selected genes that PCA needs besides one for each worker.
const PCA_MATRICES: u64 = 6;

/// What a run needs besides the chunks that it keeps, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkingMemory {
    /// Cells × genes.
    pub shape: Shape,
    /// Entries of the matrix.
    pub n_entries: u64,
    /// Workers.
    pub threads: usize,
    /// Rows per chunk.
    pub chunk_rows: usize,
    /// Selected genes, between which components are sought; 0 for no components.
    pub n_selected: usize,
}

impl WorkingMemory {
    /// As long as the whole matrix is gone through: chunks on their way, sums and results.
    pub fn while_selecting(&self) -> u64 {
        let (threads, n_genes) = (self.threads as u64, self.shape.n_genes as u64);
        let row_entries = self.n_entries.div_ceil(self.shape.n_cells.max(1) as u64).max(1);
        let chunk = (self.chunk_rows as u64).saturating_mul(row_entries);
        threads * (chunk * BYTES_ON_ITS_WAY + READER_BYTES)
            + (threads + 2) * n_genes * BYTES_OF_A_GENE
            + self.of_cells()
    }

    /// As long as components are sought and written: products of genes, and results.
    pub fn while_finding_components(&self) -> u64 {
        let n_selected = self.n_selected as u64;
        (self.threads as u64 + PCA_MATRICES) * n_selected * n_selected * 8 + self.of_cells()
    }

    fn of_cells(&self) -> u64 {
        self.shape.n_cells as u64 * BYTES_OF_A_CELL
    }
}

/// What the memory of a run goes to, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// What the process should stay within.
    pub limit: u64,
    /// What the process had already: names of cells and genes, the program itself.
    pub resident: u64,
    /// Rows per chunk.
    pub chunk_rows: usize,
    /// Chunks on their way, sums and results.
    pub working: u64,
    /// What is left to keep chunks in.
    pub kept: u64,
}

impl MemoryPlan {
    /// The plan for a source as it is opened now, by this process.
    ///
    /// # Errors
    /// As [`MemoryPlan::new`]; those of reading a few cells, where a source doesn't tell how many entries it has.
    pub fn for_source(source: &dyn ChunkSource, ctx: &Context) -> Result<Self> {
        let limit = ctx.memory.unwrap_or_else(default_memory);
        let n_entries = zheng17_rayon::estimated_entries(source)?;
        Self::new(source.shape(), n_entries, ctx.threads.get(), limit, resident_memory(), ctx.chunk_rows)
    }

    /// A plan for a matrix of a shape with so many entries that `threads` workers go through.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if the limit is too small for even the smallest chunks, naming what
    /// would be enough.
    pub fn new(
        shape: Shape,
        n_entries: u64,
        threads: usize,
        limit: u64,
        resident: u64,
        chunk_rows: Option<NonZeroUsize>,
    ) -> Result<Self> {
        let chunk_rows = chunk_rows.map_or_else(
            || {
                let on_their_way = limit.saturating_sub(resident) / SHARE_ON_THEIR_WAY / threads as u64;
                let entries = (on_their_way / BYTES_ON_ITS_WAY).min(USUAL_CHUNK_ENTRIES);
                zheng17_rayon::chunk_rows(shape.n_cells, n_entries, entries)
            },
            NonZeroUsize::get,
        );
        let chunk_rows = chunk_rows.min(shape.n_cells.max(1));
        let n_selected = shape.n_genes.min(USUAL_SELECTED);
        let memory = WorkingMemory { shape, n_entries, threads, chunk_rows, n_selected };
        let working = memory.while_selecting();
        let needed = resident + working;
        if needed > limit {
            let Shape { n_cells, n_genes } = shape;
            return Err(Error::usage(format!(
                "{} MiB of memory are too little for {n_cells} cells x {n_genes} genes in chunks of {chunk_rows} cells by \
                 {threads} threads; {} MiB would be enough",
                limit >> 20,
                needed.div_ceil(1 << 20)
            )));
        }
        // Fewer genes may be selected, or no components asked for, so those are no reason to refuse.
        let needed = resident + working.max(memory.while_finding_components());
        Ok(Self { limit, resident, chunk_rows, working, kept: limit.saturating_sub(needed) })
    }
}

/// What is used where the system doesn't tell how much there is.
const UNKNOWN_MEMORY: u64 = 2 << 30;

/// A quarter of the memory that this process can have: of the machine's, or of its control group's if that is less.
pub fn default_memory() -> u64 {
    let Ok(mut system) = System::new() else { return UNKNOWN_MEMORY };
    system.refresh_memory();
    let group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
    system.total_memory().min(group) / 4
}

/// The memory that this process has now, in bytes; 0 where the system doesn't tell.
pub fn resident_memory() -> u64 {
    let Ok(own) = get_current_pid() else { return 0 };
    let Ok(mut system) = System::new() else { return 0 };
    system.refresh_processes_specifics(
        ProcessesToUpdate::Some(&[own]),
        false,
        ProcessRefreshKind::nothing().with_memory(),
    );
    system.process(own).map_or(0, sysinfo::Process::memory)
}

/// Bytes that may be kept, and how many are.
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// Takes so many bytes as long as no more than `limit`, or all there is, are used; says whether it did.
    pub(crate) fn take(&self, bytes: u64, limit: u64) -> bool {
        let limit = limit.min(self.limit);
        let grown = |used: u64| used.checked_add(bytes).filter(|&used| used <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { n_cells: 1_300_000, n_genes: 28_000 };

    #[test]
    fn chunks_fit_the_memory_and_are_powers_of_two() {
        for (gib, rows) in [(1, 512), (4, 512), (20, 512)] {
            let plan = MemoryPlan::new(SHAPE, 2_600_000_000, 2, gib << 30, 100 << 20, None).expect("enough");
            assert_eq!(plan.chunk_rows, rows, "{gib} GiB");
            assert!(plan.kept + plan.working + plan.resident <= gib << 30);
        }
    }

    #[test]
    fn too_little_memory_is_refused_with_what_would_do() {
        let error = MemoryPlan::new(SHAPE, 2_600_000_000, 2, 64 << 20, 50 << 20, None).expect_err("too little");
        assert!(error.to_string().contains("MiB would be enough"), "{error}");
        assert_eq!(error.kind(), zheng17_core::ErrorKind::Usage);
    }

    #[test]
    fn the_budget_is_never_exceeded() {
        let budget = Budget::new(100);
        assert!(budget.take(60, u64::MAX));
        assert!(!budget.take(41, u64::MAX));
        assert!(!budget.take(10, 65), "over the limit of one");
        assert!(budget.take(40, u64::MAX));
        budget.give_back(100);
        assert!(budget.take(100, u64::MAX));
    }

    #[test]
    fn the_machine_tells_of_its_memory() {
        assert!(default_memory() > 16 << 20);
        assert!(resident_memory() > 1 << 20);
    }
}
