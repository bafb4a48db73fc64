//! The suite as a test program, for the repository of anybody who writes a backend.

use std::process::ExitCode;

use clap::Parser as _;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::{EXPECTATIONS, ReportArguments, Subject, Verdict, cases, report_program, run_case};

/// The test program when it is asked for a report: `cargo test --test conformance -- --report`.
#[derive(clap::Parser)]
struct Report {
    /// Runs the suite as one, and prints a report.
    #[arg(long)]
    report: bool,
    #[command(flatten)]
    arguments: ReportArguments,
}

/// Runs every case on every backend, as tests that can be named and filtered; for the `main` of a test with `harness = false`.
///
/// What a backend says it lacks is shown as ignored, and so counted. No backend is a failure. With `--report` it prints a table, or
/// with `--json` too a text for programs, as [`report_program`] does.
pub fn test_program(subjects: Vec<Subject>) -> ExitCode {
    if std::env::args().any(|argument| argument == "--report") {
        return report_program(&subjects, &Report::parse().arguments);
    }
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for subject in subjects {
        for case in cases() {
            let (name, subject) = (format!("{}::{}", subject.name(), case.name), subject.clone());
            let unsupported = case.requires.iter().any(|needed| !needed.is_met_by(subject.capabilities()));
            let trial = Trial::test(name.clone(), move || match run_case(&case, &subject, EXPECTATIONS) {
                Verdict::Failed(message) => Err(Failed::from(message)),
                Verdict::Skipped(reason) => {
                    zheng17_test_support::skip(&name, &reason);
                    Ok(())
                }
                Verdict::Passed | Verdict::FailedAsExpected(_) | Verdict::Unsupported(_) => Ok(()),
            });
            trials.push(trial.with_ignored_flag(unsupported));
        }
    }
    if trials.is_empty() {
        return ExitCode::FAILURE;
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
