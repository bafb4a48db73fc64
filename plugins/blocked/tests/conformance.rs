//! The suite that every backend passes.

use zheng17_blocked::Blocked;
use zheng17_conformance::{Subject, test_program};
use zheng17_core::AnyBackend;

fn main() -> std::process::ExitCode {
    test_program(vec![Subject::new(AnyBackend::new(Blocked::default()))])
}
