//! What every backend must do, as a list of cases that any backend can be run through.
//!
//! [`cases()`] is the list, [`run_suite`] runs it, [`Report`] says what came of it. A case knows the traits of core and the
//! recipe, never a backend; which backends there are is up to the caller, and [`built_in`] lists those of this build.

mod apart;
pub mod cases;
mod dense;
mod expectations;
mod golden;
mod inputs;
mod npz;
mod report;
mod report_program;
mod statement;
mod suite;
mod test_program;
mod tolerance;

use std::path::Path;

use zheng17_core::backend::Determinism;
use zheng17_core::backend::chunked::KernelBackend;
use zheng17_core::kernels::ScalarKernels;
use zheng17_core::{AnyBackend, Capabilities, ErrorKind, Result};
use zheng17_plugin_host::LoadedPlugin;

pub use cases::cases;
pub use expectations::EXPECTATIONS;
pub use report_program::{ReportArguments, Subjects, report_program};
pub use suite::{Case, Entry, Expectation, Outcome, Report, Requirement, Stop, Subject, Verdict, run_case, run_suite};
pub use test_program::test_program;
pub use tolerance::{Against, Quantity, Tolerance, compare, tolerance};

/// Every backend of this build that this machine can make, and core's backend of scalar chunk kernels. A backend for devices that
/// this machine lacks is recorded as skipped.
///
/// # Errors
/// Those of the registry and of making a backend.
pub fn built_in() -> Result<Vec<Subject>> {
    let registry = zheng17::registry()?;
    let mut backends = Vec::new();
    for entry in registry.entries() {
        match (entry.create)() {
            Ok(backend) => backends.push(backend),
            Err(error) if entry.capabilities.devices && error.kind() == ErrorKind::Unsupported => {
                zheng17_test_support::skip(&format!("all cases on {}", entry.capabilities.name), &error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    backends.push(AnyBackend::new(chunked()));
    Ok(backends.into_iter().map(Subject::new).collect())
}

/// A plugin, loaded from a shared library, and the functions that it has itself.
///
/// # Errors
/// Those of loading it.
pub fn plugin(path: &Path) -> Result<(Subject, Vec<&'static str>)> {
    let name = zheng17::load_watched_plugin(path)?.name;
    Ok((Subject::new(zheng17::registry()?.create(&name)?), LoadedPlugin::load(path)?.functions()))
}

/// Core's backend of chunk kernels, with the scalar ones.
fn chunked() -> KernelBackend<ScalarKernels> {
    KernelBackend::new(
        ScalarKernels,
        Capabilities {
            name: "chunked".to_owned(),
            description: "core's scalar chunk kernels, one thread".to_owned(),
            determinism: Determinism::SameBits,
            ordered_fold: true,
            out_of_core: false,
            threads: false,
            devices: false,
        },
    )
}
