//! How much memory a run may use and what it goes to: chunks on their way, sums, results, and what is left to keep chunks in.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};
use zheng17_core::backend::GRAM_BLOCK;
use zheng17_core::{ChunkSource, Context, Error, Result, Shape};
use zheng17_rayon::USUAL_CHUNK_ENTRIES;

/// The least rows of a chunk that nobody asked for.
const FEWEST_ROWS: usize = 16;

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

/// Matrices of selected genes × selected genes that the eigensolver needs, together with what it is given and gives.
const EIGEN_MATRICES: u64 = 5;

/// Bytes of an entry of a block of PCA: as it is unpacked, and in columns.
const BYTES_IN_A_BLOCK: u64 = 24;

/// The share of the entries that the usual number of selected genes has. It is unknown before they are selected; in most assays
/// it is less.
const SHARE_OF_SELECTED: f64 = 0.1;

/// The share of the entries that so many selected genes have, about.
pub fn share_of_selected(n_selected: usize) -> f64 {
    (SHARE_OF_SELECTED * n_selected as f64 / USUAL_SELECTED as f64).min(1.0)
}

/// Bytes for all that is not told here: the output's buffers, chunks of the file that are kept for the next read.
const OTHER_BYTES: u64 = 8 << 20;

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
        let chunk = (self.chunk_rows as u64).saturating_mul(self.row_entries()).saturating_mul(BYTES_ON_ITS_WAY);
        let of_workers = threads.saturating_mul(chunk.saturating_add(READER_BYTES));
        of_workers.saturating_add((threads + 2) * n_genes * BYTES_OF_A_GENE).saturating_add(self.of_cells())
    }

    fn row_entries(&self) -> u64 {
        self.n_entries.div_ceil(self.shape.n_cells.max(1) as u64).max(1)
    }

    /// As long as components are sought and written: products of genes, and results.
    pub fn while_finding_components(&self) -> u64 {
        let (threads, n_selected) = (self.threads as u64, self.n_selected as u64);
        let matrix = n_selected.saturating_mul(n_selected).saturating_mul(8);
        let share = share_of_selected(self.n_selected);
        let row_entries = (self.row_entries() as f64 * share) as u64 + 1;
        let block = (GRAM_BLOCK.min(self.shape.n_cells) as u64) * row_entries * BYTES_IN_A_BLOCK;
        let products = matrix.saturating_mul(threads + 1).saturating_add(threads * block);
        products.max(matrix.saturating_mul(EIGEN_MATRICES)).saturating_add(self.of_cells())
    }

    fn of_cells(&self) -> u64 {
        self.shape.n_cells as u64 * BYTES_OF_A_CELL + OTHER_BYTES
    }
}

/// What the memory of a run goes to, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// What the process should stay within.
    pub limit: u64,
    /// What the process had already: names of cells and genes, the program itself.
    pub resident: u64,
    /// Entries of the matrix.
    pub n_entries: u64,
    /// Workers: as many as were given, or fewer where memory has no room for the chunks of all.
    pub threads: usize,
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

    /// A plan for a matrix of a shape with so many entries that up to `threads` workers go through.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if the limit is too small for even one worker with the smallest
    /// chunks, or with those that were asked for, naming what would be enough.
    pub fn new(
        shape: Shape,
        n_entries: u64,
        threads: usize,
        limit: u64,
        resident: u64,
        chunk_rows: Option<NonZeroUsize>,
    ) -> Result<Self> {
        let all_rows = shape.n_cells.max(1);
        let fewest = chunk_rows.map_or(FEWEST_ROWS, NonZeroUsize::get).min(all_rows);
        let n_selected = shape.n_genes.min(USUAL_SELECTED);
        let with = |threads, chunk_rows| WorkingMemory { shape, n_entries, threads, chunk_rows, n_selected };
        let fits = |&threads: &usize| {
            let memory = with(threads, fewest);
            let selecting = resident.saturating_add(memory.while_selecting()) <= limit;
            // One worker is enough for components, should they be sought.
            selecting && (threads == 1 || resident.saturating_add(memory.while_finding_components()) <= limit)
        };
        let Some(threads) = (1..=threads).rev().find(fits) else {
            let needed = resident.saturating_add(with(1, fewest).while_selecting());
            let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
            return Err(Error::usage(format!(
                "{} MB of memory are too little for {} cells x {} genes in chunks of {fewest} cells; {} MB would be enough",
                limit / 1_000_000,
                shape.n_cells,
                shape.n_genes,
                // What the process has by itself changes a little from one start to the next.
                megabytes(needed.saturating_add(needed / 20))
            )));
        };
        let chunk_rows = if chunk_rows.is_some() {
            fewest
        } else {
            // Half of what is left after everything else is for chunks on their way, the other half to keep chunks in.
            let left = limit - resident - with(threads, 0).while_selecting().min(limit - resident);
            let entries = (left / 2 / threads as u64 / BYTES_ON_ITS_WAY).min(USUAL_CHUNK_ENTRIES);
            zheng17_rayon::chunk_rows(shape.n_cells, n_entries, entries).min(all_rows)
        };
        let memory = with(threads, chunk_rows);
        let working = memory.while_selecting();
        // Fewer genes may be selected, or no components asked for, so those are no reason to refuse.
        let needed = resident + working.max(memory.while_finding_components());
        Ok(Self { limit, resident, n_entries, threads, chunk_rows, working, kept: limit.saturating_sub(needed) })
    }

    /// What is left to keep chunks in once it is known how many genes are selected.
    pub(crate) fn kept_with(&self, shape: Shape, n_selected: usize) -> u64 {
        let n_entries = self.n_entries;
        let components = WorkingMemory { shape, n_entries, threads: self.threads, chunk_rows: 0, n_selected };
        let needed = self.resident.saturating_add(self.working.max(components.while_finding_components()));
        self.kept.min(self.limit.saturating_sub(needed))
    }
}

/// What is used where the system doesn't tell how much there is.
const UNKNOWN_MEMORY: u64 = 2 << 30;

/// What this process has already, and a quarter of what it can have besides: of the machine's memory, or of its control group's if
/// that is less. A program that has just started gets a quarter of all; one that holds counts already, as Python does, more.
pub fn default_memory() -> u64 {
    let resident = resident_memory();
    let Ok(mut system) = System::new() else { return resident.saturating_add(UNKNOWN_MEMORY) };
    system.refresh_memory();
    let group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
    let all = system.total_memory().min(group);
    resident.saturating_add(all.saturating_sub(resident) / 4)
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
    limit: AtomicU64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    /// Takes so many bytes as long as no more than `limit`, or all there is, are used; says whether it did.
    pub(crate) fn take(&self, bytes: u64, limit: u64) -> bool {
        let limit = limit.min(self.limit());
        let grown = |used: u64| used.checked_add(bytes).filter(|&used| used <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Something else needs room: from now on no more than this is taken.
    pub(crate) fn lower(&self, limit: u64) {
        self.limit.fetch_min(limit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { n_cells: 1_300_000, n_genes: 28_000 };

    #[test]
    fn a_process_that_has_much_already_may_have_more() {
        let ballast = vec![1_u8; 64 << 20];
        assert!(default_memory() > resident_memory());
        assert!(ballast.iter().all(|&byte| byte == 1), "it is there until here");
    }

    #[test]
    fn chunks_fit_the_memory_and_are_powers_of_two() {
        for (gib, rows) in [(1, 512), (4, 512), (20, 512)] {
            let plan = MemoryPlan::new(SHAPE, 2_600_000_000, 2, gib << 30, 100 << 20, None).expect("enough");
            assert_eq!(plan.chunk_rows, rows, "{gib} GiB");
            assert!(plan.kept + plan.working + plan.resident <= gib << 30);
        }
    }

    #[test]
    fn too_little_memory_is_refused_and_what_would_be_enough_is_enough() {
        let plan = |limit, threads| MemoryPlan::new(SHAPE, 2_600_000_000, threads, limit, 50 << 20, None);
        let error = plan(64 << 20, 2).expect_err("too little");
        assert_eq!(error.kind(), zheng17_core::ErrorKind::Usage);
        let words: Vec<String> = error.to_string().split(' ').map(str::to_owned).collect();
        let at = words.iter().position(|word| word == "would").expect("a number") - 2;
        let enough: u64 = words[at].parse().expect("a number");
        for more in 0..2000 {
            assert!(plan((enough + more) * 1_000_000, 2).is_ok(), "{more} MB more than {enough}");
        }
    }

    #[test]
    fn many_workers_share_little_memory_or_are_fewer() {
        for threads in [1, 2, 16, 64, 1024] {
            let plan = MemoryPlan::new(SHAPE, 2_600_000_000, threads, 256 << 20, 60 << 20, None).expect("enough");
            assert!(plan.threads >= 1 && plan.threads <= threads);
            assert!(plan.resident + plan.working <= plan.limit, "{plan:?}");
        }
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
