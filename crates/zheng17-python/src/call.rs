//! Long work away from the interpreter: its lock is free meanwhile, Ctrl-C stops the work, progress is told to Python.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use zheng17_core::context::Progress;
use zheng17_core::{Context, Error, Result};

use crate::errors::{OrException as _, exception};

/// How often signals are looked for and progress is told.
const BEAT: Duration = Duration::from_millis(50);

/// How long stopped work is waited for. What goes on after that (the eigenproblem, which can't be stopped) ends by itself, and
/// nobody sees its result.
const LONGEST_END: Duration = Duration::from_millis(800);

/// Limits of one call. `None` for what suits.
pub(crate) struct Limits {
    pub(crate) threads: Option<usize>,
    pub(crate) memory: Option<u64>,
    pub(crate) chunk_rows: Option<usize>,
}

impl Limits {
    /// The context of a call.
    ///
    /// # Errors
    /// `ValueError` for no threads or no cells at a time.
    fn context(&self) -> PyResult<Context> {
        let positive = |number: usize, what: &str| {
            NonZeroUsize::new(number)
                .ok_or_else(|| exception(&Error::usage(format!("{what} must be 1 or more, not {number}"))))
        };
        let threads = match self.threads {
            Some(threads) => positive(threads, "threads")?,
            None => thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        };
        let chunk_rows = self.chunk_rows.map(|rows| positive(rows, "chunk_rows")).transpose()?;
        let spill_folder = Some(std::env::temp_dir());
        Ok(Context { threads, memory: self.memory, chunk_rows, spill_folder, ..Context::default() })
    }
}

/// Does work on a thread of its own. `progress` is called as `progress(pass, done, total)`, in cells, on the caller's thread.
///
/// # Errors
/// Those of the work; of `progress`, which stop the work; `KeyboardInterrupt`.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    limits: &Limits,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Context) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let mut ctx = limits.context()?;
    let cancel = ctx.cancel.clone();
    let events = Arc::new(Events::default());
    if progress.is_some() {
        ctx.progress = Arc::clone(&events) as _;
    }
    let (sender, receiver) = sync_channel(1);
    // Only this thread receives; the lock says so to the compiler.
    let receiver = Mutex::new(receiver);
    let receive = |wait| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(wait);
    let body = move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&ctx)))
            .unwrap_or_else(|_| Err(Error::internal("a fault of zheng17: a thread panicked")));
        // Nobody may be waiting any more.
        let _ = sender.send(outcome);
    };
    let started = thread::Builder::new().name("zheng17".to_owned()).spawn(body);
    started.map_err(|error| exception(&Error::system("no thread could be started").with_source(error)))?;
    loop {
        match py.detach(|| receive(BEAT)) {
            Ok(outcome) => {
                let value = outcome.or_exception()?;
                events.tell(progress)?;
                return Ok(value);
            }
            Err(RecvTimeoutError::Disconnected) => return Err(PyRuntimeError::new_err("a thread of zheng17 vanished")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(stop) = py.check_signals().and_then(|()| events.tell(progress)) {
            cancel.cancel();
            // Whatever it ends with, the reason to stop is what the caller gets.
            let _ = py.detach(|| receive(LONGEST_END));
            return Err(stop);
        }
    }
}

/// Progress that was made and not yet told.
#[derive(Default)]
struct Events {
    untold: Mutex<VecDeque<Event>>,
}

/// How far a pass is.
#[derive(Clone)]
struct Event {
    pass: String,
    done: usize,
    total: usize,
    told: bool,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what is new; the running pass stays to be continued.
    fn tell(&self, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(progress) = progress else {
            return Ok(());
        };
        let news: Vec<Event> = {
            let mut untold = self.lock();
            let news = untold.iter().filter(|event| !event.told).cloned().collect();
            let running = untold.pop_back().map(|event| Event { told: true, ..event });
            untold.clear();
            untold.extend(running);
            news
        };
        for event in news {
            progress.call1((event.pass, event.done, event.total))?;
        }
        Ok(())
    }
}

impl Progress for Events {
    fn start(&self, pass: &str, n_cells: usize) {
        self.lock().push_back(Event { pass: pass.to_owned(), done: 0, total: n_cells, told: false });
    }
    fn advance(&self, n_cells: usize) {
        if let Some(running) = self.lock().back_mut() {
            running.done = (running.done + n_cells).min(running.total.max(running.done));
            running.told = false;
        }
    }
    fn finish(&self) {}
}
