//! Every case of the suite on several devices that share the cells, over the software driver: emulated, no GPUs, and never timed.

#[path = "software/driver.rs"]
mod driver;

use std::process::ExitCode;

use zheng17_conformance::{Subject, test_program};
use zheng17_core::AnyBackend;
use zheng17_cuda::Cuda;

fn main() -> ExitCode {
    let Some(driver) = driver::driver("conformance of cuda on three devices") else { return ExitCode::SUCCESS };
    driver.set_up(driver::Setup { n_devices: 3, ..driver::Setup::default() });
    test_program(vec![Subject::new(AnyBackend::new(Cuda::default()))])
}
