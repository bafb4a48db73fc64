//! The one door to everything that is done with this workspace besides building it: `cargo xtask --help`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod bench;
mod command;
mod libhdf5;
mod python;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the zheng17 workspace.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check format, lints and docs, and run every test that this machine can run; list what was skipped.
    Test {
        /// First install what some tests need (a Python environment with scanpy, libhdf5), and fail if a part can't run.
        #[arg(long)]
        full: bool,
    },
    /// Run the conformance suite alone.
    Conformance {
        /// Only this backend.
        #[arg(long)]
        backend: Option<String>,
        /// Only this plugin, a shared library.
        #[arg(long, conflicts_with = "backend")]
        plugin: Option<PathBuf>,
        /// Print the report as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Measure speed and memory beside scanpy; print tables.
    ///
    /// Inputs are simulated into target/bench and kept; all of them and the largest outputs take some 20 GB. The machine should
    /// have nothing else to do.
    Bench(bench::BenchArguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test { full } => test::run(full),
        Task::Conformance { backend, plugin, json } => test::conformance(backend.as_deref(), plugin.as_deref(), json),
        Task::Bench(arguments) => bench::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
