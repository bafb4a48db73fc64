//! What it costs to reach the same kernels by other ways: the object-safe twin of the trait, and the C interface.
//!
//! `cargo bench -p zheng17-plugin-host` runs the recipe in memory, from the opened matrix to the dense scaled one, on one
//! thread and by one kind of kernels: compiled into the generic recipe, behind `AnyBackend`, and out of the example plugin in a
//! shared library. The ways take turns. Each is compared with the first of its own round, and the median of these ratios counts;
//! the first way takes part twice, to show how much of a ratio is noise. Times are those for which the thread had a processor, so
//! that other programs disturb less. The digests of all must agree. Prints JSON; without `--bench`, as a test, it is run small.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use zheng17_core::backend::chunked::{KernelBackend, read_all};
use zheng17_core::backend::{AnyBackend, Determinism, SparseBackend};
use zheng17_core::context::Progress;
use zheng17_core::kernels::ScalarKernels;
use zheng17_core::recipe::{self, Params};
use zheng17_core::source::MemorySource;
use zheng17_core::{Capabilities, ChunkKernels, ChunkSource, Context, Error, Result};
use zheng17_kernels::FastKernels;
use zheng17_plugin_host::LoadedPlugin;
use zheng17_simulate::{Parameters, Simulation};
use zheng17_test_support::{compile_plugin, example_in_c, example_in_rust};

const N_GENES: usize = 28_000;

/// A run of the recipe: how long each of its passes took, and its digest.
struct Run {
    passes: Vec<(String, Duration)>,
    digest: String,
}

impl Run {
    fn time(&self) -> f64 {
        self.passes.iter().map(|(_, time)| time.as_secs_f64()).sum()
    }
}

/// Runs the recipe on a source.
type Runner = Box<dyn Fn(&Arc<dyn ChunkSource>) -> Result<Run>>;

/// A way to the kernels.
struct Way {
    name: &'static str,
    run: Runner,
    runs: Vec<Run>,
}

impl Way {
    fn new<B: SparseBackend>(name: &'static str, backend: B) -> Self {
        let backend = Arc::new(backend);
        Self { name, run: Box::new(move |source| run(&backend, source)), runs: Vec::new() }
    }
}

fn main() -> Result<()> {
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let (n_cells, rounds) = if measuring { (20_000, 21) } else { (200, 1) };
    let simulation = Simulation::new(Parameters { n_cells, n_genes: N_GENES, seed: 0 })?;
    let counts = read_all(&simulation, &Context::default())?;
    let n_entries = counts.indices.len();
    let source: Arc<dyn ChunkSource> = Arc::new(MemorySource::new(counts, "counts in memory")?);

    let folder = tempfile::tempdir().map_err(|error| Error::system("no folder").with_source(error))?;
    let in_rust = LoadedPlugin::load(&example_in_rust())?;
    let in_c = LoadedPlugin::load(&compile_plugin(&example_in_c(), &[], folder.path()))?;
    let fast = [
        Way::new("compiled in", of_kernels(FastKernels::default())),
        Way::new("compiled in, again", of_kernels(FastKernels::default())),
        Way::new("AnyBackend", AnyBackend::new(of_kernels(FastKernels::default()))),
        Way::new("shared library in Rust", in_rust.backend()?),
    ];
    // The example in C is written like the scalar kernels, and compiled by another compiler.
    let scalar = [Way::new("compiled in", of_kernels(ScalarKernels)), Way::new("shared library in C", in_c.backend()?)];
    let report = json!({
        "n_cells": n_cells,
        "n_genes": N_GENES,
        "n_entries": n_entries,
        "rounds": rounds,
        "fast_kernels": measure(fast.into(), &source, rounds)?,
        "scalar_kernels": measure(scalar.into(), &source, rounds.div_ceil(4))?,
    });
    println!("{report:#}");
    Ok(())
}

/// Lets ways take turns, and compares them with the first.
fn measure(mut ways: Vec<Way>, source: &Arc<dyn ChunkSource>, rounds: usize) -> Result<Value> {
    let n_ways = ways.len();
    for round in 0..rounds {
        // Every way comes first in some rounds.
        for at in 0..n_ways {
            let way = &mut ways[(round + at) % n_ways];
            let run = (way.run)(source)?;
            way.runs.push(run);
        }
    }
    let first = &ways[0];
    let digest = &first.runs[0].digest;
    if let Some(way) = ways.iter().find(|way| way.runs.iter().any(|run| run.digest != *digest)) {
        return Err(Error::internal(format!("{} came to another digest", way.name)));
    }
    let reports = ways.iter().map(|way| {
        let ratios = way.runs.iter().zip(&first.runs).map(|(run, first)| run.time() / first.time());
        let passes = way.runs[0].passes.iter().enumerate().map(|(at, (name, _))| {
            let seconds = median(way.runs.iter().map(|run| run.passes[at].1.as_secs_f64()).collect());
            json!({ "name": name, "seconds": seconds })
        });
        json!({
            "way": way.name,
            "seconds": median(way.runs.iter().map(Run::time).collect()),
            "against_the_first": median(ratios.collect()),
            "passes": passes.collect::<Vec<_>>(),
        })
    });
    Ok(reports.collect())
}

/// Runs the recipe once. Taking the matrix over is not part of its time.
fn run<B: SparseBackend>(backend: &Arc<B>, source: &Arc<dyn ChunkSource>) -> Result<Run> {
    let recorder = Arc::new(Recorder(Mutex::new(Vec::new())));
    let ctx = Context { progress: Arc::clone(&recorder) as _, ..Context::default() };
    let outcome = recipe::run(Arc::clone(backend), Arc::clone(source), &Params::default(), &ctx)?;
    let mut scaled = vec![0.0; outcome.result.cells.len() * outcome.result.selected.len()];
    outcome.scaled_into(&ctx, &mut scaled)?;
    drop(scaled);
    recorder.note("after the passes");
    let notes = recorder.0.lock().unwrap_or_else(PoisonError::into_inner);
    let times = notes.windows(2).map(|pair| (pair[0].0.clone(), pair[1].1.saturating_sub(pair[0].1)));
    let mut passes: Vec<(String, Duration)> = Vec::new();
    for (name, time) in times.filter(|(name, _)| name != "reading") {
        match passes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += time,
            None => passes.push((name, time)),
        }
    }
    Ok(Run { passes, digest: outcome.result.digest.clone() })
}

/// What began when, by processor time.
struct Recorder(Mutex<Vec<(String, Duration)>>);

impl Recorder {
    fn note(&self, what: &str) {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let time = Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((what.to_owned(), time));
    }
}

impl Progress for Recorder {
    fn start(&self, pass: &str, _n_cells: usize) {
        self.note(pass);
    }

    fn advance(&self, _n_cells: usize) {}

    fn finish(&self) {
        self.note("between the passes");
    }
}

fn of_kernels<K: ChunkKernels + 'static>(kernels: K) -> KernelBackend<K> {
    let capabilities = Capabilities {
        name: "kernels".to_owned(),
        description: "to measure".to_owned(),
        determinism: Determinism::SameBits,
        ordered_fold: true,
        out_of_core: false,
        threads: false,
        devices: false,
    };
    KernelBackend::new(kernels, capabilities)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
