//! Every case on every backend of this build, as tests that can be named and filtered.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use zheng17_conformance::{EXPECTATIONS, Verdict, built_in, cases, run_case};

/// The backend that may renew the golden set.
const REFERENCE: &str = "serial";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let subjects = match built_in() {
        Ok(subjects) => subjects,
        Err(error) => panic!("{error}"),
    };
    let mut trials = Vec::new();
    for mut subject in subjects {
        subject.renews_golden_set = subject.name() == REFERENCE;
        for case in cases() {
            let (name, subject) = (format!("{}::{}", subject.name(), case.name), subject.clone());
            // What the backend says it lacks is shown as ignored, and so counted.
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
    assert!(!trials.is_empty(), "there is no case to run");
    libtest_mimic::run(&arguments, trials).exit_code()
}
