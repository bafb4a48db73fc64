//! The suite as a program that reports, in a table or in JSON, and says of a backend that is being written what to write next.

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::process::ExitCode;

use serde_json::json;

use crate::{EXPECTATIONS, Subject, cases, run_suite};

/// The chunk functions in the order in which to write them: as plugins call them, as `ChunkKernels` does, and why.
const FUNCTIONS: [(&str, &str, &str); 4] = [
    ("fold_counts", "fold_counts", "it goes over all entries, and most of the time goes there"),
    ("select", "select_into", "it goes over all entries"),
    ("scale", "affine_into", "it writes the result, cells × selected genes"),
    ("fold_moments", "fold_moments", "it goes over the selected genes"),
];

/// What to run, and how to say what came of it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ReportArguments {
    /// Only cases whose name contains this.
    #[arg(long)]
    pub case: Option<String>,
    /// The report as JSON.
    #[arg(long)]
    pub json: bool,
    /// The chunk functions that the backend has itself, such as fold_counts; what it leaves out is listed.
    #[arg(long, value_delimiter = ',', value_name = "FUNCTIONS")]
    pub written: Option<Vec<String>>,
}

/// Runs the suite and prints what came of it. Success is at least one case run to its end on each backend, and none failed.
pub fn report_program(subjects: &[Subject], arguments: &ReportArguments) -> ExitCode {
    let mut cases = cases();
    if let Some(wanted) = &arguments.case {
        cases.retain(|case| case.name.contains(wanted));
    }
    let report = run_suite(&cases, subjects, EXPECTATIONS);
    let not_written: Option<Vec<_>> = arguments.written.as_ref().map(|written| {
        let is_written = |name: &str| written.iter().any(|written| written == name);
        FUNCTIONS.into_iter().filter(|(in_c, in_rust, _)| !is_written(in_c) && !is_written(in_rust)).collect()
    });
    if arguments.json {
        let mut value = report.to_json();
        if let Some(not_written) = not_written {
            value["not_written"] = json!(not_written.iter().map(|(name, ..)| name).collect::<Vec<_>>());
        }
        println!("{value:#}");
    } else {
        print!("{}", report.to_table());
        if let Some([(first, _, why), ..]) = not_written.as_deref() {
            let names: Vec<String> =
                not_written.iter().flatten().map(|&(in_c, in_rust, _)| both(in_c, in_rust)).collect();
            println!("not yet written, so done without the backend: {}\nwrite {first} next: {why}", names.join(", "));
        }
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn both(in_c: &str, in_rust: &str) -> String {
    if in_c == in_rust { in_c.to_owned() } else { format!("{in_c} (in Rust {in_rust})") }
}
