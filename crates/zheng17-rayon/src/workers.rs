//! A fixed number of workers: who does which chunk, and no thread that nobody asked for.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::{ThreadPool, ThreadPoolBuilder};
use zheng17_core::{Context, Error, Result};

/// More threads than this are a slip of the hand: they would cost more than the machine has.
const MOST_THREADS: usize = 1024;

/// Workers that take pieces of work one after another.
pub(crate) struct Workers {
    /// `None` for one worker, which is the caller.
    pool: Option<ThreadPool>,
}

impl Workers {
    /// So many workers.
    pub(crate) fn new(threads: NonZeroUsize) -> Result<Self> {
        if threads.get() == 1 {
            return Ok(Self { pool: None });
        }
        if threads.get() > MOST_THREADS {
            return Err(Error::usage(format!("{threads} threads asked for; at most {MOST_THREADS} are started")));
        }
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads.get())
            .thread_name(|at| format!("zheng17-{at}"))
            .build()
            .map_err(|error| Error::system(format!("{threads} threads could not be started")).with_source(error))?;
        Ok(Self { pool: Some(pool) })
    }

    /// How many there are.
    pub(crate) fn number(&self) -> usize {
        self.pool.as_ref().map_or(1, ThreadPool::current_num_threads)
    }

    /// Folds `n` pieces into one state for each worker. `fold` says how many cells it finished.
    ///
    /// Which worker takes which piece changes from run to run.
    pub(crate) fn fold<S: Send>(
        &self,
        n: usize,
        ctx: &Context,
        make: &(dyn Fn() -> S + Sync),
        fold: &(dyn Fn(&mut S, usize) -> Result<usize> + Sync),
    ) -> Result<Vec<S>> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut state = make();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= n {
                    return Ok(state);
                }
                ctx.check_cancelled()?;
                ctx.progress.advance(fold(&mut state, at)?);
            }
        };
        let work = || {
            let outcome = work();
            if outcome.is_err() {
                // The others need not begin anything more.
                next.store(n, Ordering::Relaxed);
            }
            outcome
        };
        match &self.pool {
            None => work().map(|state| vec![state]),
            Some(pool) => pool.broadcast(|_| work()).into_iter().collect(),
        }
    }

    /// What `make` makes of each of `n` pieces, in order.
    pub(crate) fn map<T: Send>(&self, n: usize, make: &(dyn Fn(usize) -> Result<T> + Sync)) -> Result<Vec<T>> {
        let mut made: Vec<Option<T>> = (0..n).map(|_| None).collect();
        self.for_each(&mut made, &|at, place| {
            *place = Some(make(at)?);
            Ok(())
        })?;
        Ok(made.into_iter().flatten().collect())
    }

    /// Works on each of some items, each by one worker. The first error in their order is returned.
    pub(crate) fn for_each<T: Send>(
        &self,
        items: &mut [T],
        work: &(dyn Fn(usize, &mut T) -> Result<()> + Sync),
    ) -> Result<()> {
        let Some(pool) = &self.pool else {
            return items.iter_mut().enumerate().try_for_each(|(at, item)| work(at, item));
        };
        let items = Mutex::new(items.iter_mut().enumerate());
        let first_error: Mutex<Option<(usize, Error)>> = Mutex::new(None);
        pool.broadcast(|_| {
            loop {
                let next = lock(&items).next();
                let Some((at, item)) = next else { return };
                if let Err(error) = work(at, item) {
                    let mut first = lock(&first_error);
                    if first.as_ref().is_none_or(|(earlier, _)| at < *earlier) {
                        *first = Some((at, error));
                    }
                    return;
                }
            }
        });
        match first_error.into_inner() {
            Ok(None) => Ok(()),
            Ok(Some((_, error))) => Err(error),
            Err(_) => Err(Error::internal("a worker stopped halfway")),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
