//! The one door to everything that is done with this workspace besides building it: `cargo xtask --help`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod bench;
mod codegen;
mod command;
mod conformance;
mod gpu_check;
mod libhdf5;
mod mutations;
mod new_plugin;
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
    Conformance(conformance::ConformanceArguments),
    /// Make a plugin that compiles and passes the suite, to write yours in: plugins/NAME, or FOLDER/NAME outside of this workspace.
    NewPlugin(new_plugin::NewPluginArguments),
    /// Compile the kernels of the CUDA backend to the PTX that the repository holds; fetches the compiler.
    Codegen(codegen::CodegenArguments),
    /// Make a folder to carry to a machine with a GPU, where one command checks and measures the CUDA backend: target/gpu-check.
    GpuCheck(gpu_check::GpuCheckArguments),
    /// Put faults into the CUDA backend, one at a time, and see that its tests find each; the checkout is left as it is.
    Mutations(mutations::MutationsArguments),
    /// Measure speed and memory beside scanpy; print tables.
    ///
    /// Inputs are simulated into target/bench and kept; all of them and the largest outputs take some 20 GB. The machine should
    /// have nothing else to do.
    Bench(bench::BenchArguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test { full } => test::run(full),
        Task::Conformance(arguments) => conformance::run(&arguments),
        Task::NewPlugin(arguments) => new_plugin::run(&arguments),
        Task::Codegen(arguments) => codegen::run_task(&arguments),
        Task::GpuCheck(arguments) => gpu_check::run_task(&arguments),
        Task::Mutations(arguments) => mutations::run_task(&arguments),
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
