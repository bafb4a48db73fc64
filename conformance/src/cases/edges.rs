//! The edges of the recipe, one case for each, in every version that they concern.

use std::ops::Range;
use std::sync::Arc;

use zheng17_core::matrix::{CsrBuffer, ValueKind, Values};
use zheng17_core::recipe::{self, Params, RecipeVersion, Warning};
use zheng17_core::{ChunkSource, Context, ErrorKind, Result, Shape};

use super::recipes::{Everything, run};
use crate::inputs::{cast, context, expression, from_fn, rows, source, unsorted};
use crate::suite::{Case, Outcome, Stop, Subject};
use crate::{ensure, ensure_eq};

type VersionCase = fn(&Subject, RecipeVersion) -> Outcome;

pub(super) fn cases() -> Vec<Case> {
    let of_each_version: [(&str, VersionCase); 18] = [
        ("genes_without_counts_are_removed", genes_without_counts_are_removed),
        ("genes_of_total_below_one_are_removed_and_count_in_no_cell", genes_of_total_below_one_are_removed),
        ("empty_cells", empty_cells),
        ("cells_empty_among_the_selected_genes", cells_empty_among_the_selected_genes),
        ("stored_zeros_change_nothing", stored_zeros_change_nothing),
        ("duplicates_are_summed_and_counted", duplicates_are_summed_and_counted),
        ("wrong_values_are_refused_naming_cell_and_gene", wrong_values_are_refused),
        ("fractions_are_accepted_with_a_note", fractions_are_accepted_with_a_note),
        ("a_cell_total_above_2_to_53_is_refused", a_cell_total_above_2_to_53_is_refused),
        ("fractions_below_2_to_minus_41_count_as_nothing_in_totals", fractions_below_2_to_minus_41),
        ("wrong_structure_is_refused_naming_the_row", wrong_structure_is_refused),
        ("too_little_data_is_refused", too_little_data_is_refused),
        ("data_that_look_logged_run_with_a_warning", data_that_look_logged_run_with_a_warning),
        ("without_logarithms", without_logarithms),
        ("no_genes_asked_for_is_a_usage_error", no_genes_asked_for_is_a_usage_error),
        ("equal_bin_edges", equal_bin_edges),
        ("more_genes_asked_for_than_have_a_score", more_genes_asked_for_than_have_a_score),
        ("infinite_scores", infinite_scores),
    ];
    let mut cases = Vec::new();
    for version in RecipeVersion::ALL {
        for (name, case) in of_each_version {
            let case = Case::new(format!("edges::{}::{name}", version.name), move |subject| case(subject, version));
            cases.push(super::for_version(case, version));
        }
    }
    cases.extend(crate::case_list!("edges": no_defined_score_is_refused, clipping_is_on_both_sides,
        a_clip_that_is_not_positive_is_a_usage_error, a_constant_selected_gene_becomes_zero));
    for (version, over_target) in RecipeVersion::ALL.into_iter().zip([false, true, false, true]) {
        let case = Case::new(format!("edges::{}::n_counts_all", version.name), move |subject| {
            n_counts_all(subject, version, over_target)
        });
        cases.push(super::for_version(case, version));
    }
    cases
}

const N_TOP: usize = 30;

fn params(version: RecipeVersion) -> Params {
    Params { version, n_top_genes: N_TOP, ..Params::default() }
}

/// 80 cells of 250 genes; cell 40 is empty, and so is every 29th gene before they were shuffled.
fn small() -> CsrBuffer {
    expression(21, 80, 250)
}

/// Runs the recipe and expects an error of a kind whose message says certain things.
pub(super) fn expect_error(
    subject: &Subject,
    what: &str,
    source: Arc<dyn ChunkSource>,
    params: &Params,
    kind: ErrorKind,
    says: &[&str],
) -> Outcome {
    match recipe::run(Arc::clone(&subject.backend), source, params, &context(7, 2)) {
        Ok(_) => Err(Stop::Failed(format!("{what}: no error"))),
        Err(error) => {
            ensure_eq!(error.kind(), kind, "kind of the error for {what} ({error})");
            for part in says {
                ensure!(error.to_string().contains(part), "{what}: the error does not say \"{part}\": {error}");
            }
            Ok(())
        }
    }
}

/// Every number of two runs but what is known of the input's entries.
fn expect_same_result(found: &Everything, expected: &Everything) -> Outcome {
    let text = |run: &Everything| {
        let r = &run.result;
        let numbers = (&r.kept_genes, &r.cells, &r.cell_totals, &r.means, &r.variances, &r.scores, &r.selected);
        let scaling = (&r.hvg_totals, r.hvg_target_sum, &r.scale_mean, &r.scale_deviation, &run.scaled);
        format!("{numbers:?} {scaling:?}")
    };
    ensure!(text(found) == text(expected), "the results differ in some bit");
    Ok(())
}

/// The matrix with some entries changed: `f` gets cell, gene and value; zeros are stored.
fn changed(matrix: &CsrBuffer, f: impl Fn(usize, usize, f64) -> f64) -> CsrBuffer {
    let dense = crate::dense::Dense::of(matrix);
    from_fn(dense.n_cells, dense.n_genes, |cell, gene| f(cell, gene, dense.at(cell, gene)))
}

// Filtering and normalising

fn genes_without_counts_are_removed(subject: &Subject, version: RecipeVersion) -> Outcome {
    let found = run(subject, &small(), &params(version), &Context::default())?;
    let totals = &found.result.gene_totals;
    let expected: Vec<usize> = (0..totals.len()).filter(|&gene| totals[gene] > 0.0).collect();
    ensure_eq!(found.result.kept_genes, expected, "kept genes");
    ensure!(expected.len() < totals.len(), "the input has no gene without counts");
    Ok(())
}

fn genes_of_total_below_one_are_removed(subject: &Subject, version: RecipeVersion) -> Outcome {
    let without = changed(&small(), |_, gene, x| if gene == 1 { 0.0 } else { x });
    let with = changed(&without, |cell, gene, x| if gene == 1 && cell < 2 { 0.4375 } else { x });
    let without = run(subject, &without, &params(version), &Context::default())?;
    let with = run(subject, &with, &params(version), &Context::default())?;
    ensure_eq!(with.result.gene_totals[1], 0.875, "total of the fractional gene");
    ensure!(!with.result.kept_genes.contains(&1), "a gene of total 0.875 was kept");
    expect_same_result(&with, &without)
}

fn expect_no_expression(found: &Everything, cell: usize) -> Outcome {
    let result = &found.result;
    let Ok(row) = result.cells.binary_search(&cell) else {
        return Err(Stop::Failed(format!("cell {cell} was dropped")));
    };
    for (gene, &scaled) in found.scaled.cell(row).iter().enumerate() {
        let (mean, deviation) = (result.scale_mean[gene], result.scale_deviation[gene]);
        let expected = if deviation > 0.0 { -mean / deviation } else { 0.0 };
        ensure!((scaled - expected).abs() <= 1e-6, "cell {cell}: found {scaled}, expected −mean/deviation, {expected}");
    }
    Ok(())
}

fn empty_cells(subject: &Subject, version: RecipeVersion) -> Outcome {
    let found = run(subject, &small(), &params(version), &Context::default())?;
    if version == RecipeVersion::SCANPY_1_4 {
        ensure!(!found.result.cells.contains(&40), "an empty cell was kept");
        let dropped = Warning::DroppedCells { cells: 80 - found.result.cells.len(), version: version.name };
        ensure!(found.result.warnings.contains(&dropped), "no warning of dropped cells: {:?}", found.result.warnings);
        return Ok(());
    }
    ensure_eq!(found.result.cells, (0..80).collect::<Vec<_>>(), "cells");
    ensure_eq!(found.result.cell_totals[40], 0.0, "total of the empty cell");
    ensure!(
        found.result.warnings.contains(&Warning::EmptyCells { cells: 1 }),
        "no count of empty cells: {:?}",
        found.result.warnings
    );
    expect_no_expression(&found, 40)
}

/// A run in which a cell has counts, but none in the selected genes: it loses those until no selected gene is left in it.
pub(super) fn run_losing_selected_genes(
    subject: &Subject,
    input: &CsrBuffer,
    poor_cell: usize,
    params: &Params,
) -> Result<Everything, Stop> {
    let mut lost = vec![false; input.n_genes];
    loop {
        let poorer = changed(input, |cell, gene, x| if cell == poor_cell && lost[gene] { 0.0 } else { x });
        let found = run(subject, &poorer, params, &Context::default())?;
        if found.result.selected.iter().all(|&gene| lost[gene]) {
            return Ok(found);
        }
        found.result.selected.iter().for_each(|&gene| lost[gene] = true);
    }
}

fn cells_empty_among_the_selected_genes(subject: &Subject, version: RecipeVersion) -> Outcome {
    let found = run_losing_selected_genes(subject, &small(), 5, &params(version))?;
    if version == RecipeVersion::SCANPY_1_4 {
        ensure!(!found.result.cells.contains(&5), "a cell empty among the selected genes was kept");
        return Ok(());
    }
    ensure!(found.result.cell_totals[5] > 0.0, "the cell is empty altogether");
    ensure_eq!(found.result.hvg_totals[5], 0.0, "total over selected genes");
    let n_empty = found.result.hvg_totals.iter().filter(|h| **h == 0.0).count() - 1;
    let warning = Warning::EmptyAmongSelected { cells: n_empty };
    ensure!(found.result.warnings.contains(&warning), "no count of such cells: {:?}", found.result.warnings);
    expect_no_expression(&found, 5)
}

// Entries

fn stored_zeros_change_nothing(subject: &Subject, version: RecipeVersion) -> Outcome {
    let input = small();
    let mut with_zeros = CsrBuffer::new(input.n_genes, ValueKind::F32);
    let view = input.view();
    for row in 0..input.n_cells() {
        let values = view.row_values(row);
        let stored = view.row_indices(row);
        for gene in 0..input.n_genes as u32 {
            let value = stored.iter().position(|&g| g == gene).map_or(0.0, |at| values.get(at));
            if value != 0.0 || (row + gene as usize).is_multiple_of(3) {
                with_zeros.indices.push(gene);
                with_zeros.values.push(value);
            }
        }
        with_zeros.end_row();
    }
    let found = run(subject, &with_zeros, &params(version), &Context::default())?;
    let expected = run(subject, &input, &params(version), &Context::default())?;
    ensure_eq!(found.result.digest, expected.result.digest, "digest of the summary");
    ensure_eq!(found.result.warnings, expected.result.warnings, "warnings");
    expect_same_result(&found, &expected)
}

fn duplicates_are_summed_and_counted(subject: &Subject, version: RecipeVersion) -> Outcome {
    let input = small();
    let mut split = CsrBuffer::new(input.n_genes, ValueKind::F32);
    let view = input.view();
    let mut n_split = 0;
    for row in 0..input.n_cells() {
        let mut later = Vec::new();
        for (at, &gene) in view.row_indices(row).iter().enumerate() {
            let value = view.row_values(row).get(at);
            let part = if value >= 2.0 { 1.0 } else { value };
            split.indices.push(gene);
            split.values.push(part);
            if part < value {
                later.push((gene, value - part));
            }
        }
        n_split += later.len() as u64;
        for (gene, value) in later {
            split.indices.push(gene);
            split.values.push(value);
        }
        split.end_row();
    }
    let found = run(subject, &split, &params(version), &context(9, 3))?;
    let mut expected = run(subject, &input, &params(version), &Context::default())?;
    ensure_eq!(found.result.digest, expected.result.digest, "digest of the summary");
    expected.result.warnings.insert(0, Warning::Duplicates { entries: n_split });
    ensure_eq!(found.result.warnings, expected.result.warnings, "warnings");
    expect_same_result(&found, &expected)
}

fn wrong_values_are_refused(subject: &Subject, version: RecipeVersion) -> Outcome {
    for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 2_f64.powi(53) + 2.0] {
        let one = changed(&small(), |cell, gene, x| if (cell, gene) == (3, 17) { wrong } else { x });
        let three = changed(&one, |cell, gene, x| if cell > 70 && gene == 2 && cell < 73 { wrong } else { x });
        let place = ["input", "cell 3 (cell-3)", "gene 17 (gene-17)"];
        let what = format!("one {wrong}");
        let says = [place[0], place[1], place[2], "it is the only such value"];
        expect_error(subject, &what, source(one)?, &params(version), ErrorKind::Input, &says)?;
        let what = format!("three times {wrong}");
        let says = [place[0], place[1], place[2], "3 such values in all"];
        expect_error(subject, &what, source(three)?, &params(version), ErrorKind::Input, &says)?;
    }
    Ok(())
}

fn fractions_are_accepted_with_a_note(subject: &Subject, version: RecipeVersion) -> Outcome {
    let input = changed(&small(), |_, _, x| x * 20.25);
    let found = run(subject, &input, &params(version), &Context::default())?;
    let facts = found.result.facts;
    let note = Warning::NotCounts { fractional: facts.n_fractional, entries: facts.n_entries };
    ensure!(found.result.warnings.contains(&note), "no note: {:?}", found.result.warnings);
    ensure!(facts.n_fractional > 0 && facts.n_fractional < facts.n_entries, "not some fractions: {facts:?}");
    let looks_logged = found.result.warnings.iter().any(|warning| matches!(warning, Warning::LooksLogged { .. }));
    ensure!(!looks_logged, "values up to {} look logged", facts.largest);
    Ok(())
}

fn a_cell_total_above_2_to_53_is_refused(subject: &Subject, version: RecipeVersion) -> Outcome {
    let large = 2_f64.powi(53);
    let input = changed(&small(), |cell, gene, x| if cell == 2 && (gene == 3 || gene == 8) { large } else { x });
    expect_error(subject, "2^54", source(input)?, &params(version), ErrorKind::Input, &["input", "cell 2", "2^53"])?;
    // The largest that there may be.
    let input = changed(&small(), |cell, gene, x| if cell == 2 { if gene == 3 { large } else { 0.0 } } else { x });
    run(subject, &input, &params(version), &Context::default()).map(|_| ())
}

fn fractions_below_2_to_minus_41(subject: &Subject, version: RecipeVersion) -> Outcome {
    let tiny = 2_f64.powi(-42);
    let without = changed(&small(), |cell, gene, x| if gene == 1 || cell == 6 { 0.0 } else { x });
    let kept = run(subject, &without, &params(version), &Context::default())?.result;
    let with = changed(&without, |cell, gene, x| match x {
        0.0 if gene == 1 || cell == 6 => tiny,
        x => x,
    });
    let found = run(subject, &with, &params(version), &Context::default())?;
    ensure_eq!(found.result.gene_totals, kept.gene_totals, "totals of genes");
    ensure_eq!(found.result.kept_genes, kept.kept_genes, "kept genes");
    ensure_eq!(found.result.cell_totals, kept.cell_totals, "totals of cells");
    ensure_eq!(found.result.cells, kept.cells, "cells");
    let finite = found.scaled.values.iter().all(|x| x.is_finite());
    ensure!(finite, "some scaled values are not finite");
    if version == RecipeVersion::SCANPY_1_4 { Ok(()) } else { expect_no_expression(&found, 6) }
}

/// A source that hands out whatever it is made of.
struct Unchecked(CsrBuffer);

impl ChunkSource for Unchecked {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.0.n_cells(), n_genes: 3 }
    }
    fn n_entries(&self) -> Option<u64> {
        None
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        out.clone_from(&self.0);
        out.first_cell = cells.start;
        Ok(())
    }
    fn name(&self) -> String {
        "input".to_owned()
    }
}

fn wrong_structure_is_refused(subject: &Subject, version: RecipeVersion) -> Outcome {
    let good = CsrBuffer {
        first_cell: 0,
        n_genes: 3,
        indptr: vec![0, 2, 3, 5],
        indices: vec![0, 2, 1, 0, 1],
        values: Values::F32(vec![1.0; 5]),
    };
    let indptr = |indptr: &[u64]| CsrBuffer { indptr: indptr.to_vec(), ..good.clone() };
    let wrong = [
        ("row pointers that start late", indptr(&[1, 2, 3, 5]), "row 0"),
        ("row pointers that decrease", indptr(&[0, 3, 2, 5]), "row 1"),
        ("row pointers that end early", indptr(&[0, 2, 3, 4]), "row 2"),
        ("row pointers that end late", indptr(&[0, 2, 3, 9]), "row 2"),
        ("row pointers at the end of all numbers", indptr(&[0, 2, 3, u64::MAX]), "row 2"),
        ("a column beyond the genes", CsrBuffer { indices: vec![0, 2, 3, 0, 1], ..good.clone() }, "row 1"),
    ];
    for (what, buffer, row) in wrong {
        let source = Arc::new(Unchecked(buffer));
        let ctx = Context::default();
        let Err(error) = recipe::run(Arc::clone(&subject.backend), source, &params(version), &ctx) else {
            return Err(Stop::Failed(format!("{what}: no error")));
        };
        ensure_eq!(error.kind(), ErrorKind::Input, "kind of the error for {what} ({error})");
        for part in ["input", row] {
            ensure!(error.to_string().contains(part), "{what}: the error does not say \"{part}\": {error}");
        }
    }
    Ok(())
}

// Sizes

fn too_little_data_is_refused(subject: &Subject, version: RecipeVersion) -> Outcome {
    let zeros: [&[(u32, f64)]; 3] = [&[(1, 0.0)], &[], &[(0, 0.0)]];
    let fractions: [&[(u32, f64)]; 3] = [&[(1, 0.25)], &[(0, 0.5)], &[(1, 0.25)]];
    let little = [
        ("no cells", from_fn(0, 5, |_, _| 1.0), "no cells"),
        ("one cell", from_fn(1, 5, |_, _| 1.0), "only one cell"),
        ("no genes", from_fn(5, 0, |_, _| 1.0), "no genes"),
        ("nothing stored", from_fn(5, 5, |_, _| 0.0), "every count is 0"),
        ("only zeros stored", rows(5, zeros), "every count is 0"),
        ("only genes of total below 1", rows(5, fractions), "no gene has a total of at least 1"),
    ];
    for (what, input, says) in little {
        expect_error(subject, what, source(input)?, &params(version), ErrorKind::Input, &["input", says])?;
    }
    Ok(())
}

// Logarithms

fn data_that_look_logged_run_with_a_warning(subject: &Subject, version: RecipeVersion) -> Outcome {
    let input = changed(&small(), |_, _, x| x.ln_1p());
    let found = run(subject, &input, &params(version), &Context::default())?;
    let warning = Warning::LooksLogged { largest: found.result.facts.largest };
    ensure!(found.result.warnings.contains(&warning), "no warning: {:?}", found.result.warnings);
    // Who asks for no logarithm has logarithms: nothing to warn of.
    let asked = Params { log: false, ..params(version) };
    let found = run(subject, &input, &asked, &Context::default())?;
    ensure!(!found.result.warnings.contains(&warning), "a warning with log off: {:?}", found.result.warnings);
    Ok(())
}

fn without_logarithms(subject: &Subject, version: RecipeVersion) -> Outcome {
    let with = run(subject, &small(), &params(version), &Context::default())?;
    let asked = Params { log: false, ..params(version) };
    let without = run(subject, &small(), &asked, &Context::default())?;
    ensure_eq!(without.result.selected, with.result.selected, "selected genes");
    let warning = Warning::LoggedAnyway { version: version.name };
    ensure_eq!(without.result.warnings.contains(&warning), !version.renormalises, "warning of logarithms all the same");
    if version.renormalises {
        // Rows sum to T′ where there is anything.
        for (row, h) in without.result.hvg_totals.iter().enumerate() {
            let sum: f64 = without.normalised.cell(row).iter().sum();
            let expected = if *h > 0.0 { without.result.hvg_target_sum } else { 0.0 };
            ensure!((sum - expected).abs() <= 1e-5 * expected, "row {row} sums to {sum}, not to {expected}");
        }
        return Ok(());
    }
    expect_same_result(&without, &with)
}

// Scores

fn no_genes_asked_for_is_a_usage_error(subject: &Subject, version: RecipeVersion) -> Outcome {
    let none = Params { n_top_genes: 0, ..params(version) };
    expect_error(subject, "0 genes", source(small())?, &none, ErrorKind::Usage, &["0 genes asked for"])
}

/// 100 cells of equal totals: 300 genes with one count each, and 100 with the same count in every cell.
pub(super) fn equal_means() -> CsrBuffer {
    from_fn(100, 400, |cell, gene| match gene {
        0..300 if gene % 100 == cell => 1.0,
        0..300 => 0.0,
        _ => 1.0 + (gene % 7) as f64,
    })
}

fn equal_bin_edges(subject: &Subject, version: RecipeVersion) -> Outcome {
    let input = equal_means();
    if version.refuses_equal_edges {
        let says = ["input", "bin edges are equal", version.name];
        return expect_error(subject, "equal edges", source(input)?, &params(version), ErrorKind::Input, &says);
    }
    // Half of the genes differ from the others of their mean, so that some have a score.
    let input = changed(&input, |cell, gene, x| if gene < 30 { if cell == gene { 3.0 } else { 0.0 } } else { x });
    let found = run(subject, &input, &params(version), &Context::default())?;
    let collapsed = found
        .result
        .warnings
        .iter()
        .any(|warning| matches!(warning, Warning::CollapsedEdges { collapsed } if *collapsed > 0));
    ensure!(collapsed, "no warning of equal edges: {:?}", found.result.warnings);
    // Genes of equal mean share a bin.
    let result = &found.result;
    for a in 0..result.means.len() {
        for b in 0..a {
            if result.means[a] == result.means[b] {
                ensure_eq!(result.bins[a], result.bins[b], "bins of genes {a} and {b} of equal mean");
            }
        }
    }
    Ok(())
}

/// 101 genes in 20 cells of equal totals. In three bins four of five dispersions are equal: four scores are undefined there and
/// one is infinite. The columns are in some order; the places of the infinite ones are given too, increasing.
pub(super) fn with_infinite_scores() -> (CsrBuffer, Vec<usize>) {
    // Ranks of means 16..=20, 31..=35 and 56..=60 are each one bin; the last of a bin is the odd one out.
    let odd = [20, 35, 60];
    let value = |rank: usize| match odd.iter().find(|odd| (**odd - 4..**odd).contains(&rank)) {
        Some(odd) => (odd - 4) as f64,
        None => rank as f64,
    };
    let total: f64 = (0..100).map(|rank| 1.0 + value(rank)).sum();
    let place = |rank: usize| rank * 37 % 101;
    let mut infinite: Vec<usize> = odd.iter().map(|&rank| place(rank)).collect();
    infinite.sort_unstable();
    let rank_at = |gene: usize| (0..101).find(|&rank| place(rank) == gene).unwrap_or(0);
    // The gene of rank 100 fills up the other half of the cells.
    let matrix = from_fn(20, 101, |cell, gene| match (rank_at(gene), cell < 10) {
        (100, true) => 0.0,
        (100, false) => total,
        (rank, true) => 1.0 + value(rank),
        (_, false) => 0.0,
    });
    (unsorted(&cast(matrix, ValueKind::F32), 3), infinite)
}

/// How many of those genes have a score.
const WITH_A_SCORE: usize = 101 - 3 * 4;

fn more_genes_asked_for_than_have_a_score(subject: &Subject, version: RecipeVersion) -> Outcome {
    let (input, _) = with_infinite_scores();
    let asked = Params { n_top_genes: 95, ..params(version) };
    if version.refuses_too_few {
        let says = ["95 genes asked for", "only 89 have a defined score", version.name];
        return expect_error(subject, "95 of 89 genes", source(input)?, &asked, ErrorKind::Input, &says);
    }
    let found = run(subject, &input, &asked, &Context::default())?;
    let defined: Vec<usize> = (0..101).filter(|&gene| !found.result.scores[gene].is_nan()).collect();
    ensure_eq!(defined.len(), WITH_A_SCORE, "genes with a score");
    ensure_eq!(found.result.selected, defined, "selected genes");
    let warning = Warning::FewerGenes { asked: 95, defined: WITH_A_SCORE };
    ensure!(found.result.warnings.contains(&warning), "no warning with both numbers: {:?}", found.result.warnings);
    Ok(())
}

fn infinite_scores(subject: &Subject, version: RecipeVersion) -> Outcome {
    let (input, infinite) = with_infinite_scores();
    let two = Params { n_top_genes: 2, ..params(version) };
    if version == RecipeVersion::SCANPY_MAIN {
        let says = ["infinite score", version.name];
        return expect_error(subject, "three infinite scores", source(input)?, &two, ErrorKind::Input, &says);
    }
    let found = run(subject, &input, &two, &Context::default())?;
    let result = &found.result;
    let with_infinite: Vec<usize> = (0..101).filter(|&gene| result.scores[gene] == f64::INFINITY).collect();
    ensure_eq!(with_infinite, infinite, "genes of infinite score");
    // The exact version takes as many as asked for, in gene order; the others take all.
    let expected = if version == RecipeVersion::EXACT { &infinite[..2] } else { &infinite[..] };
    ensure_eq!(result.selected, expected, "selected genes");
    Ok(())
}

fn no_defined_score_is_refused(subject: &Subject) -> Outcome {
    // All cells are alike, so every dispersion is 0.
    let input = from_fn(20, 50, |_, gene| 1.0 + gene as f64);
    let says = ["0 genes are selected", "input"];
    expect_error(subject, "equal cells", source(input)?, &params(RecipeVersion::EXACT), ErrorKind::Input, &says)
}

// Scaling

fn clipping_is_on_both_sides(subject: &Subject) -> Outcome {
    for version in [RecipeVersion::EXACT, RecipeVersion::SCANPY_1_12, RecipeVersion::SCANPY_MAIN] {
        let free = run(subject, &small(), &params(version), &Context::default())?;
        let largest = 0.4;
        let asked = Params { max_value: Some(largest), ..params(version) };
        let clipped = run(subject, &small(), &asked, &Context::default())?;
        let expected = free.scaled.map(|x| x.clamp(f64::from(-largest as f32), f64::from(largest as f32)));
        ensure!(clipped.scaled == expected, "{}: not the clipped values", version.name);
        let reached = |edge: f64| expected.values.iter().any(|&x| x == f64::from(edge as f32));
        ensure!(reached(largest) && reached(-largest), "{}: nothing was clipped on one side", version.name);
    }
    Ok(())
}

fn a_clip_that_is_not_positive_is_a_usage_error(subject: &Subject) -> Outcome {
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let asked = Params { max_value: Some(wrong), ..params(RecipeVersion::EXACT) };
        expect_error(subject, &format!("±{wrong}"), source(small())?, &asked, ErrorKind::Usage, &["clipped"])?;
    }
    Ok(())
}

fn a_constant_selected_gene_becomes_zero(subject: &Subject) -> Outcome {
    // Cells differ in two genes only, which alone have a score.
    let input = from_fn(20, 50, |cell, gene| match gene {
        9 => 1.0 + (cell % 3) as f64,
        49 => 1000.0 - (cell % 3) as f64,
        _ => 2.0 + gene as f64,
    });
    let asked = Params { n_top_genes: 1, ..params(RecipeVersion::EXACT) };
    let found = run(subject, &input, &asked, &Context::default())?;
    ensure_eq!(found.result.selected, [9], "selected gene");
    // It is all that is left of a cell, so after renormalising it is the same in every cell.
    ensure_eq!(found.result.scale_deviation, [0.0], "deviation");
    ensure!(found.scaled.values.iter().all(|&x| x == 0.0), "the column is not 0: {:?}", found.scaled.values);
    Ok(())
}

fn n_counts_all(subject: &Subject, version: RecipeVersion, over_target: bool) -> Outcome {
    let result = run(subject, &small(), &params(version), &Context::default())?.result;
    let divisor = if over_target { result.target_sum } else { 1.0 };
    let expected: Vec<f64> = result.cell_totals.iter().map(|total| total / divisor).collect();
    ensure_eq!(result.n_counts_all(), expected, "n_counts_all");
    ensure!(result.target_sum != 1.0, "the target sum is 1 by chance");
    Ok(())
}
