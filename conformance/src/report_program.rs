//! The suite as a program that reports, in a table or in JSON, and says of a backend that is being written what to write next.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use zheng17_core::Result;

use crate::apart::{self, Told};
use crate::{Subject, cases};

/// The chunk functions in the order in which to write them: as plugins call them, as `ChunkKernels` does, and why.
const FUNCTIONS: [(&str, &str, &str); 4] = [
    ("fold_counts", "fold_counts", "it goes over all entries, and most of the time goes there"),
    ("select", "select_into", "it goes over all entries"),
    ("scale", "affine_into", "it writes the result, cells × selected genes"),
    ("fold_moments", "fold_moments", "it goes over the selected genes"),
];

/// What to run, and how to say what came of it.
#[derive(Debug, Clone, clap::Args)]
pub struct ReportArguments {
    /// Only cases whose name contains this.
    #[arg(long)]
    pub case: Option<String>,
    /// The report as JSON.
    #[arg(long)]
    pub json: bool,
    /// How many seconds a case may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    pub case_limit: u64,
    /// The chunk functions that the backend has itself, such as fold_counts; what it leaves out is listed.
    #[arg(long, value_delimiter = ',', value_name = "FUNCTIONS")]
    pub written: Option<Vec<String>>,
}

/// What to run the suite on: backends, and which chunk functions they have themselves, if that is to be reported.
pub type Subjects = (Vec<Subject>, Option<Vec<String>>);

/// Runs the suite in a process of its own, and prints what came of it. Success is at least one case run to its end on each backend,
/// none failed, and a process that ended when it was done.
///
/// The process is this program with the same arguments, so whoever calls this does so in each of its runs with them. Only that process
/// asks for the subjects.
pub fn report_program(subjects: impl FnOnce() -> Result<Subjects>, arguments: &ReportArguments) -> ExitCode {
    report(subjects, arguments).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(error.kind().exit_code())
    })
}

fn report(subjects: impl FnOnce() -> Result<Subjects>, arguments: &ReportArguments) -> Result<ExitCode> {
    let mut cases = cases();
    if let Some(wanted) = &arguments.case {
        cases.retain(|case| case.name.contains(wanted));
        if cases.is_empty() {
            let text = format!("no case was run, which is a failure: no name contains \"{wanted}\"");
            if arguments.json {
                println!("{:#}", json!({ "good": false, "error": text, "backends": {}, "cases": [] }));
            } else {
                println!("{text}");
            }
            return Ok(ExitCode::FAILURE);
        }
    }
    if let Some(told) = std::env::var_os(apart::TOLD) {
        let (subjects, written) = subjects()?;
        apart::tell(&told, &cases, &subjects, written.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let told = match apart::listen(Duration::from_secs(arguments.case_limit))? {
        Ok(told) => told,
        Err(code) => return Ok(code),
    };
    print(&told, arguments.json);
    Ok(if told.report.is_good() && told.stopped.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(told: &Told, as_json: bool) {
    let not_written: Option<Vec<_>> = told.written.as_ref().map(|written| {
        let is_written = |name: &str| written.iter().any(|written| written == name);
        FUNCTIONS.into_iter().filter(|(in_c, in_rust, _)| !is_written(in_c) && !is_written(in_rust)).collect()
    });
    if as_json {
        let mut value = told.report.to_json();
        if let Some(not_written) = not_written {
            value["not_written"] = json!(not_written.iter().map(|(name, ..)| name).collect::<Vec<_>>());
        }
        if let Some(stopped) = &told.stopped {
            value["good"] = json!(false);
            value["stopped"] = json!(stopped);
        }
        println!("{value:#}");
        return;
    }
    print!("{}", told.report.to_table());
    if let Some(stopped) = &told.stopped {
        println!("{stopped}");
    } else if let Some([(first, _, why), ..]) = not_written.as_deref() {
        let names: Vec<String> = not_written.iter().flatten().map(|&(in_c, in_rust, _)| both(in_c, in_rust)).collect();
        println!("not yet written, so done without the backend: {}\nwrite {first} next: {why}", names.join(", "));
    }
}

fn both(in_c: &str, in_rust: &str) -> String {
    if in_c == in_rust { in_c.to_owned() } else { format!("{in_c} (in Rust {in_rust})") }
}
