//! The suite as a test program, for the repository of anybody who writes a backend.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser as _;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::{Case, EXPECTATIONS, ReportArguments, Subject, Verdict, cases, report_program, run_case};

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
/// What a backend says it lacks is shown as ignored, and so counted. No backend is a failure, and so is one on which no case could
/// be tried; but not a filter that leaves no case, because cargo gives the same one to all test programs. With `--report`, where
/// a filter that leaves nothing is a failure too, it prints a table, or with `--json` too a text for programs, as [`report_program`] does.
pub fn test_program(subjects: Vec<Subject>) -> ExitCode {
    if std::env::args().any(|argument| argument == "--report") {
        let arguments = Report::parse().arguments;
        let written = arguments.written.clone();
        return report_program(|| Ok((subjects, written)), &arguments);
    }
    let good = run(&Arguments::from_args(), subjects, &cases(), zheng17_test_support::skip);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[allow(clippy::print_stderr, reason = "a program that says why it failed")]
fn run(arguments: &Arguments, subjects: Vec<Subject>, cases: &[Case], skip: fn(&str, &str)) -> bool {
    // How many cases were tried on each backend.
    let mut tried: Vec<(String, Arc<AtomicUsize>)> = Vec::new();
    let mut trials = Vec::new();
    for subject in subjects {
        let n_tried = Arc::new(AtomicUsize::new(0));
        tried.push((subject.name().to_owned(), Arc::clone(&n_tried)));
        for case in cases {
            let (name, subject, case) = (format!("{}::{}", subject.name(), case.name), subject.clone(), case.clone());
            let unsupported = case.requires.iter().any(|needed| !needed.is_met_by(subject.capabilities()));
            let n_tried = Arc::clone(&n_tried);
            let trial = Trial::test(name.clone(), move || {
                let verdict = run_case(&case, &subject, EXPECTATIONS);
                if !matches!(verdict, Verdict::Skipped(_) | Verdict::Unsupported(_)) {
                    n_tried.fetch_add(1, Ordering::Relaxed);
                }
                match verdict {
                    Verdict::Failed(message) => Err(Failed::from(message)),
                    Verdict::Skipped(reason) => {
                        skip(&name, &reason);
                        Ok(())
                    }
                    Verdict::Passed | Verdict::FailedAsExpected(_) | Verdict::Unsupported(_) => Ok(()),
                }
            });
            trials.push(trial.with_ignored_flag(unsupported));
        }
    }
    let filtered = arguments.filter.is_some() || !arguments.skip.is_empty() || arguments.ignored || arguments.list;
    let mut good = !libtest_mimic::run(arguments, trials).has_failed();
    if tried.is_empty() {
        eprintln!("there is no backend, which is a failure");
        return false;
    }
    for (backend, _) in tried.iter().filter(|(_, n_tried)| !filtered && n_tried.load(Ordering::Relaxed) == 0) {
        eprintln!("no case was run on {backend}, which is a failure");
        good = false;
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Requirement, Stop, chunked};
    use zheng17_core::backend::chunked::KernelBackend;
    use zheng17_core::kernels::ScalarKernels;
    use zheng17_core::{AnyBackend, Capabilities, SparseBackend as _};

    fn is_good(options: &[&str], subjects: &[Subject], case: &Case) -> bool {
        let folder = tempfile::tempdir().expect("a folder");
        // What it prints is not the outcome of this test.
        let log = folder.path().join("log").display().to_string();
        let arguments = Arguments::from_iter(["program", "--logfile", &log].iter().chain(options));
        run(&arguments, subjects.to_vec(), std::slice::from_ref(case), |_, _| ())
    }

    #[test]
    fn nothing_run_is_a_failure() {
        let good = Subject::new(AnyBackend::new(chunked()));
        let lacking = Capabilities { ordered_fold: false, ..chunked().capabilities().clone() };
        let lacking = Subject::new(AnyBackend::new(KernelBackend::new(ScalarKernels, lacking)));
        let passes = Case::new("passes", |_| Ok(()));
        let fails = Case::new("fails", |_| Err(Stop::Failed("wrong".to_owned())));
        let skipped = Case::new("skipped", |_| Err(Stop::Skipped("nothing there".to_owned())));
        let demanding = passes.clone().requiring(Requirement::OrderedFold);
        let good = std::slice::from_ref(&good);
        assert!(is_good(&[], good, &passes));
        assert!(!is_good(&[], good, &fails));
        assert!(!is_good(&[], &[], &passes));
        assert!(!is_good(&[], good, &skipped));
        assert!(is_good(&[], good, &demanding));
        assert!(!is_good(&[], &[good[0].clone(), lacking], &demanding));
        assert!(is_good(&["none of that name"], good, &passes));
        assert!(!is_good(&["fails"], good, &fails));
    }
}
