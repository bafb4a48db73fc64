//! Runs the suite on the backends of this build and says what came of it, as a table or as JSON.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints")]

use std::process::ExitCode;

use clap::Parser;
use zheng17_conformance::{EXPECTATIONS, Subject, built_in, cases, run_suite};

/// Runs the conformance suite.
#[derive(Parser)]
struct Arguments {
    /// Only this backend.
    #[arg(long)]
    backend: Option<String>,
    /// Only this plugin, a shared library.
    #[arg(long, conflicts_with = "backend")]
    plugin: Option<std::path::PathBuf>,
    /// Only cases whose name contains this.
    #[arg(long)]
    case: Option<String>,
    /// The report as JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let subjects = match &arguments.plugin {
        Some(path) => zheng17::load_plugin(path)
            .and_then(|plugin| zheng17::registry()?.create(&plugin.name))
            .map(|backend| vec![Subject::new(backend)]),
        None => built_in(),
    };
    let mut subjects = match subjects {
        Ok(subjects) => subjects,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(error.kind().exit_code());
        }
    };
    if let Some(wanted) = &arguments.backend {
        let names: Vec<String> = subjects.iter().map(|subject| subject.name().to_owned()).collect();
        subjects.retain(|subject| subject.name() == wanted);
        if subjects.is_empty() {
            eprintln!("there is no backend \"{wanted}\"; there is {}", names.join(", "));
            return ExitCode::from(2);
        }
    }
    let mut cases = cases();
    if let Some(wanted) = &arguments.case {
        cases.retain(|case| case.name.contains(wanted));
    }
    let report = run_suite(&cases, &subjects, EXPECTATIONS);
    if arguments.json {
        println!("{:#}", report.to_json());
    } else {
        print!("{}", report.to_table());
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
