//! The recipe and its principal components in memory, timed; prints JSON.
//!
//! `cargo bench -p zheng17 --bench recipe -- --input cells.h5ad` measures on the counts of a file, without it on simulated ones.
//! Reading is not measured. `rayon` is given the matrix in its own form. `lazy` has none before its first pass, so its times
//! include taking the counts over from memory and checking them. Without `--bench`, as a test, it is run small.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use zheng17::core::backend::chunked::{KernelBackend, read_all};
use zheng17::core::backend::{Determinism, SparseBackend};
use zheng17::core::context::{NoProgress, Pass, PassRecorder};
use zheng17::core::exact::{Arithmetic, CountSummary, MomentPlan, MomentSummary};
use zheng17::core::kernels::{ChunkKernels, OutputPlan};
use zheng17::core::matrix::{CsrBuffer, CsrView, GeneMap};
use zheng17::core::recipe::pca;
use zheng17::core::source::MemorySource;
use zheng17::core::{ChunkSource, Context};
use zheng17::{Capabilities, Components, Params, Result, recipe};
use zheng17_kernels::FastKernels;
use zheng17_simulate::{Parameters, Simulation};

/// More than anybody has, so that `lazy` keeps everything in memory.
const ALL_MEMORY: u64 = 1 << 40;

/// Time the recipe in memory.
#[derive(Parser)]
struct Arguments {
    /// A file of counts; simulated ones if not given.
    #[arg(long)]
    input: Option<PathBuf>,
    /// How many cells to simulate.
    #[arg(long)]
    cells: Option<usize>,
    /// What to measure.
    #[arg(long, value_delimiter = ',', default_value = "recipe,chunks,idle,copy")]
    parts: Vec<Part>,
    /// How many threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<NonZeroUsize>,
    /// Rows per chunk that are compared.
    #[arg(long, value_delimiter = ',', default_value = "256,1024,4096,16384,65536")]
    chunk_rows: Vec<NonZeroUsize>,
    /// How often each is measured; medians are reported.
    #[arg(long)]
    repeats: Option<usize>,
    /// Cargo says so when it measures and not when it tests.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Part {
    /// The recipe and its components, for each backend and number of threads.
    Recipe,
    /// The recipe with chunks of several sizes.
    Chunks,
    /// Passes by kernels that do nothing, beside the same by those that do something.
    Idle,
    /// A copy from memory to memory.
    Copy,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let repeats = arguments.repeats.unwrap_or(if arguments.bench { 5 } else { 1 });
    let counts = match &arguments.input {
        Some(path) => {
            let ctx = Context::default();
            read_all(zheng17::io::open(path, &zheng17::io::dataset::OpenOptions::default())?.source.as_ref(), &ctx)?
        }
        None => simulated(arguments.cells.unwrap_or(if arguments.bench { 20_000 } else { 300 }))?,
    };
    let (n_cells, n_genes, n_entries) = (counts.n_cells(), counts.n_genes, counts.indices.len());
    let source: Arc<dyn ChunkSource> = Arc::new(MemorySource::new(counts, "counts in memory")?);
    let mut report = json!({ "n_cells": n_cells, "n_genes": n_genes, "n_entries": n_entries, "repeats": repeats });
    for part in &arguments.parts {
        match part {
            Part::Recipe => report["recipe"] = measure_recipe(&source, &arguments.threads, &[None], repeats)?,
            Part::Chunks => {
                let sizes: Vec<_> = arguments.chunk_rows.iter().copied().map(Some).collect();
                let most = arguments.threads.iter().copied().max().unwrap_or(NonZeroUsize::MIN);
                report["chunks"] = measure_recipe(&source, &[most], &sizes, repeats)?;
            }
            Part::Idle => report["idle"] = measure_idle(&source, &arguments.chunk_rows, repeats)?,
            Part::Copy => {
                report["copy"] = measure_copy(&arguments.threads, if arguments.bench { 1 << 28 } else { 1 << 16 });
            }
        }
    }
    println!("{report:#}");
    Ok(())
}

fn simulated(n_cells: usize) -> Result<CsrBuffer> {
    let simulation = Simulation::new(Parameters { n_cells, n_genes: 28_000, seed: 0 })?;
    read_all(&simulation, &Context::default())
}

fn context(threads: NonZeroUsize, chunk_rows: Option<NonZeroUsize>) -> Context {
    Context { threads, chunk_rows, memory: Some(ALL_MEMORY), ..Context::default() }
}

/// The recipe and its components by every backend with threads, every number of threads and every size of chunks.
fn measure_recipe(
    source: &Arc<dyn ChunkSource>,
    threads: &[NonZeroUsize],
    chunk_rows: &[Option<NonZeroUsize>],
    repeats: usize,
) -> Result<Value> {
    let mut variants = Vec::new();
    for &backend in &["rayon", "lazy"] {
        for &threads in threads {
            variants.extend(chunk_rows.iter().map(|&rows| (backend, threads, rows, Vec::new())));
        }
    }
    // One of each, again and again: whatever else the machine does then meets all of them.
    for _ in 0..repeats {
        for (backend, threads, rows, measured) in &mut variants {
            measured.push(run_once(backend, source, &context(*threads, *rows))?);
        }
    }
    let reports = variants.iter().map(|(backend, threads, rows, measured)| {
        let median_of = |time: &dyn Fn(&Measured) -> Duration| median(measured.iter().map(time).collect());
        let passes =
            measured[0].passes.iter().enumerate().map(
                |(at, pass)| json!({ "name": pass.name, "seconds": median_of(&|measured| measured.passes[at].time) }),
            );
        json!({
            "backend": backend,
            "threads": threads,
            "chunk_rows": rows,
            "recipe_seconds": median_of(&|measured| measured.recipe),
            "passes": passes.collect::<Vec<_>>(),
            "pca_seconds": median_of(&|measured| measured.gram + measured.eigen + measured.scores),
            "gram_seconds": median_of(&|measured| measured.gram),
            "eigen_seconds": median_of(&|measured| measured.eigen),
            "scores_seconds": median_of(&|measured| measured.scores),
        })
    });
    Ok(reports.collect())
}

/// What one run took.
struct Measured {
    /// From the opened matrix to the dense scaled one.
    recipe: Duration,
    passes: Vec<Pass>,
    gram: Duration,
    eigen: Duration,
    scores: Duration,
}

fn run_once(backend: &str, source: &Arc<dyn ChunkSource>, ctx: &Context) -> Result<Measured> {
    let recorder = Arc::new(PassRecorder::new(Arc::new(NoProgress)));
    let ctx = Context { progress: Arc::clone(&recorder) as _, ..ctx.clone() };
    let backend = Arc::new(zheng17::registry()?.create(backend)?);
    let (outcome, recipe) = timed(|| {
        let outcome = recipe::run(Arc::clone(&backend), Arc::clone(source), &Params::default(), &ctx)?;
        let mut scaled = vec![0.0; outcome.result.cells.len() * outcome.result.selected.len()];
        outcome.scaled_into(&ctx, &mut scaled)?;
        Ok((outcome, scaled))
    })?;
    let (outcome, scaled) = outcome;
    drop(scaled);
    let (reading, passes): (Vec<Pass>, Vec<Pass>) =
        recorder.passes().into_iter().partition(|pass| pass.name == "reading");
    let reading: Duration = reading.iter().map(|pass| pass.time).sum();

    let n_cells = outcome.result.cells.len();
    let (components, _) = pca::number_of_components(Components::DEFAULT, n_cells, outcome.output.n_genes())?;
    let (sums, gram) = timed(|| backend.gram(&outcome.matrix, &outcome.output, &ctx))?;
    let (pca, eigen) = timed(|| pca::principal_components(&sums, &outcome.output, n_cells, components))?;
    let (_, scores) = timed(|| {
        dense(n_cells, components, |sink| {
            backend.project(&outcome.matrix, &outcome.output, &pca.projection(), &ctx, sink)
        })
    })?;
    Ok(Measured { recipe: recipe.saturating_sub(reading), passes, gram, eigen, scores })
}

/// A dense matrix, filled by whoever hands rows to the sink.
fn dense(
    n_cells: usize,
    n_columns: usize,
    fill: impl FnOnce(&mut zheng17::core::backend::RowSink<'_>) -> Result<()>,
) -> Result<Vec<f32>> {
    let mut values = vec![0.0; n_cells * n_columns];
    fill(&mut |first, rows| {
        values[first * n_columns..][..rows.len()].copy_from_slice(rows);
        Ok(())
    })?;
    Ok(values)
}

/// Kernels that do nothing: what is left is what it costs to go through chunks.
struct IdleKernels;

impl ChunkKernels for IdleKernels {
    fn fold_counts(&self, _into: &mut CountSummary, _chunk: CsrView<'_>) -> Result<()> {
        Ok(())
    }
    fn fold_moments(&self, _into: &mut MomentSummary, _chunk: CsrView<'_>, _plan: &MomentPlan) -> Result<()> {
        Ok(())
    }
    fn select_into(&self, _chunk: CsrView<'_>, _genes: &GeneMap, _out: &mut CsrBuffer) -> Result<()> {
        Ok(())
    }
    fn affine_into(&self, _chunk: CsrView<'_>, _plan: &OutputPlan, _out: &mut [f32]) -> Result<()> {
        Ok(())
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

/// The passes of the recipe on one thread by kernels that do nothing and by those that do something, for each size of chunks
/// and for one chunk of all rows.
fn measure_idle(source: &Arc<dyn ChunkSource>, chunk_rows: &[NonZeroUsize], repeats: usize) -> Result<Value> {
    let (idle, working) = (of_kernels(IdleKernels), Arc::new(of_kernels(FastKernels::default())));
    let all = working.open(Arc::clone(source), &Context::default())?;
    let outcome = recipe::run(Arc::clone(&working), Arc::clone(source), &Params::default(), &Context::default())?;
    let moments = MomentPlan { cell_scale: Arc::clone(&outcome.output.cell_scale), arithmetic: Arithmetic::Log };
    let (selected, output) = (&outcome.matrix, &outcome.output);
    let one_chunk = NonZeroUsize::new(all.n_cells());
    let mut variants: Vec<_> =
        chunk_rows.iter().copied().map(Some).chain([one_chunk]).map(|rows| (rows, Vec::new(), Vec::new())).collect();
    for _ in 0..repeats {
        for (rows, idle_times, working_times) in &mut variants {
            let ctx = context(NonZeroUsize::MIN, *rows);
            idle_times.push(passes(&idle, &all, selected, &moments, output, &ctx)?);
            working_times.push(passes(working.as_ref(), &all, selected, &moments, output, &ctx)?);
        }
    }
    let of_kind = |times: Vec<[Duration; 2]>| {
        let [summaries, rows] = [0, 1].map(|at| median(times.iter().map(|times| times[at]).collect()));
        json!({ "summaries_seconds": summaries, "rows_seconds": rows })
    };
    let reports = variants
        .into_iter()
        .map(|(rows, idle, working)| json!({ "chunk_rows": rows, "idle": of_kind(idle), "working": of_kind(working) }));
    Ok(reports.collect())
}

/// How long the passes take that sum, and the one that makes dense rows.
fn passes<K: ChunkKernels + 'static>(
    backend: &KernelBackend<K>,
    all: &CsrBuffer,
    selected: &CsrBuffer,
    moments: &MomentPlan,
    output: &OutputPlan,
    ctx: &Context,
) -> Result<[Duration; 2]> {
    let ((), summaries) = timed(|| {
        backend.count_summary(all, None, ctx)?;
        backend.count_summary(selected, None, ctx)?;
        backend.moment_summary(selected, moments, ctx)?;
        Ok(())
    })?;
    let ((), rows) = timed(|| backend.scaled(selected, output, ctx, &mut |_, _| Ok(())))?;
    Ok([summaries, rows])
}

/// Bytes that all threads together copy in a second, from blocks of their own that no cache holds.
fn measure_copy(threads: &[NonZeroUsize], block: usize) -> Value {
    let of_threads = threads.iter().map(|&threads| {
        let mut blocks: Vec<(Vec<u8>, Vec<u8>)> =
            (0..threads.get()).map(|_| (vec![1; block], vec![2; block])).collect();
        let times = (0..5).map(|_| {
            let started = Instant::now();
            std::thread::scope(|scope| {
                for (from, to) in &mut blocks {
                    scope.spawn(|| std::hint::black_box(to).copy_from_slice(std::hint::black_box(from)));
                }
            });
            started.elapsed()
        });
        let seconds = median(times.collect());
        json!({ "threads": threads, "bytes_per_second": (threads.get() * block) as f64 / seconds })
    });
    of_threads.collect()
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let started = Instant::now();
    let done = work()?;
    Ok((done, started.elapsed()))
}

/// The median in seconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64)
}
