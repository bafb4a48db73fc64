//! How fast a file of counts is read by ranges of cells: nanoseconds of processor time and of the clock for each entry.
//!
//! `cargo run --release -p zheng17-io --example read_speed -- FILE [THREADS] [ROWS] [PASSES] [checked]`

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::num::ParseIntError;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use zheng17_core::matrix::ValueKind;
use zheng17_core::source::CheckedSource;
use zheng17_core::{ChunkSource, CsrBuffer, Error, Result};
use zheng17_io::{OpenOptions, open};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = arguments.first() else {
        return Err(Error::usage("read_speed FILE [THREADS] [ROWS] [PASSES] [checked]"));
    };
    let number = |at: usize, default: usize| {
        let wrong = |error: ParseIntError| Error::usage("not a number").with_source(error);
        arguments.get(at).map_or(Ok(default), |text| text.parse().map_err(wrong))
    };
    let (threads, rows, passes) = (number(1, 1)?, number(2, 512)?.max(1), number(3, 5)?);
    let mut source = open(Path::new(path), &OpenOptions::default())?.source;
    if arguments.get(4).is_some() {
        source = Arc::new(CheckedSource::new(source)?);
    }
    for _ in 0..passes {
        let (cpu, start) = (cpu_seconds()?, Instant::now());
        let n_entries = read_all(source.as_ref(), threads, rows)?;
        let wall = start.elapsed().as_secs_f64();
        let cpu = cpu_seconds()? - cpu;
        let each = |seconds: f64| seconds * 1e9 / n_entries as f64;
        println!(
            "{n_entries} entries, {threads} threads: {:.2} ns of processor, {:.2} ns of clock each, {wall:.2} s",
            each(cpu),
            each(wall)
        );
    }
    Ok(())
}

/// Reads everything once, each thread taking the next range.
fn read_all(source: &dyn ChunkSource, threads: usize, rows: usize) -> Result<u64> {
    let n_cells = source.shape().n_cells;
    let (next, n_entries) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || {
        let mut buffer = CsrBuffer::new(0, ValueKind::F32);
        loop {
            let start = next.fetch_add(rows, Ordering::Relaxed);
            if start >= n_cells {
                return Ok(());
            }
            source.read_cells(start..(start + rows).min(n_cells), &mut buffer)?;
            n_entries.fetch_add(buffer.indices.len() as u64, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut result = work();
        for other in others {
            result = result.and(other.join().unwrap_or_else(|_| Err(Error::internal("a thread panicked"))));
        }
        result
    })?;
    Ok(n_entries.into_inner())
}

/// Processor time of this process so far; Linux counts it in hundredths of a second.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}
