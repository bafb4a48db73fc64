//! Every case on every backend of this build, as tests that can be named and filtered.

use std::process::ExitCode;

use zheng17_conformance::{built_in, test_program};

/// The backend that may renew the golden set.
const REFERENCE: &str = "serial";

fn main() -> ExitCode {
    let mut subjects = match built_in() {
        Ok(subjects) => subjects,
        Err(error) => panic!("{error}"),
    };
    for subject in &mut subjects {
        subject.renews_golden_set = subject.name() == REFERENCE;
    }
    test_program(subjects)
}
