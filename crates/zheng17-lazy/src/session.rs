//! What all matrices of one opened source share: workers, memory, chunk size, and the record of what was done.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use zheng17_core::{Context, Result};
use zheng17_rayon::Workers;

use crate::budget::{Budget, MemoryPlan};
use crate::graph::Node;
use crate::spill::SpillFile;
use crate::store::Keeper;

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
        Ok(Arc::new(Self {
            workers: Workers::new(ctx.threads)?,
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
        let MemoryPlan { limit, resident, chunk_rows, working, kept } = self.plan;
        let mib = |bytes: u64| bytes >> 20;
        for line in self.record.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            out.push_str(line);
            out.push('\n');
        }
        // Writing to a string can't fail.
        let _ = writeln!(
            out,
            "memory: {} MiB in all; {} MiB were taken already, {} MiB are for chunks of {chunk_rows} cells on their way, sums \
             and results, {} MiB to keep chunks in",
            mib(limit),
            mib(resident),
            mib(working),
            mib(kept),
        );
        let _ = match &self.keeper.spill {
            Some(spill) => writeln!(out, "spilled: {} MiB to {}", mib(spill.bytes()), spill.folder().display()),
            None => writeln!(out, "spilled: nothing; there is no folder for it"),
        };
    }
}
