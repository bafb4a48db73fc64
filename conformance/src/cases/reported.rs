//! Faults that people met with other programs for the same job, each as an input of that kind and what must come of it.
//!
//! Names carry the number of the report in the collection that the project was given. Reports about file formats are tests of
//! the crates that read and write them.

use std::sync::Arc;

use zheng17_core::backend::{Axis, Reduction, Statistic};
use zheng17_core::matrix::{CsrBuffer, ValueKind};
use zheng17_core::recipe::{self, Components, Params, RecipeVersion, Warning, plan};
use zheng17_core::source::CheckedSource;
use zheng17_core::{Context, ErrorKind, Selection, Shape, SparseBackend as _};

use super::components::{expect_components_of, pca_of};
use super::edges::{equal_means, expect_error, run_losing_selected_genes};
use super::recipes::{expect_statement, run};
use crate::dense::Dense;
use crate::inputs::{Random, cast, context, contexts, expression, from_fn, open, source};
use crate::statement::{Asked, state};
use crate::suite::{Case, Outcome, Stop, Subject};
use crate::{case_list, ensure, ensure_eq};

pub(super) fn cases() -> Vec<Case> {
    case_list!("reported": case_01_hvg_bin_edges_ties, case_03_hvg_raw_counts_overflow,
        case_04_hvg_more_top_genes_than_finite, case_05_hvg_undefined_scores_in_rank, case_08_hvg_negative_input,
        case_09_hvg_mutates_input, case_10_hvg_bins, case_11_norm_median_zero_cells, case_12_norm_empty_cells,
        case_13_norm_integer_dtype, case_15_scale_max_value_one_sided, case_17_scale_densifies,
        case_21_copy_flag_returns_nothing, case_23_pca_not_reproducible, case_24_pca_uncentred_sparse,
        case_26_pca_too_many_comps, case_27_no_selected_genes, case_29_variance_cancellation, case_30_nan_in_matrix,
        case_54_filtered_rows_in_chunks, case_57_subset_names_mismatch)
}

fn params(n_top_genes: usize) -> Params {
    Params { n_top_genes, ..Params::default() }
}

/// Counts of a distribution with this mean, much like Poisson's.
fn counts(seed: u64, n_cells: usize, n_genes: usize, mean: f64) -> CsrBuffer {
    let mut random = Random::new(seed);
    from_fn(n_cells, n_genes, |_, _| (0..12).map(|_| f64::from(u8::from(random.unit() < mean / 12.0))).sum())
}

fn with(matrix: &CsrBuffer, f: impl Fn(usize, usize, f64) -> f64) -> CsrBuffer {
    let dense = Dense::of(matrix);
    from_fn(dense.n_cells, dense.n_genes, |cell, gene| f(cell, gene, dense.at(cell, gene)))
}

/// Genes that are all zero are removed first; edges that still tie share a bin, with a warning.
fn case_01_hvg_bin_edges_ties(subject: &Subject) -> Outcome {
    let base = expression(1, 200, 1000);
    let ties = with(&base, |cell, gene, x| match gene {
        0..600 => 0.0,
        600..850 => f64::from(u8::from(gene % 200 == cell)),
        _ => x,
    });
    let found = run(subject, &ties, &params(50), &Context::default())?.result;
    ensure!(found.kept_genes.iter().all(|&gene| gene >= 600), "genes without counts were kept");
    ensure_eq!(found.selected.len(), 50, "number of selected genes");

    let says = ["0 genes are selected"];
    let exact = equal_means();
    expect_error(
        subject,
        "genes without any difference",
        source(exact.clone())?,
        &params(50),
        ErrorKind::Input,
        &says,
    )?;
    let some = with(&exact, |cell, gene, x| if gene < 20 { f64::from(u8::from(cell == gene)) * 2.0 } else { x });
    let found = run(subject, &some, &params(5), &Context::default())?.result;
    let warned = found.warnings.iter().any(|warning| matches!(warning, Warning::CollapsedEdges { .. }));
    ensure!(warned, "no warning of the tie: {:?}", found.warnings);
    Ok(())
}

/// Counts are scored as they are, without exponentials; what is not finite is refused by name.
fn case_03_hvg_raw_counts_overflow(subject: &Subject) -> Outcome {
    let large = with(&expression(3, 150, 300), |cell, gene, x| match (cell, gene) {
        (0, 0) => 3701.0,
        (1, 1) => 900.0,
        _ => x,
    });
    let found = run(subject, &large, &params(50), &Context::default())?;
    ensure_eq!(found.result.selected.len(), 50, "number of selected genes");
    let numbers = found.result.means.iter().chain(&found.result.variances).chain(&found.scaled.values);
    ensure!(numbers.into_iter().all(|x| x.is_finite()), "numbers that are not finite");
    let infinite = with(&large, |cell, gene, x| if (cell, gene) == (2, 2) { f64::INFINITY } else { x });
    let says = ["cell 2 (cell-2)", "gene 2 (gene-2)", "inf"];
    expect_error(subject, "an infinite count", source(infinite)?, &params(50), ErrorKind::Input, &says)
}

/// Every gene with a score is selected, and the shortened number reported.
fn case_04_hvg_more_top_genes_than_finite(subject: &Subject) -> Outcome {
    let found = run(subject, &counts(4, 100, 30, 2.0), &params(1000), &Context::default())?.result;
    let defined: Vec<usize> =
        found.kept_genes.iter().zip(&found.scores).filter(|(_, s)| !s.is_nan()).map(|(&gene, _)| gene).collect();
    ensure!(!defined.is_empty() && defined.len() < 30, "{} of 30 genes have a score", defined.len());
    ensure_eq!(found.selected, defined, "selected genes");
    let warning = Warning::FewerGenes { asked: 1000, defined: defined.len() };
    ensure!(found.warnings.contains(&warning), "no warning: {:?}", found.warnings);
    Ok(())
}

/// As many genes as asked for, none of them without counts; the same with and without a filter before.
fn case_05_hvg_undefined_scores_in_rank(subject: &Subject) -> Outcome {
    let all = with(&expression(5, 300, 800), |_, gene, x| if gene >= 300 { 0.0 } else { x });
    let dense = Dense::of(&all);
    let filtered = from_fn(300, 300, |cell, gene| dense.at(cell, gene));
    let all = run(subject, &all, &params(100), &Context::default())?;
    let filtered = run(subject, &filtered, &params(100), &Context::default())?;
    ensure_eq!(all.result.selected.len(), 100, "number of selected genes");
    ensure!(all.result.selected.iter().all(|&gene| all.result.gene_totals[gene] > 0.0), "a gene without counts");
    ensure_eq!(all.result.selected, filtered.result.selected, "selected genes with and without a filter");
    ensure!(all.scaled == filtered.scaled, "other scaled values with and without a filter");
    Ok(())
}

/// Values below zero are refused, naming the first.
fn case_08_hvg_negative_input(subject: &Subject) -> Outcome {
    let mut random = Random::new(8);
    let centred = from_fn(100, 200, |cell, gene| if (cell, gene) < (0, 4) { 1.0 } else { random.unit() - 0.5 });
    let dense = Dense::of(&centred);
    let first = (0..200).find(|&gene| dense.at(0, gene) < 0.0).unwrap_or(0);
    let says = ["cell 0 (cell-0)", &format!("gene {first} (gene-{first})"), "such values in all"];
    for version in [RecipeVersion::EXACT, RecipeVersion::SCANPY_1_12, RecipeVersion::SCANPY_MAIN] {
        let params = Params { version, ..params(50) };
        expect_error(subject, "centred data", source(centred.clone())?, &params, ErrorKind::Input, &says)?;
    }
    Ok(())
}

/// The input keeps its bits, and the same call gives the same list every time.
fn case_09_hvg_mutates_input(subject: &Subject) -> Outcome {
    let input = with(&expression(9, 120, 200), |_, _, x| x.ln_1p());
    let shared = source(input.clone())?;
    let ctx = Context::default();
    let mut first = None;
    for call in 0..10 {
        let selected =
            recipe::run(Arc::clone(&subject.backend), Arc::clone(&shared), &params(40), &ctx)?.result.selected;
        let first = first.get_or_insert_with(|| selected.clone());
        ensure_eq!(selected, *first, "selected genes of call {call}");
    }
    let mut after = CsrBuffer::new(input.n_genes, ValueKind::F64);
    shared.read_cells(0..input.n_cells(), &mut after)?;
    ensure!(after == input, "the input was changed");
    Ok(())
}

/// The bins are −∞, percentiles 10, 15, …, 100, +∞: nineteen with genes, the first twice as wide.
fn case_10_hvg_bins(subject: &Subject) -> Outcome {
    let found = run(subject, &expression(10, 300, 1000), &params(100), &Context::default())?.result;
    let mut sorted = found.means.clone();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    ensure_eq!(sorted.len(), found.means.len(), "number of different means");
    let n = found.means.len();
    // With all means different, (n − 1)·p + 1 of them are up to the percentile p.
    let up_to = |bin: usize| (n - 1) * (10 + 5 * bin) / 100 + 1;
    for bin in 0..19 {
        let expected = if bin == 0 { up_to(0) } else { up_to(bin) - up_to(bin - 1) };
        let genes = found.bins.iter().filter(|b| **b == bin).count();
        ensure_eq!(genes, expected, "genes in bin {bin}");
    }
    ensure!(found.bins.iter().all(|&bin| bin < 19), "genes beyond percentile 100");
    Ok(())
}

/// The target is the median over cells with counts; empty cells stay zero, the others sum to the target.
fn case_11_norm_median_zero_cells(subject: &Subject) -> Outcome {
    let input = with(&expression(11, 101, 300), |cell, _, x| if cell >= 41 { 0.0 } else { x });
    let dense = Dense::of(&input);
    let asked = Params { log: false, ..params(60) };
    let found = run(subject, &input, &asked, &Context::default())?;
    let mut totals: Vec<f64> = (0..101).map(|cell| dense.cell(cell).iter().sum()).filter(|&t: &f64| t > 0.0).collect();
    totals.sort_by(f64::total_cmp);
    let middle = totals.len() / 2;
    let median = if totals.len() % 2 == 1 { totals[middle] } else { f64::midpoint(totals[middle - 1], totals[middle]) };
    ensure_eq!(found.result.target_sum, median, "target sum");
    for cell in 0..101 {
        let sum: f64 = found.normalised.cell(cell).iter().sum();
        let expected = if found.result.hvg_totals[cell] > 0.0 { found.result.hvg_target_sum } else { 0.0 };
        ensure!((sum - expected).abs() < 1e-5 * found.result.hvg_target_sum, "cell {cell} sums to {sum}");
    }
    ensure!(found.normalised.values[41 * 60..].iter().all(|&x| x == 0.0), "empty cells are not zero");
    Ok(())
}

/// Cells without counts, or without counts in the selected genes, stay, are zero before scaling, and are counted.
fn case_12_norm_empty_cells(subject: &Subject) -> Outcome {
    let input = with(&expression(12, 40, 400), |cell, _, x| if cell == 5 { 0.0 } else { x });
    let found = run_losing_selected_genes(subject, &input, 7, &params(20))?;
    ensure_eq!(found.result.cells.len(), 40, "number of cells");
    ensure!(found.result.cell_totals[7] > 0.0, "the cell is empty altogether");
    ensure!(found.scaled.values.iter().all(|x| x.is_finite()), "values that are not finite");
    for cell in [5, 7] {
        ensure!(found.normalised.cell(cell).iter().all(|&x| x == 0.0), "cell {cell} is not zero");
    }
    let n_without = found.result.hvg_totals.iter().filter(|h| **h == 0.0).count();
    for warning in [Warning::EmptyCells { cells: 1 }, Warning::EmptyAmongSelected { cells: n_without - 1 }] {
        ensure!(found.result.warnings.contains(&warning), "no {warning:?} among {:?}", found.result.warnings);
    }
    Ok(())
}

/// The number type of the counts makes no difference to a single bit.
fn case_13_norm_integer_dtype(subject: &Subject) -> Outcome {
    let input = with(&expression(13, 80, 200), |_, _, x| x.min(255.0));
    let single = run(subject, &cast(input.clone(), ValueKind::F32), &params(50), &Context::default())?;
    let double = run(subject, &cast(input, ValueKind::F64), &params(50), &Context::default())?;
    ensure_eq!(single.result.selected, double.result.selected, "selected genes");
    ensure_eq!(single.result.digest, double.result.digest, "digest of the summary");
    ensure!(single.scaled == double.scaled, "other scaled values");
    Ok(())
}

/// Clipping is on both sides, and off unless asked for.
fn case_15_scale_max_value_one_sided(subject: &Subject) -> Outcome {
    // Gene 0 is high but in one cell, gene 1 low but in one.
    let mut random = Random::new(15);
    let input = from_fn(200, 40, |cell, gene| match (gene, cell) {
        (0, 0) | (1, 1..) => 1.0,
        (0, _) | (1, 0) => 200.0,
        _ => 1.0 + (random.unit() * (3.0 + gene as f64)).floor(),
    });
    let asked = |max_value| Params { max_value, ..params(1000) };
    let free = run(subject, &input, &asked(None), &Context::default())?;
    let clipped = run(subject, &input, &asked(Some(3.0)), &Context::default())?;
    let outside = |sign: f64| free.scaled.values.iter().filter(|&&x| sign * x > 3.0).count();
    ensure!(outside(1.0) > 0 && outside(-1.0) > 0, "there is nothing to clip: {} and {}", outside(1.0), outside(-1.0));
    ensure!(clipped.scaled == free.scaled.map(|x| x.clamp(-3.0, 3.0)), "not clipped on both sides");
    Ok(())
}

/// Scaled values exist only for the selected genes, and only for some cells at a time.
fn case_17_scale_densifies(subject: &Subject) -> Outcome {
    let input = expression(17, 500, 1000);
    let asked = Params { components: Some(Components::Exactly(10)), ..params(50) };
    let ctx = context(32, 1);
    let outcome = recipe::run(Arc::clone(&subject.backend), source(input)?, &asked, &ctx)?;
    let mut most = 0;
    outcome.scaled(&ctx, &mut |_, rows| {
        most = most.max(rows.len());
        Ok(())
    })?;
    ensure!(most <= 32 * 50, "{most} scaled values at once for chunks of 32 cells and 50 genes");
    ensure_eq!(subject.backend.shape(&outcome.matrix).n_genes, 50, "genes of the matrix that is kept");
    Ok(())
}

/// A run gives the transformed matrix and leaves its input as it was.
fn case_21_copy_flag_returns_nothing(subject: &Subject) -> Outcome {
    let input = expression(21, 60, 150);
    let ctx = Context::default();
    let before = open(subject, &input, &ctx)?;
    let found = run(subject, &input, &params(30), &ctx)?;
    ensure!(found.scaled.values.iter().any(|&x| x < 0.0), "the result is not centred");
    let (after, _) = Dense::visit(subject, &before, &ctx)?;
    ensure!(after == Dense::of(&input), "a matrix opened before was changed");
    Ok(())
}

/// Components have the same bits in every run and for any number of threads.
fn case_23_pca_not_reproducible(subject: &Subject) -> Outcome {
    // Five strong factors and a flat tail of noise.
    let mut random = Random::new(23);
    let input = from_fn(400, 120, |cell, gene| {
        let strong = if gene % 6 < 5 && cell % 7 == gene % 6 { 30.0 } else { 4.0 };
        (random.unit() * strong).floor()
    });
    let asked = Params { components: Some(Components::Exactly(30)), ..params(60) };
    let first = run(subject, &input, &asked, &Context::default())?;
    for ctx in contexts() {
        let again = run(subject, &input, &asked, &ctx)?;
        let other = "in some bit for another number of threads or other chunks";
        ensure!(pca_of(&again)? == pca_of(&first)?, "components differ {other}");
        ensure!(again.scores == first.scores, "scores differ {other}");
    }
    Ok(())
}

/// Sparse input is centred: components are those of the dense centred matrix, and scores have mean 0.
fn case_24_pca_uncentred_sparse(subject: &Subject) -> Outcome {
    let input = counts(24, 300, 200, 5.0);
    let asked = Params { components: Some(Components::Exactly(8)), ..params(50) };
    let found = run(subject, &input, &asked, &context(64, 2))?;
    let wanted = Asked { version: RecipeVersion::EXACT, n_top: 50, log: true, max_value: None };
    let Some(statement) = state(&Dense::of(&input), wanted) else {
        return Err(Stop::Failed("the statement stops".to_owned()));
    };
    expect_statement(&found, &statement)?;
    expect_components_of(&found, &statement.scaled)
}

/// The usual number of components is cut to what there is, with a note; an explicit request is an error.
fn case_26_pca_too_many_comps(subject: &Subject) -> Outcome {
    for (n_cells, n_genes, most) in [(35, 100, 34), (100, 20, 19)] {
        let input = counts(26, n_cells, n_genes, 3.0);
        let asked = |components| Params { components: Some(components), ..params(1000) };
        let found = run(subject, &input, &asked(Components::DEFAULT), &Context::default())?;
        let most = most.min(found.result.selected.len() - 1);
        ensure_eq!(pca_of(&found)?.n_components, most, "number of components");
        let note = Warning::FewerComponents { asked: 50, computed: most };
        ensure!(found.result.warnings.contains(&note), "no note: {:?}", found.result.warnings);
        let too_many = asked(Components::Exactly(50));
        let says = ["50 principal components asked for", &format!("at most {most}")];
        expect_error(subject, "50 components", source(input)?, &too_many, ErrorKind::Usage, &says)?;
    }
    let one = counts(26, 1, 100, 3.0);
    let asked = Params { components: Some(Components::DEFAULT), ..params(50) };
    expect_error(subject, "one cell", source(one)?, &asked, ErrorKind::Input, &["only one cell"])
}

/// Where no gene can be selected, the error says that 0 genes are selected.
fn case_27_no_selected_genes(subject: &Subject) -> Outcome {
    let alike = from_fn(60, 80, |_, gene| 1.0 + (gene % 9) as f64);
    let asked = Params { components: Some(Components::DEFAULT), ..params(20) };
    expect_error(subject, "cells that are alike", source(alike)?, &asked, ErrorKind::Input, &["0 genes are selected"])
}

/// A variance is right where the mean is much larger than the deviation, and exactly 0 for a constant.
fn case_29_variance_cancellation(subject: &Subject) -> Outcome {
    let mut random = Random::new(29);
    let input = from_fn(500, 3, |_, gene| match gene {
        0 => 1e6 + random.below(3) as f64,
        1 => 16_777_217.0,
        _ => random.below(7) as f64,
    });
    let expected = crate::dense::variance(&Dense::of(&input).gene(0));
    ensure!((expected - 2.0 / 3.0).abs() < 0.05, "the input's variance is {expected}");
    let wanted = [Reduction { axis: Axis::Genes, statistic: Statistic::Variance }];
    for ctx in contexts() {
        let found = subject.backend.reduce(&open(subject, &input, &ctx)?, &wanted, &ctx)?;
        let variances = found.first().map_or(&[][..], Vec::as_slice);
        ensure!(variances.len() == 3 && variances.iter().all(|&v| v >= 0.0), "variances {variances:?}");
        ensure!((variances[0] / expected - 1.0).abs() < 1e-9, "found {}, expected {expected}", variances[0]);
        ensure_eq!(variances[1], 0.0, "variance of the constant gene");
    }
    // In 32 bits too, where the recipe's shares of equal totals keep the constant constant.
    let equal = cast(
        from_fn(50, 4, |cell, gene| match gene {
            0 => 1e6 + (cell % 3) as f64,
            1 => 1e6 + 2.0 - (cell % 3) as f64,
            2 => 8_388_608.0,
            _ => 1.0,
        }),
        ValueKind::F32,
    );
    let ctx = context(7, 2);
    let summary = subject.backend.count_summary(&open(subject, &equal, &ctx)?, None, &ctx)?;
    let found = plan::exact_statistics(&summary, Shape { n_cells: 50, n_genes: 4 }, &[0, 1, 2, 3])?;
    let expected = crate::dense::variance(&Dense::of(&equal).gene(0));
    ensure!((found.variances[0] / expected - 1.0).abs() < 1e-6, "found {}, expected {expected}", found.variances[0]);
    Ok(())
}

/// A value that is not a number is refused, naming its cell and gene.
fn case_30_nan_in_matrix(subject: &Subject) -> Outcome {
    let input = with(&expression(30, 60, 100), |cell, gene, x| if (cell, gene) == (3, 17) { f64::NAN } else { x });
    let says = ["cell 3 (cell-3)", "gene 17 (gene-17)", "NaN"];
    expect_error(subject, "NaN", source(input)?, &params(20), ErrorKind::Input, &says)
}

/// Cells chosen by a flag, from a source read in chunks, are the right ones, and a run in chunks equals one in memory.
fn case_54_filtered_rows_in_chunks(subject: &Subject) -> Outcome {
    let input = expression(54, 3000, 80);
    let flags: Vec<bool> = (0..3000).map(|cell| cell % 3 != 1).collect();
    let chosen: Vec<usize> = (0..3000).filter(|&cell| flags[cell]).collect();
    let expected = Dense::of(&input).select(&chosen, &(0..80).collect::<Vec<_>>());
    let ctx = context(1000, 2);
    let checked = Arc::new(CheckedSource::new(source(input.clone())?)?);
    let matrix = subject.backend.open(checked, &ctx)?;
    let filtered = subject.backend.select(&matrix, &Selection::Mask(flags), &Selection::All)?;
    let (found, _) = Dense::visit(subject, &filtered, &ctx)?;
    ensure!(found == expected, "other rows than those chosen");
    let in_chunks = run(subject, &input, &params(20), &ctx)?;
    let at_once = run(subject, &input, &params(20), &context(100_000, 1))?;
    ensure!(in_chunks.scaled == at_once.scaled, "a run in chunks differs from one at once");
    ensure_eq!(in_chunks.result.digest, at_once.result.digest, "digest of the summary");
    Ok(())
}

/// Each selected gene is the one that its position says: totals and scaled columns belong together.
fn case_57_subset_names_mismatch(subject: &Subject) -> Outcome {
    let input = expression(57, 150, 400);
    let dense = Dense::of(&input);
    let found = run(subject, &input, &params(60), &Context::default())?;
    ensure!(found.result.selected.is_sorted_by(|a, b| a < b), "selected genes are not in the order of the input");
    for (column, &gene) in found.result.selected.iter().enumerate() {
        let total: f64 = dense.gene(gene).iter().sum();
        ensure_eq!(found.result.gene_totals[gene], total, "total of gene {gene}");
        // Values stand where the gene has counts, and nowhere else.
        let expressed = dense.gene(gene).iter().map(|&x| x > 0.0).collect::<Vec<_>>();
        let written = found.normalised.gene(column).iter().map(|&x| x > 0.0).collect::<Vec<_>>();
        ensure!(expressed == written, "column {column} is not gene {gene}");
    }
    Ok(())
}
