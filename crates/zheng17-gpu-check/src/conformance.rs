//! The conformance suite on the devices of this machine. It needs nothing from outside: what is compared with files that the machine
//! lacks is skipped, and counted.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use zheng17::{Error, Result};
use zheng17_conformance::{Case, EXPECTATIONS, Report, Subject, cases, run_suite};
use zheng17_core::AnyBackend;
use zheng17_cuda::Cuda;
use zheng17_cuda::measure::Profile;
use zheng17_cuda::ptx::MODULES;

use crate::output::{Output, say};

/// What `conformance` takes.
#[derive(clap::Args)]
pub(crate) struct ConformanceArguments {
    /// Only a few cases, which together launch every kernel: for tools under which everything is slow.
    #[arg(long)]
    quick: bool,
}

/// Cases that together launch every kernel.
const QUICK: [&str; 18] = [
    "count_summary::bits_of_the_fold",
    "edges::scanpy-1.12::fractions_are_accepted_with_a_note",
    "edges::scanpy-1.12::infinite_scores",
    "gram::products_of_all_pairs",
    "mistakes::clipping_is_not_left_out",
    "mistakes::columns_are_not_off_by_one",
    "moment_summary::logarithms_have_the_bits_of_the_fold",
    "moment_summary::scanpy_values_have_the_bits_of_the_fold",
    "moment_summary::shares_have_the_bits_of_the_fold",
    "multiply::products_that_round_to_zero_are_not_stored",
    "normalised::values_of_the_plan_rounded_once_in_sorted_rows",
    "project::scores_of_the_centred_scaled_matrix",
    "reduce::all_statistics_on_both_axes",
    "scaled::values_of_the_plan_rounded_once",
    "select::range_on_both_axes",
    "transform::casts_keep_or_round_to_nearest",
    "transform::scaling_rounds_once",
    "transform::what_becomes_zero_is_not_stored",
];

/// Runs the suite, or a part of it.
pub(crate) fn run(arguments: &ConformanceArguments, output: &Output) -> Result<bool> {
    if arguments.quick {
        return run_quick(output);
    }
    let on_all = run_on(output, "all devices", Cuda::default(), &cases())?;
    Ok(run_on_two(output, &cases())? && on_all)
}

/// Runs cases on one device as if it were two.
fn run_on_two(output: &Output, cases: &[Case]) -> Result<bool> {
    run_on(output, "device 0 as two", Cuda::on_devices(vec![0, 0]), cases)
}

/// Runs cases; whether none failed and one passed.
fn run_on(output: &Output, devices: &str, backend: Cuda, cases: &[Case]) -> Result<bool> {
    let report = run_suite(cases, &[Subject::new(AnyBackend::new(backend))], EXPECTATIONS);
    tell(output, devices, &report, report.is_good(), &[])
}

fn tell(output: &Output, devices: &str, report: &Report, is_good: bool, not_launched: &[String]) -> Result<bool> {
    let count = |word: &str| report.entries.iter().filter(|entry| entry.verdict.word() == word).count();
    let failures: Vec<String> = report
        .entries
        .iter()
        .filter(|entry| entry.verdict.word() == "failed")
        .map(|entry| format!("{}: {}", entry.case, entry.verdict.detail()))
        .collect();
    for failure in &failures {
        say(&format!("failed: {failure}"));
    }
    let [passed, failed, skipped, unsupported] = ["passed", "failed", "skipped", "unsupported"].map(count);
    say(&format!(
        "conformance on {devices}: {passed} passed, {failed} failed, {skipped} skipped, {unsupported} unsupported"
    ));
    output.record(json!({
        "what": "conformance",
        "on": devices,
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "unsupported": unsupported,
        "failures": failures,
        "not_launched": not_launched,
        "good": is_good,
    }))?;
    Ok(is_good)
}

/// Runs the few cases, and sees to it that no kernel was left out.
fn run_quick(output: &Output) -> Result<bool> {
    let few: Vec<Case> = cases().into_iter().filter(|case| QUICK.contains(&case.name.as_str())).collect();
    if few.len() != QUICK.len() {
        return Err(Error::internal("a case of the quick suite has another name now"));
    }
    let profile = Arc::new(Profile::default());
    let subject = Subject::new(AnyBackend::new(Cuda::with_profile(Arc::clone(&profile))));
    let report = run_suite(&few, &[subject], EXPECTATIONS);
    let launched: BTreeSet<String> = profile.take().into_iter().map(|kernel| kernel.kernel).collect();
    let not_launched: Vec<String> = shipped().filter(|kernel| !launched.contains(*kernel)).map(str::to_owned).collect();
    say(&format!("{} kernels were launched", launched.len()));
    if !not_launched.is_empty() {
        say(&format!("no case of the quick suite launches {}", not_launched.join(", ")));
    }
    let is_good = report.is_good() && not_launched.is_empty();
    tell(output, "all devices", &report, is_good, &not_launched)?;
    Ok(run_on_two(output, &few)? && is_good)
}

/// The kernels of the backend.
pub(crate) fn shipped() -> impl Iterator<Item = &'static str> {
    let entries = MODULES.iter().flat_map(|module| module.text.split(".entry ").skip(1));
    entries.filter_map(|entry| entry.split('(').next())
}
