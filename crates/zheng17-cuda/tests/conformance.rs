//! Every case of the suite on the backend, over the software driver: emulated, not a GPU, and never timed.

#[path = "software/driver.rs"]
mod driver;

use std::process::ExitCode;

use zheng17_conformance::{Subject, test_program};
use zheng17_core::AnyBackend;
use zheng17_cuda::Cuda;

fn main() -> ExitCode {
    let Some(driver) = driver::driver("conformance of cuda") else { return ExitCode::SUCCESS };
    driver.set_up(driver::Setup::default());
    test_program(vec![Subject::new(AnyBackend::new(Cuda::default()))])
}
