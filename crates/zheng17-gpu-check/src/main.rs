//! `zheng17-gpu-check`: what is checked and measured on a machine with a GPU, one step at a time. It needs a CUDA driver and nothing
//! else: no Rust, no files. `gpu-check.sh` runs all steps and makes the report.

mod cells;
mod conformance;
mod copies;
mod kernels;
mod machine;
mod output;
mod recipe;
mod report;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use zheng17::Result;

use crate::output::Output;

/// Checks and measures the CUDA backend of zheng17.
#[derive(Parser)]
#[command(name = "zheng17-gpu-check", version)]
struct Arguments {
    /// Add what was found to this file, as a JSON object a line.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Say which devices and what else this machine has.
    Machine,
    /// Run the conformance suite on all devices, and on the first one as if it were two.
    Conformance(conformance::ConformanceArguments),
    /// Measure how fast a device copies.
    Copies(copies::CopiesArguments),
    /// Measure each kernel of the recipe's steps, and compare the bytes that it must move with what copies reach.
    Kernels(kernels::KernelsArguments),
    /// Run the whole recipe with cells that stay on the device and with cells that pass by, and compare all bits with the CPU.
    Recipe(recipe::RecipeArguments),
    /// Write the generated cells as arrays of numpy, for other programs.
    Export(ExportArguments),
    /// Make a table and one JSON file of what the steps have added to theirs.
    Report(report::ReportArguments),
}

#[derive(clap::Args)]
struct ExportArguments {
    /// Where to write.
    folder: PathBuf,
    #[command(flatten)]
    size: cells::Size,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(error.kind().exit_code())
        }
    }
}

#[allow(clippy::print_stderr, reason = "a program for the terminal")]
fn complain(error: &str) {
    eprintln!("error: {error}");
}

/// Runs a step; whether what it found is good.
fn run(Arguments { json, step }: Arguments) -> Result<bool> {
    match step {
        Step::Machine => machine::run(&Output::new("machine", json)?),
        Step::Conformance(arguments) => conformance::run(&arguments, &Output::new("conformance", json)?),
        Step::Copies(arguments) => copies::run(&arguments, &Output::new("copies", json)?),
        Step::Kernels(arguments) => kernels::run(&arguments, &Output::new("kernels", json)?),
        Step::Recipe(arguments) => recipe::run(&arguments, &Output::new("recipe", json)?),
        Step::Export(ExportArguments { folder, size }) => {
            cells::RepeatedCells::generate(size)?.export(&folder).map(|()| true)
        }
        Step::Report(arguments) => report::run(&arguments),
    }
}
