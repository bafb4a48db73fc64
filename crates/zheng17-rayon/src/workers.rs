//! A fixed number of workers: who does which piece of work, and no thread that nobody asked for.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};
use zheng17_core::{Context, Error, Result};

/// More threads than this are a slip of the hand: they would cost more than the machine has.
const MOST_THREADS: usize = 1024;

/// Workers that take pieces of work one after another.
pub struct Workers {
    /// `None` for one worker, which is the caller.
    pool: Option<ThreadPool>,
}

impl Workers {
    /// So many workers.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for more than 1,024;
    /// [`ErrorKind::System`](zheng17_core::ErrorKind::System) if the system refuses.
    pub fn new(threads: NonZeroUsize) -> Result<Self> {
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
            .map_err(|error| Error::system(format!("{threads} threads could not be started: {error}")))?;
        Ok(Self { pool: Some(pool) })
    }

    /// How many there are.
    pub fn number(&self) -> usize {
        self.pool.as_ref().map_or(1, ThreadPool::current_num_threads)
    }

    /// Runs the same work on every worker at once. If several fail, the error of the first piece is
    /// returned.
    fn on_each<T: Send>(&self, work: &(dyn Fn() -> Result<T, At> + Sync)) -> Result<Vec<T>> {
        let outcomes = match &self.pool {
            None => vec![work()],
            Some(pool) => pool.broadcast(|_| work()),
        };
        let mut done = Vec::with_capacity(outcomes.len());
        let mut first: Option<At> = None;
        for outcome in outcomes {
            match outcome {
                Ok(value) => done.push(value),
                Err(at) if first.as_ref().is_none_or(|first| at.piece < first.piece) => first = Some(at),
                Err(_) => {}
            }
        }
        match first {
            None => Ok(done),
            Some(At { error, .. }) => Err(error),
        }
    }

    /// Folds `n` pieces into one state for each worker. `fold` says how many cells it finished.
    ///
    /// Which worker takes which piece changes from run to run.
    ///
    /// # Errors
    /// Of the pieces that failed, the error of the first; [`ErrorKind::Cancelled`](zheng17_core::ErrorKind::Cancelled).
    pub fn fold<S: Send>(
        &self,
        n: usize,
        ctx: &Context,
        make: &(dyn Fn() -> S + Sync),
        fold: &(dyn Fn(&mut S, usize) -> Result<usize> + Sync),
    ) -> Result<Vec<S>> {
        let queue = Queue::new(n);
        self.on_each(&|| {
            let mut state = make();
            while let Some(piece) = queue.next() {
                let done = ctx.check_cancelled().and_then(|()| fold(&mut state, piece));
                ctx.progress.advance(done.map_err(|error| queue.stop(piece, error))?);
            }
            Ok(state)
        })
    }

    /// Works on `n` pieces at once and delivers them one after another, in order. `deliver` says how many cells are finished.
    ///
    /// # Behavior
    /// - A worker that is early waits for its turn, so there are never more undelivered pieces than workers.
    ///
    /// # Errors
    /// As [`Workers::fold`], and those of `deliver`.
    pub fn in_turn<S: Send>(
        &self,
        n: usize,
        ctx: &Context,
        make: &(dyn Fn() -> S + Sync),
        work: &(dyn Fn(&mut S, usize) -> Result<()> + Sync),
        deliver: &mut (dyn FnMut(&mut S, usize) -> Result<usize> + Send),
    ) -> Result<()> {
        let queue = Queue::new(n);
        let delivery = Mutex::new((0, deliver));
        let turn_ended = Condvar::new();
        let one = |state: &mut S, piece: usize| -> Result<()> {
            ctx.check_cancelled()?;
            work(state, piece)?;
            let mut turn = lock(&delivery);
            while turn.0 != piece {
                if queue.is_stopped() {
                    return Ok(());
                }
                turn = turn_ended.wait(turn).unwrap_or_else(PoisonError::into_inner);
            }
            if !queue.is_stopped() {
                ctx.progress.advance((turn.1)(state, piece)?);
            }
            turn.0 += 1;
            Ok(())
        };
        // Whoever waits looks again: at its turn, or at the end of all work. The lock makes sure that nobody is between looking
        // and waiting.
        let call_next = || {
            drop(lock(&delivery));
            turn_ended.notify_all();
        };
        self.on_each(&|| {
            let _panic_ends_the_work = OnPanic(|| {
                queue.end();
                call_next();
            });
            let mut state = make();
            while let Some(piece) = queue.next() {
                let outcome = one(&mut state, piece).map_err(|error| queue.stop(piece, error));
                call_next();
                outcome?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// What `make` makes of each of `n` pieces, in order.
    ///
    /// # Errors
    /// Of the pieces that failed, the error of the first.
    pub fn map<T: Send>(&self, n: usize, make: &(dyn Fn(usize) -> Result<T> + Sync)) -> Result<Vec<T>> {
        let queue = Queue::new(n);
        let made = self.on_each(&|| {
            let mut made = Vec::new();
            while let Some(piece) = queue.next() {
                made.push((piece, make(piece).map_err(|error| queue.stop(piece, error))?));
            }
            Ok(made)
        })?;
        let mut made: Vec<(usize, T)> = made.into_iter().flatten().collect();
        made.sort_by_key(|(piece, _)| *piece);
        Ok(made.into_iter().map(|(_, made)| made).collect())
    }
}

/// An error, and the piece that it came from.
struct At {
    piece: usize,
    error: Error,
}

/// Pieces of work that are taken in order until there are none left or one has failed.
struct Queue {
    next: AtomicUsize,
    n: usize,
}

impl Queue {
    fn new(n: usize) -> Self {
        Self { next: AtomicUsize::new(0), n }
    }

    fn next(&self) -> Option<usize> {
        let piece = self.next.fetch_add(1, Ordering::Relaxed);
        (piece < self.n).then_some(piece)
    }

    /// Nobody begins anything more.
    fn end(&self) {
        self.next.store(STOPPED, Ordering::Relaxed);
    }

    fn stop(&self, piece: usize, error: Error) -> At {
        self.end();
        At { piece, error }
    }

    fn is_stopped(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= STOPPED
    }
}

/// Does something if a panic passes by, so that nobody waits for a worker that is no more.
struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Far beyond any number of pieces, with room for every worker to ask once more.
const STOPPED: usize = usize::MAX / 2;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(n: usize) -> Workers {
        Workers::new(NonZeroUsize::new(n).expect("some")).expect("threads")
    }

    #[test]
    fn deliveries_come_in_order_from_any_number_of_workers() {
        for threads in [1, 2, 3, 8] {
            let mut delivered = Vec::new();
            workers(threads)
                .in_turn(
                    100,
                    &Context::default(),
                    &|| 0,
                    &|state, piece| {
                        *state = piece * piece;
                        Ok(())
                    },
                    &mut |state, piece| {
                        delivered.push((piece, *state));
                        Ok(1)
                    },
                )
                .expect("no error");
            assert_eq!(delivered, (0..100).map(|piece| (piece, piece * piece)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_ends_the_work_of_all() {
        for threads in [1, 2, 8] {
            for fails_in_work in [true, false] {
                let mut last = 0;
                let outcome = workers(threads).in_turn(
                    1000,
                    &Context::default(),
                    &|| (),
                    &|(), piece| {
                        if fails_in_work && piece == 17 { Err(Error::input("seventeen")) } else { Ok(()) }
                    },
                    &mut |(), piece| {
                        last = piece;
                        if piece == 17 { Err(Error::input("seventeen")) } else { Ok(1) }
                    },
                );
                assert_eq!(outcome.expect_err("an error").to_string(), "seventeen");
                assert!(last <= 17, "delivered {last} with {threads} threads");
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_nobody_waits_for_ever() {
        let outcome = std::panic::catch_unwind(|| {
            workers(4).in_turn(
                100,
                &Context::default(),
                &|| (),
                &|(), at| {
                    assert_ne!(at, 5, "the panic of this test");
                    Ok(())
                },
                &mut |(), _| Ok(1),
            )
        });
        assert!(outcome.is_err());
    }

    #[test]
    fn a_map_keeps_the_order_and_a_fold_sees_every_piece() {
        let workers = workers(3);
        assert_eq!(workers.map(50, &|at| Ok(at + 1)).expect("no error"), (1..=50).collect::<Vec<_>>());
        let ctx = Context::default();
        let fold = |sum: &mut usize, at| {
            *sum += at;
            Ok(1)
        };
        let sums = workers.fold(101, &ctx, &|| 0, &fold).expect("no error");
        assert_eq!(sums.into_iter().sum::<usize>(), 5050);
    }

    #[test]
    fn a_cancelled_run_is_an_error() {
        let ctx = Context::default();
        ctx.cancel.cancel();
        let error = workers(2).fold(1, &ctx, &|| (), &|(), _| Ok(1)).expect_err("cancelled");
        assert_eq!(error.kind(), zheng17_core::ErrorKind::Cancelled);
    }
}
