//! What all matrices of one opened source share: workers, memory, chunk size, and the record of what was done.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use zheng17_core::{Context, Result, Shape};
use zheng17_rayon::Workers;

use crate::budget::{Budget, MemoryPlan};
use crate::graph::Node;
use crate::spill::SpillFile;
use crate::store::Keeper;

/// More genes than this are selected to be looked at, not to seek components between them.
const MOST_FOR_COMPONENTS: usize = 8192;

/// Workers, memory and record of one source.
pub(crate) struct Session {
    pub(crate) workers: Workers,
    keeper: Arc<Keeper>,
    plan: MemoryPlan,
    cells_read: AtomicU64,
    entries_read: AtomicU64,
    record: Mutex<Vec<String>>,
}

impl Session {
    pub(crate) fn new(plan: MemoryPlan, ctx: &Context) -> Result<Arc<Self>> {
        let threads = NonZeroUsize::new(plan.threads).unwrap_or(NonZeroUsize::MIN);
        Ok(Arc::new(Self {
            workers: Workers::new(threads)?,
            keeper: Arc::new(Keeper {
                budget: Budget::new(plan.kept),
                spill: ctx.spill_folder.clone().map(SpillFile::new),
            }),
            plan,
            cells_read: AtomicU64::new(0),
            entries_read: AtomicU64::new(0),
            record: Mutex::new(Vec::new()),
        }))
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    pub(crate) fn chunk_rows(&self) -> usize {
        self.plan.chunk_rows
    }

    pub(crate) fn count_reading(&self, cells: usize, entries: usize) {
        self.cells_read.fetch_add(cells as u64, Ordering::Relaxed);
        self.entries_read.fetch_add(entries as u64, Ordering::Relaxed);
    }

    /// Does something that goes through all chunks of a matrix, and records it.
    pub(crate) fn pass<T>(
        &self,
        name: &str,
        node: &Node,
        ctx: &Context,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (cells, entries) = (self.cells_read.load(Ordering::Relaxed), self.entries_read.load(Ordering::Relaxed));
        let started = Instant::now();
        node.prepare(ctx)?;
        let done = work()?;
        node.forget_past_if_kept();
        let cells = self.cells_read.load(Ordering::Relaxed) - cells;
        let entries = self.entries_read.load(Ordering::Relaxed) - entries;
        let read = match (cells, entries) {
            (0, 0) => "nothing read".to_owned(),
            (0, entries) => format!("{entries} entries read gene by gene"),
            (cells, entries) => format!("{cells} cells with {entries} entries read"),
        };
        let seconds = started.elapsed().as_secs_f64();
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let number = record.len() + 1;
        record.push(format!("pass {number}: {name} of {} genes; {read}; {seconds:.2} s", node.shape.n_genes));
        Ok(done)
    }

    /// The record, and where chunks may go.
    pub(crate) fn explain(&self, out: &mut String) {
        let MemoryPlan { limit, resident, threads, chunk_rows, working, kept, .. } = self.plan;
        let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
        for line in self.record.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            out.push_str(line);
            out.push('\n');
        }
        // Writing to a string can't fail.
        let _ = writeln!(
            out,
            "memory: {} MB in all; {} MB were taken already, {} MB are for chunks of {chunk_rows} cells on their way to {threads} \
             workers, sums and results, {} MB to keep chunks in, the rest for components",
            megabytes(limit),
            megabytes(resident),
            megabytes(working),
            megabytes(kept),
        );
        let _ = match &self.keeper.spill {
            None => writeln!(out, "spilled: nothing; there is no folder for it"),
            Some(spill) if spill.bytes() == 0 => writeln!(out, "spilled: nothing"),
            Some(spill) => writeln!(out, "spilled: {} MB to {}", megabytes(spill.bytes()), spill.folder().display()),
        };
    }

    /// Makes room for components of so many selected genes, should they be sought.
    pub(crate) fn make_room_for_components(&self, shape: Shape) {
        if shape.n_genes <= MOST_FOR_COMPONENTS {
            self.keeper.budget.lower(self.plan.kept_with(shape, shape.n_genes));
        }
    }

    /// What did not go as it should.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.keeper.spill.as_ref().and_then(SpillFile::complaint).into_iter().collect()
    }
}
