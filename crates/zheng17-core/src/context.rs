//! What a run hands to every backend: threads, memory, chunk size, cancellation and progress.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Rows per chunk where neither the caller nor the backend has a reason for another number. It never changes a result.
pub const DEFAULT_CHUNK_ROWS: usize = 4096;

/// Limits and channels of one run.
#[derive(Clone)]
pub struct Context {
    /// Threads that a backend may use, itself included.
    pub threads: NonZeroUsize,
    /// Bytes that the whole process should stay within, for backends that can work out of core; `None`: what they think fit.
    pub memory: Option<u64>,
    /// Where such a backend may put files of its own when memory is short; `None`: nowhere.
    pub spill_folder: Option<PathBuf>,
    /// Rows per chunk; `None`: whatever suits the backend.
    pub chunk_rows: Option<NonZeroUsize>,
    /// The devices to compute on, by their numbers, for backends that have devices; `None`: all of them.
    pub devices: Option<Vec<usize>>,
    /// Bytes of each device's memory to stay within; `None`: what is free.
    pub device_memory: Option<u64>,
    /// Whether somebody asked to stop.
    pub cancel: CancelToken,
    /// Where finished work is reported.
    pub progress: Arc<dyn Progress>,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            threads: NonZeroUsize::MIN,
            memory: None,
            spill_folder: None,
            chunk_rows: None,
            devices: None,
            device_memory: None,
            cancel: CancelToken::default(),
            progress: Arc::new(NoProgress),
        }
    }
}

impl Context {
    /// Does something that goes over all cells once, between the start and the finish of its progress.
    ///
    /// # Errors
    /// What `work` returned.
    pub fn pass<T>(&self, name: &str, n_cells: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.check_cancelled()?;
        self.progress.start(name, n_cells);
        let result = work();
        self.progress.finish();
        result
    }

    /// Rows per chunk, for backends to which any number is as good.
    pub fn rows_per_chunk(&self) -> usize {
        self.chunk_rows.map_or(DEFAULT_CHUNK_ROWS, NonZeroUsize::get)
    }

    /// Called between chunks: an error if somebody asked to stop.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn check_cancelled(&self) -> Result<()> {
        if self.cancel.is_cancelled() { Err(Error::cancelled()) } else { Ok(()) }
    }
}

/// A flag that asks a run to stop at the next chunk. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Receives what was done. A pass over the cells starts, advances by cells that are finished, and ends.
pub trait Progress: Send + Sync {
    /// A pass begins; `n_cells` is how far it will go.
    fn start(&self, pass: &str, n_cells: usize);
    /// So many more cells are finished.
    fn advance(&self, n_cells: usize);
    /// The pass is over.
    fn finish(&self);
}

/// Reports to nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn start(&self, _pass: &str, _n_cells: usize) {}
    fn advance(&self, _n_cells: usize) {}
    fn finish(&self) {}
}

/// A pass that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// What was done.
    pub name: String,
    /// How many cells it was to go through.
    pub n_cells: usize,
    /// How long it took.
    pub time: Duration,
}

/// Keeps the time of each pass, and tells somebody else of all progress.
pub struct PassRecorder {
    told: Arc<dyn Progress>,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    over: Vec<Pass>,
    running: Option<(String, usize, Instant)>,
}

impl PassRecorder {
    /// A recorder that tells `told`.
    pub fn new(told: Arc<dyn Progress>) -> Self {
        Self { told, record: Mutex::default() }
    }

    /// The passes that are over, in their order.
    pub fn passes(&self) -> Vec<Pass> {
        self.record().over.clone()
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        // What a panicking thread left is whole: every change is one step.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for PassRecorder {
    fn start(&self, pass: &str, n_cells: usize) {
        self.told.start(pass, n_cells);
        self.record().running = Some((pass.to_owned(), n_cells, Instant::now()));
    }

    fn advance(&self, n_cells: usize) {
        self.told.advance(n_cells);
    }

    fn finish(&self) {
        let mut record = self.record();
        if let Some((name, n_cells, started)) = record.running.take() {
            record.over.push(Pass { name, n_cells, time: started.elapsed() });
        }
        drop(record);
        self.told.finish();
    }
}
