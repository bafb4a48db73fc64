//! Runs the suite on the backends of this build, or on a plugin, and says what came of it, as a table or as JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use zheng17_conformance::{ReportArguments, Subjects, built_in, plugin, report_program};
use zheng17_core::{Error, Result};

/// Runs the conformance suite.
#[derive(Parser)]
struct Arguments {
    /// Only this backend.
    #[arg(long)]
    backend: Option<String>,
    /// Only this plugin, a shared library.
    #[arg(long, conflicts_with_all = ["backend", "written"])]
    plugin: Option<PathBuf>,
    #[command(flatten)]
    report: ReportArguments,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    report_program(|| subjects(&arguments), &arguments.report)
}

fn subjects(arguments: &Arguments) -> Result<Subjects> {
    if let Some(path) = &arguments.plugin {
        let (subject, written) = plugin(path)?;
        return Ok((vec![subject], Some(written.into_iter().map(str::to_owned).collect())));
    }
    let mut subjects = built_in()?;
    if let Some(wanted) = &arguments.backend {
        let names: Vec<String> = subjects.iter().map(|subject| subject.name().to_owned()).collect();
        subjects.retain(|subject| subject.name() == wanted);
        if subjects.is_empty() {
            return Err(Error::usage(format!("there is no backend \"{wanted}\"; there is {}", names.join(", "))));
        }
    }
    Ok((subjects, arguments.report.written.clone()))
}
