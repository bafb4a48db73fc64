//! The suite finds faults: backends that are wrong on purpose fail the cases that say so.

use std::sync::{Mutex, PoisonError};

use zheng17_conformance::{Case, Expectation, Report, Stop, Subject, Verdict, cases, run_suite};
use zheng17_core::backend::Determinism;
use zheng17_core::backend::chunked::KernelBackend;
use zheng17_core::exact::{CountSummary, GeneMoments, MomentPlan, MomentSummary};
use zheng17_core::kernels::{OutputPlan, ScalarKernels};
use zheng17_core::matrix::{CsrBuffer, CsrView, GeneMap};
use zheng17_core::{AnyBackend, Capabilities, ChunkKernels, Result};

/// What is wrong with a backend.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The last cell of a chunk is counted with one entry less.
    LosesAnEntry,
    /// One square is off by one unit of 2^−104.
    SquareOffByOne,
    /// Scaled values are off by one unit in the last place of `f32`.
    ScaledOffByOneUlp,
    /// The last selected gene is forgotten.
    LosesAGene,
    /// Genes are selected one column too far to the right.
    ColumnOffByOne,
    /// The last of several chunks has no moments.
    DropsLastChunk,
    /// Rows are taken for sorted.
    TakesRowsForSorted,
    /// Totals of cells are summed in 32 bits.
    Float32Sums,
    /// Means of the first plan are used for all that follow.
    StaleCache,
    /// Genes without deviation are divided by it.
    NanOnConstantGenes,
    Panics,
}

/// Kernels with a fault, and means that they should not keep.
struct Faulty(Fault, Mutex<Option<Vec<f64>>>);

impl ChunkKernels for Faulty {
    fn fold_counts(&self, into: &mut CountSummary, chunk: CsrView<'_>) -> Result<()> {
        match self.0 {
            Fault::Panics => panic!("a kernel that panics"),
            Fault::LosesAnEntry if chunk.n_entries() > 0 => {
                let indptr: Vec<u64> =
                    chunk.indptr().iter().map(|&p| p.min(chunk.indptr()[0] + chunk.n_entries() as u64 - 1)).collect();
                let (indices, values) = (chunk.indices(), chunk.values());
                let kept = 0..chunk.n_entries() - 1;
                into.fold(CsrView::trusted(
                    chunk.first_cell(),
                    chunk.n_genes(),
                    &indptr,
                    &indices[kept.clone()],
                    values.slice(kept),
                ))
            }
            Fault::Float32Sums => {
                let mut sums = CountSummary::new(into.n_genes(), into.shared_exclusions());
                sums.fold(chunk)?;
                let total = |row: usize| {
                    let (genes, values) = (chunk.row_indices(row), chunk.row_values(row));
                    let counts = |gene: u32| into.excluded().is_none_or(|flags| !flags[gene as usize]);
                    let counted = genes.iter().enumerate().filter(|(_, gene)| counts(**gene));
                    f64::from(counted.map(|(at, _)| values.get(at) as f32).sum::<f32>())
                };
                let totals = (0..chunk.n_cells()).map(total).collect();
                into.add(chunk.first_cell(), totals, sums.genes(), sums.facts())
            }
            _ => ScalarKernels.fold_counts(into, chunk),
        }
    }

    fn fold_moments(&self, into: &mut MomentSummary, chunk: CsrView<'_>, plan: &MomentPlan) -> Result<()> {
        if self.0 == Fault::SquareOffByOne {
            let mut one = vec![GeneMoments::default(); chunk.n_genes()];
            if let Some(first) = one.first_mut() {
                first.sum_of_squares = 1;
            }
            into.add(0, &one)?;
        }
        let is_last = chunk.first_cell() + chunk.n_cells() == plan.cell_scale.len();
        if self.0 == Fault::DropsLastChunk && is_last && chunk.first_cell() > 0 {
            return into.add(chunk.n_cells() as u64, &vec![GeneMoments::default(); chunk.n_genes()]);
        }
        ScalarKernels.fold_moments(into, chunk, plan)
    }

    fn select_into(&self, chunk: CsrView<'_>, genes: &GeneMap, out: &mut CsrBuffer) -> Result<()> {
        if self.0 == Fault::LosesAGene && genes.n_selected() > 1 {
            let selected: Vec<usize> =
                (0..chunk.n_genes()).filter(|&gene| genes.new_index()[gene] != GeneMap::NOT_SELECTED).collect();
            let fewer = GeneMap::new(chunk.n_genes(), &selected[..selected.len() - 1]);
            return ScalarKernels.select_into(chunk, &fewer, out);
        }
        if self.0 == Fault::ColumnOffByOne {
            let mut shifted = genes.new_index().to_vec();
            let by = usize::from(!shifted.is_empty());
            shifted.rotate_right(by);
            return ScalarKernels.select_into(chunk, &GeneMap::from_new_index(shifted), out);
        }
        if self.0 == Fault::TakesRowsForSorted {
            for row in 0..chunk.n_cells() {
                let (row_genes, values) = (chunk.row_indices(row), chunk.row_values(row));
                for (gene, &new) in
                    genes.new_index().iter().enumerate().filter(|(_, new)| **new != GeneMap::NOT_SELECTED)
                {
                    if let Ok(at) = row_genes.binary_search(&(gene as u32)) {
                        out.indices.push(new);
                        out.values.push(values.get(at));
                    }
                }
                out.end_row();
            }
            return Ok(());
        }
        ScalarKernels.select_into(chunk, genes, out)
    }

    fn affine_into(&self, chunk: CsrView<'_>, plan: &OutputPlan, out: &mut [f32]) -> Result<()> {
        if self.0 == Fault::StaleCache {
            let mut cache = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            let mean = cache.get_or_insert_with(|| plan.mean.clone()).clone();
            let mean = if mean.len() == plan.mean.len() { mean } else { plan.mean.clone() };
            return ScalarKernels.affine_into(chunk, &OutputPlan { mean, ..plan.clone() }, out);
        }
        ScalarKernels.affine_into(chunk, plan, out)?;
        if self.0 == Fault::NanOnConstantGenes {
            for row in out.chunks_exact_mut(chunk.n_genes().max(1)) {
                for (value, deviation) in row.iter_mut().zip(&plan.inverse_deviation) {
                    *value = if *deviation == 0.0 { f32::NAN } else { *value };
                }
            }
        }
        if let (Fault::ScaledOffByOneUlp, Some(first)) = (self.0, out.first_mut()) {
            *first = first.next_up();
        }
        Ok(())
    }
}

fn subject(fault: Fault, ordered_fold: bool) -> Subject {
    let capabilities = Capabilities {
        name: "faulty".to_owned(),
        description: "wrong on purpose".to_owned(),
        determinism: Determinism::SameBits,
        ordered_fold,
        out_of_core: false,
        threads: false,
        devices: false,
    };
    Subject::new(AnyBackend::new(KernelBackend::new(Faulty(fault, Mutex::default()), capabilities)))
}

/// The cases that need no files.
fn own_cases() -> Vec<Case> {
    cases().into_iter().filter(|case| !case.name.starts_with("real_files")).collect()
}

fn failed(report: &Report) -> Vec<&str> {
    let failed = report.entries.iter().filter(|entry| matches!(entry.verdict, Verdict::Failed(_)));
    failed.map(|entry| entry.case.as_str()).collect()
}

#[test]
fn each_fault_is_found() {
    let faults = [
        (Fault::LosesAnEntry, "count_summary::bits_of_the_fold"),
        (Fault::SquareOffByOne, "moment_summary::shares_have_the_bits_of_the_fold"),
        (Fault::ScaledOffByOneUlp, "scaled::values_of_the_plan_rounded_once"),
        (Fault::LosesAGene, "select::mask_on_both_axes"),
        (Fault::ColumnOffByOne, "select::mask_on_both_axes"),
        (Fault::DropsLastChunk, "recipe::exact_same_bits_for_any_chunks_and_threads"),
        (Fault::TakesRowsForSorted, "recipe::same_bits_for_any_order_within_rows"),
        (Fault::Float32Sums, "count_summary::bits_of_the_fold"),
        (Fault::StaleCache, "scaled::values_of_the_plan_rounded_once"),
        (Fault::NanOnConstantGenes, "edges::a_constant_selected_gene_becomes_zero"),
        (Fault::Panics, "count_summary::bits_of_the_fold"),
    ];
    for (fault, found_by) in faults {
        let group = found_by.split("::").next().unwrap_or_default();
        let cases: Vec<Case> = own_cases().into_iter().filter(|case| case.name.starts_with(group)).collect();
        let good = run_suite(&cases, &[subject(Fault::None, true)], &[]);
        assert!(good.is_good(), "{}", good.to_table());
        let report = run_suite(&cases, &[subject(fault, true)], &[]);
        assert!(failed(&report).contains(&found_by), "{found_by} is not among the failures {:?}", failed(&report));
        assert!(!report.is_good());
        assert!(report.to_table().contains(found_by));
    }
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
