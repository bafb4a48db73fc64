//! No backend starts more threads than it was given. The only test of its program, as tests run on threads too.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zheng17::core::context::Progress;
use zheng17::{Components, Context, Params, recipe};
use zheng17_simulate::{Parameters, Simulation};

/// Threads of this process, where the system tells.
fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

/// Looks at the threads whenever cells are finished.
#[derive(Default)]
struct Most(AtomicUsize);

impl Progress for Most {
    fn start(&self, _pass: &str, _n_cells: usize) {}
    fn advance(&self, _n_cells: usize) {
        self.0.fetch_max(threads().unwrap_or(0), Ordering::Relaxed);
    }
    fn finish(&self) {}
}

#[test]
fn no_backend_starts_more_threads_than_it_was_given() {
    let Some(before) = threads() else {
        zheng17_test_support::skip("threads", "the system does not tell of threads");
        return;
    };
    let registry = zheng17::registry().expect("a registry");
    // Those on devices are not about threads, and a machine may have none.
    for entry in registry.entries().iter().filter(|entry| !entry.capabilities.devices) {
        for given in [1, 2, 5] {
            // Those of the run before end by themselves.
            while threads().is_some_and(|now| now > before) {
                std::thread::yield_now();
            }
            let most = Arc::new(Most::default());
            let ctx = Context {
                threads: NonZeroUsize::new(given).expect("positive"),
                chunk_rows: NonZeroUsize::new(50),
                progress: Arc::clone(&most) as _,
                ..Context::default()
            };
            let simulation = Simulation::new(Parameters { n_cells: 1000, n_genes: 1000, seed: 1 }).expect("cells");
            let params = Params { n_top_genes: 100, components: Some(Components::Exactly(5)), ..Params::default() };
            let backend = (entry.create)().expect("a backend");
            let outcome = recipe::run(Arc::new(backend), Arc::new(simulation), &params, &ctx).expect("a run");
            outcome.scores(&ctx, &mut |_, _| Ok(())).expect("scores");
            let most = most.0.load(Ordering::Relaxed);
            // A pool of workers comes on top of the caller, who waits for it.
            let allowed = if given == 1 { before } else { before + given };
            let name = &entry.capabilities.name;
            assert!(most > 0 && most <= allowed, "{name} with {given} threads: {most}, and {before} before");
        }
    }
}
