//! The suite finds faults: backends that are wrong on purpose fail the cases that say so.

mod backend;
mod kernels;

use backend::{Mistake, Mistaken};
use kernels::{Fault, Faulty};
use zheng17_conformance::{Case, Expectation, Report, Stop, Subject, Verdict, cases, run_suite};
use zheng17_core::backend::Determinism;
use zheng17_core::backend::chunked::KernelBackend;
use zheng17_core::{AnyBackend, Capabilities};

fn capabilities(ordered_fold: bool) -> Capabilities {
    Capabilities {
        name: "faulty".to_owned(),
        description: "wrong on purpose".to_owned(),
        determinism: Determinism::SameBits,
        ordered_fold,
        out_of_core: false,
        threads: false,
        devices: false,
    }
}

fn subject(fault: Fault, ordered_fold: bool) -> Subject {
    Subject::new(AnyBackend::new(KernelBackend::new(Faulty::new(fault), capabilities(ordered_fold))))
}

fn mistaken(mistake: Mistake) -> Subject {
    Subject::new(AnyBackend::new(Mistaken::new(mistake, capabilities(true))))
}

/// The cases that need no files.
fn own_cases() -> Vec<Case> {
    cases().into_iter().filter(|case| !case.name.starts_with("real_files")).collect()
}

fn failed(report: &Report) -> Vec<&str> {
    let failed = report.entries.iter().filter(|entry| matches!(entry.verdict, Verdict::Failed(_)));
    failed.map(|entry| entry.case.as_str()).collect()
}

/// Expects that a case, alone, finds what is wrong.
fn expect_found(faulty: &Subject, found_by: &str) {
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.name == found_by).collect();
    let report = run_suite(&cases, std::slice::from_ref(faulty), &[]);
    assert_eq!(failed(&report), [found_by]);
    assert!(!report.is_good());
    assert!(report.to_table().contains(found_by));
}

#[test]
fn each_fault_of_kernels_is_found() {
    for (fault, found_by) in [
        (Fault::ColumnOffByOne, "mistakes::columns_are_not_off_by_one"),
        (Fault::DropsLastChunk, "mistakes::the_last_chunk_is_not_dropped"),
        (Fault::TakesRowsForSorted, "mistakes::unsorted_rows_count_as_if_sorted"),
        (Fault::Float32Sums, "mistakes::sums_are_not_in_32_bits"),
        (Fault::NanOnConstantGenes, "mistakes::constant_genes_are_zero_not_nan"),
        (Fault::StaleCache, "mistakes::nothing_is_kept_from_an_earlier_call"),
        (Fault::LosesAGene, "mistakes::the_last_genes_and_cells_of_any_width_count"),
        (Fault::LosesGenesLeftOver, "mistakes::the_last_genes_and_cells_of_any_width_count"),
        (Fault::CutsLargeChunks, "mistakes::large_chunks_are_not_cut_short"),
        (Fault::FactorsOfTheFirstChunk, "mistakes::cells_of_later_chunks_have_their_own_factors"),
        (Fault::LosesAnEntry, "count_summary::bits_of_the_fold"),
        (Fault::SquareOffByOne, "moment_summary::shares_have_the_bits_of_the_fold"),
        (Fault::ScaledOffByOneUlp, "scaled::values_of_the_plan_rounded_once"),
        (Fault::Panics, "count_summary::bits_of_the_fold"),
    ] {
        expect_found(&subject(fault, true), found_by);
    }
}

#[test]
fn each_mistake_of_a_backend_is_found() {
    for (mistake, found_by) in [
        (Mistake::TiesTheOtherWay, "mistakes::ties_are_broken_by_gene_order"),
        (Mistake::ReducesWithDdof0, "mistakes::variances_have_ddof_1"),
        (Mistake::ScalesWithDdof0, "mistakes::variances_have_ddof_1"),
        (Mistake::UpperMedian, "mistakes::the_median_of_an_even_number_is_the_mean_of_the_middle_two"),
        (Mistake::CounterWithoutSynchronisation, "mistakes::threads_lose_no_counts"),
        (Mistake::SharedScratch, "mistakes::calls_at_the_same_time_do_not_mix"),
        (Mistake::LeavesOutLogarithms, "mistakes::logarithms_are_not_left_out"),
        (Mistake::LeavesOutClipping, "mistakes::clipping_is_not_left_out"),
        (Mistake::CountsExcludedGenes, "mistakes::excluded_genes_do_not_count"),
        (Mistake::ScoresNotCentred, "mistakes::scores_are_centred"),
        (Mistake::CannotBeCancelled, "mistakes::a_cancelled_pass_stops"),
        (Mistake::SwallowsErrors, "mistakes::errors_of_the_receiver_are_returned"),
        (Mistake::ProgressJumps, "mistakes::progress_never_jumps"),
        (Mistake::PanicsWithoutGenes, "mistakes::nothing_selected_is_no_trouble"),
        (Mistake::SelectsAllCells, "select::mask_on_both_axes"),
        (Mistake::PartsTheOtherWay, "concat::parts_in_order_with_every_value_exact"),
    ] {
        expect_found(&mistaken(mistake), found_by);
    }
}

#[test]
fn without_a_fault_every_case_passes() {
    let report = run_suite(&own_cases(), &[subject(Fault::None, true), mistaken(Mistake::None)], &[]);
    assert!(report.is_good(), "{}", report.to_table());
}

#[test]
fn what_a_backend_says_it_lacks_is_counted_not_tried() {
    let report = run_suite(&own_cases(), &[subject(Fault::None, false)], &[]);
    assert_eq!(failed(&report), Vec::<&str>::new());
    let unsupported: Vec<&str> = report
        .entries
        .iter()
        .filter(|entry| matches!(&entry.verdict, Verdict::Unsupported(lacking) if lacking == "ordered fold"))
        .map(|entry| entry.case.as_str())
        .collect();
    assert!(!unsupported.is_empty() && unsupported.iter().all(|name| name.contains("scanpy-1.4")), "{unsupported:?}");
    assert!(report.is_good());
    assert_eq!(report.to_json()["backends"]["faulty"]["unsupported"], unsupported.len());
}

#[test]
fn expected_failures_must_fail() {
    let passes = Case::new("passes", |_| Ok(()));
    let fails = Case::new("fails", |_| Err(Stop::Failed("wrong".to_owned())));
    let expect = |case| [Expectation { backend: "faulty", case, reason: "it is known" }];
    let subjects = [subject(Fault::None, true)];
    let run = |case: &Case, expectations: &[Expectation]| {
        run_suite(std::slice::from_ref(case), &subjects, expectations).entries.remove(0).verdict
    };
    assert_eq!(run(&fails, &expect("fails")), Verdict::FailedAsExpected("it is known".to_owned()));
    assert!(matches!(run(&passes, &expect("passes")), Verdict::Failed(_)));
    assert_eq!(run(&fails, &[]), Verdict::Failed("wrong".to_owned()));
    assert_eq!(run(&passes, &expect("fails")), Verdict::Passed);
}

#[test]
fn no_case_is_no_success() {
    assert!(!run_suite(&[], &[subject(Fault::None, true)], &[]).is_good());
    assert!(!run_suite(&own_cases(), &[], &[]).is_good());
    let skipped = Case::new("skipped", |_| Err(Stop::Skipped("nothing there".to_owned())));
    assert!(!run_suite(&[skipped], &[subject(Fault::None, true)], &[]).is_good());
}

#[test]
fn names_of_cases_are_different() {
    let mut names: Vec<String> = cases().into_iter().map(|case| case.name).collect();
    names.sort_unstable();
    let duplicate = names.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(duplicate, None);
}
