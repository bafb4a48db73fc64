//! The first pass, totals and exact moments of all cells, by this backend and by rayon, side by side; prints JSON.
//!
//! `cargo bench -p zheng17-blocked` measures on 20,000 simulated cells of 60,000 genes, and of 28,000. The backends take turns, with
//! the same threads, and their summaries must be the same. What it costs to open the matrix and to select 1,000 genes is measured
//! too, as this backend moves work from one to the other. Without `--bench`, as a test, it is run small.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use zheng17_blocked::Blocked;
use zheng17_core::backend::chunked::read_all;
use zheng17_core::exact::CountSummary;
use zheng17_core::source::MemorySource;
use zheng17_core::{ChunkSource, Context, Error, Result, Selection, SparseBackend};
use zheng17_rayon::Rayon;
use zheng17_simulate::{Parameters, Simulation};

fn main() -> Result<()> {
    let measuring = std::env::args().any(|argument| argument == "--bench");
    let (n_cells, rounds) = if measuring { (20_000, 11) } else { (300, 1) };
    let mut reports = Vec::new();
    for n_genes in [60_000, 28_000] {
        let simulation = Simulation::new(Parameters { n_cells, n_genes, seed: 0 })?;
        let counts = read_all(&simulation, &Context::default())?;
        let n_entries = counts.indices.len();
        let source: Arc<dyn ChunkSource> = Arc::new(MemorySource::new(counts, "counts in memory")?);
        for threads in [1, 2] {
            let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
            let (mut blocked, mut rayon) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let (times, summary) = measure(&Blocked::default(), &source, threads)?;
                blocked.push(times);
                let (times, expected) = measure(&Rayon::default(), &source, threads)?;
                rayon.push(times);
                if summary != expected {
                    return Err(Error::internal("the summaries differ"));
                }
            }
            let times = ["open", "summary", "select"].into_iter().enumerate().map(|(at, what)| {
                let of = |times: &[[f64; 3]]| median(times.iter().map(|times| times[at]).collect());
                let ratio =
                    median(blocked.iter().zip(&rayon).map(|(blocked, rayon)| rayon[at] / blocked[at]).collect());
                let ns = |seconds: f64| seconds * 1e9 * threads.get() as f64 / n_entries as f64;
                json!({
                    "what": what,
                    "blocked_seconds": of(&blocked),
                    "rayon_seconds": of(&rayon),
                    "blocked_ns_an_entry_and_thread": ns(of(&blocked)),
                    "rayon_ns_an_entry_and_thread": ns(of(&rayon)),
                    "faster": ratio,
                })
            });
            reports.push(json!({
                "n_cells": n_cells, "n_genes": n_genes, "n_entries": n_entries, "threads": threads, "rounds": rounds,
                "times": times.collect::<Vec<_>>(),
            }));
        }
    }
    println!("{:#}", Value::from(reports));
    Ok(())
}

/// How long it takes to open the matrix, to sum all cells, and to select 1,000 genes.
fn measure<B: SparseBackend>(
    backend: &B,
    source: &Arc<dyn ChunkSource>,
    threads: NonZeroUsize,
) -> Result<([f64; 3], CountSummary)> {
    let ctx = Context { threads, ..Context::default() };
    let started = Instant::now();
    let matrix = backend.open(Arc::clone(source), &ctx)?;
    let opened = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let summary = backend.count_summary(&matrix, None, &ctx)?;
    let summed = started.elapsed().as_secs_f64();
    // The genes with the most counts are about those that the recipe selects: they have many entries.
    let mut genes: Vec<usize> = (0..summary.n_genes()).collect();
    genes.sort_by_key(|&gene| std::cmp::Reverse(summary.genes()[gene].total));
    genes.truncate(1000);
    genes.sort_unstable();
    let started = Instant::now();
    drop(backend.select(&matrix, &Selection::All, &Selection::Indices(genes))?);
    let selected = started.elapsed().as_secs_f64();
    Ok(([opened, summed, selected], summary))
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
