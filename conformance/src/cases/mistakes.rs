//! Mistakes that backends make, one case for each: its name says what must not happen, its input has nothing else that is
//! difficult. Who writes a backend reads the names of these failures first.

use std::sync::{Arc, Barrier, Mutex, PoisonError};

use zheng17_core::backend::{Axis, GRAM_BLOCK, Reduction, Statistic};
use zheng17_core::context::Progress;
use zheng17_core::exact::{CountSummary, MomentSummary};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{CsrBuffer, ValueKind};
use zheng17_core::recipe::{Components, Params, RecipeVersion};
use zheng17_core::{Context, Error, ErrorKind, Selection, SparseBackend as _};

use super::operations::{EXACTLY, expect_kind};
use super::passes::{Pass, Plans, expect_reference, expect_same, numbers, reference};
use super::recipes::run;
use crate::dense::{Dense, mean, variance};
use crate::inputs::{Random, cast, context, contexts, expression, from_fn, open, unsorted};
use crate::suite::{Case, Outcome, Stop, Subject};
use crate::tolerance::{Against, Quantity, tolerance};
use crate::{case_list, ensure, ensure_eq};

pub(super) fn cases() -> Vec<Case> {
    case_list!("mistakes": columns_are_not_off_by_one, the_last_chunk_is_not_dropped,
        the_last_genes_and_cells_of_any_width_count, large_chunks_are_not_cut_short,
        cells_of_later_chunks_have_their_own_factors, unsorted_rows_count_as_if_sorted, sums_are_not_in_32_bits,
        ties_are_broken_by_gene_order, variances_have_ddof_1, constant_genes_are_zero_not_nan,
        the_median_of_an_even_number_is_the_mean_of_the_middle_two, nothing_is_kept_from_an_earlier_call,
        threads_lose_no_counts, calls_at_the_same_time_do_not_mix, logarithms_are_not_left_out,
        clipping_is_not_left_out, excluded_genes_do_not_count, scores_are_centred, a_cancelled_pass_stops,
        errors_of_the_receiver_are_returned, progress_never_jumps, nothing_selected_is_no_trouble)
}

/// Small counts in sorted rows, some of them zero.
fn plain(n_cells: usize, n_genes: usize) -> CsrBuffer {
    cast(
        from_fn(n_cells, n_genes, |cell, gene| ((cell * cell * 7 + gene * 3 + cell * gene) % 5) as f64),
        ValueKind::F32,
    )
}

/// A plan that leaves values as they are.
fn unchanged(n_cells: usize, n_genes: usize) -> OutputPlan {
    OutputPlan {
        cell_scale: vec![1.0; n_cells].into(),
        log: false,
        mean: vec![0.0; n_genes],
        inverse_deviation: vec![1.0; n_genes],
        max_value: None,
    }
}

// Places

fn columns_are_not_off_by_one(subject: &Subject) -> Outcome {
    // Every value says where it belongs.
    let (n_cells, n_genes) = (6, 9);
    let input = from_fn(n_cells, n_genes, |cell, gene| (100 * (gene + 1) + cell) as f64);
    let dense = Dense::of(&input);
    let ctx = context(4, 2);
    let matrix = open(subject, &input, &ctx)?;
    for genes in [vec![0], vec![4], vec![n_genes - 1], vec![0, 1, 5, n_genes - 1]] {
        let selected = subject.backend.select(&matrix, &Selection::All, &Selection::Indices(genes.clone()))?;
        let (found, _) = Dense::visit(subject, &selected, &ctx)?;
        for (column, &gene) in genes.iter().enumerate() {
            ensure_eq!(found.gene(column), dense.gene(gene), "genes {genes:?} selected: values of gene {gene}");
        }
    }
    let sums = [Reduction { axis: Axis::Genes, statistic: Statistic::Sum }];
    let found = subject.backend.reduce(&matrix, &sums, &ctx)?;
    let expected: Vec<f64> = (0..n_genes).map(|gene| dense.gene(gene).iter().sum()).collect();
    ensure_eq!(found, [expected], "sums of genes");
    let plans = Plans { output: unchanged(n_cells, n_genes), ..Plans::new(&input, false, None) };
    for pass in [Pass::Scaled, Pass::ScaledInto, Pass::Normalised] {
        let found = numbers(subject, pass, &input, &plans, &ctx)?;
        ensure_eq!(found, dense.values, "{pass:?}: values, cell by cell");
    }
    expect_reference(subject, "values that say their gene", &input, &plans, &Pass::ALL)
}

fn the_last_chunk_is_not_dropped(subject: &Subject) -> Outcome {
    for n_cells in [6, 20, 21, 24] {
        let input = plain(n_cells, 4);
        let plans = Plans::new(&input, false, None);
        for pass in Pass::ALL {
            let expected = numbers(&reference(subject), pass, &input, &plans, &Context::default())?;
            for threads in [1, 2] {
                let found = numbers(subject, pass, &input, &plans, &context(5, threads))?;
                pass.compare(subject, &format!("{n_cells} cells in chunks of 5"), &found, &expected)?;
            }
        }
    }
    Ok(())
}

fn the_last_genes_and_cells_of_any_width_count(subject: &Subject) -> Outcome {
    // Whoever works on several genes or cells at a time has some left over at the end.
    for n in (2..=18).chain([31, 32, 33]) {
        let input = plain(n, n);
        let plans = Plans::new(&input, false, None);
        for pass in Pass::ALL {
            let expected = numbers(&reference(subject), pass, &input, &plans, &Context::default())?;
            let found = numbers(subject, pass, &input, &plans, &context(16, 2))?;
            pass.compare(subject, &format!("{n} cells × {n} genes"), &found, &expected)?;
        }
        let ctx = context(16, 2);
        let matrix = open(subject, &input, &ctx)?;
        let but_the_first = subject.backend.select(&matrix, &Selection::Range(1..n), &Selection::Range(1..n))?;
        let (found, _) = Dense::visit(subject, &but_the_first, &ctx)?;
        let rest: Vec<usize> = (1..n).collect();
        ensure_eq!(found, Dense::of(&input).select(&rest, &rest), "all but the first of {n} cells and genes");
    }
    Ok(())
}

fn large_chunks_are_not_cut_short(subject: &Subject) -> Outcome {
    let input = plain(4500, 3);
    let plans = Plans::new(&input, false, None);
    expect_reference(subject, "4,500 cells", &input, &plans, &Pass::ALL)
}

fn cells_of_later_chunks_have_their_own_factors(subject: &Subject) -> Outcome {
    let input = cast(from_fn(23, 4, |cell, gene| (1 + cell * cell + gene) as f64), ValueKind::F32);
    let plans = Plans::new(&input, false, None);
    expect_reference(subject, "every cell has another factor", &input, &plans, &Pass::ALL)
}

fn unsorted_rows_count_as_if_sorted(subject: &Subject) -> Outcome {
    let sorted = plain(12, 20);
    for seed in 0..3 {
        let shuffled = unsorted(&sorted, seed);
        let plans = Plans::new(&sorted, false, None);
        let ctx = context(5, 2);
        expect_same(subject, "rows in another order", &shuffled, &sorted, &plans, &ctx)?;
        let genes = Selection::Mask((0..20).map(|gene| gene % 3 != 1).collect());
        let selected = subject.backend.select(&open(subject, &shuffled, &ctx)?, &Selection::All, &genes)?;
        let expected = subject.backend.select(&open(subject, &sorted, &ctx)?, &Selection::All, &genes)?;
        let (selected, expected) =
            (Dense::visit(subject, &selected, &ctx)?.0, Dense::visit(subject, &expected, &ctx)?.0);
        selected.expect("genes selected from rows in another order", &expected, EXACTLY)?;
    }
    Ok(())
}

// Arithmetic

fn sums_are_not_in_32_bits(subject: &Subject) -> Outcome {
    // 2^24 + 1 has no place in 32 bits.
    let large = 16_777_216.0;
    let (n_cells, n_genes) = (40, 5);
    let input =
        cast(from_fn(n_cells, n_genes, |cell, gene| if gene == 0 || cell == 0 { large } else { 1.0 }), ValueKind::F32);
    let dense = Dense::of(&input);
    let of_cells: Vec<f64> = (0..n_cells).map(|cell| dense.cell(cell).iter().sum()).collect();
    let of_genes: Vec<f64> = (0..n_genes).map(|gene| dense.gene(gene).iter().sum()).collect();
    for ctx in contexts() {
        let matrix = open(subject, &input, &ctx)?;
        let summary = subject.backend.count_summary(&matrix, None, &ctx)?;
        ensure_eq!(summary.cell_totals(n_cells)?, of_cells, "totals of cells");
        let totals: Vec<f64> = summary.genes().iter().map(|gene| gene.total as f64 / 2_f64.powi(40)).collect();
        ensure_eq!(totals, of_genes, "totals of genes");
        let sums = [Axis::Cells, Axis::Genes].map(|axis| Reduction { axis, statistic: Statistic::Sum });
        ensure_eq!(subject.backend.reduce(&matrix, &sums, &ctx)?, [of_cells.clone(), of_genes.clone()], "sums");
    }
    let plans = Plans { output: unchanged(n_cells, n_genes), ..Plans::new(&input, false, None) };
    let passes = [Pass::CountSummary, Pass::MomentSummary, Pass::Gram, Pass::Project];
    expect_reference(subject, "sums above 2^24", &input, &plans, &passes)
}

/// Genes in pairs: gene k and gene k + `pairs` have the same counts in other cells. A last gene fills every cell up to one
/// total.
fn twins(pairs: usize, n_cells: usize) -> CsrBuffer {
    let mut random = Random::new(77);
    let counts: Vec<Vec<f64>> = (0..pairs)
        .map(|pair| (0..n_cells).map(|_| (random.unit() * random.unit() * (2.0 + pair as f64 * 0.4)).round()).collect())
        .collect();
    let value = |cell: usize, gene: usize| match gene / pairs {
        0 => counts[gene][cell],
        _ => counts[gene - pairs][n_cells - 1 - cell],
    };
    from_fn(n_cells, 2 * pairs + 1, |cell, gene| {
        if gene < 2 * pairs {
            value(cell, gene)
        } else {
            5000.0 - (0..gene).map(|other| value(cell, other)).sum::<f64>()
        }
    })
}

fn ties_are_broken_by_gene_order(subject: &Subject) -> Outcome {
    let pairs = 90;
    let input = twins(pairs, 50);
    let dense = Dense::of(&input);
    let asked = |n_top_genes| Params { n_top_genes, ..Params::default() };
    let scores = run(subject, &input, &asked(20), &context(11, 2))?.result.scores;
    ensure_eq!(scores.len(), 2 * pairs + 1, "number of kept genes");
    for gene in 0..pairs {
        let twin = gene + pairs;
        ensure_eq!(scores[gene].to_bits(), scores[twin].to_bits(), "scores of genes {gene} and {twin} of equal counts");
    }
    let mut order: Vec<usize> = (0..scores.len()).filter(|&gene| !scores[gene].is_nan()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    // Several cuts, each between two genes of equal score.
    let cuts = (20..60).filter(|&n| scores[order[n - 1]] == scores[order[n]]);
    for n in cuts.clone() {
        let found = run(subject, &input, &asked(n), &context(11, 2))?;
        let mut expected = order[..n].to_vec();
        expected.sort_unstable();
        ensure_eq!(found.result.selected, expected, "selected genes when {n} were asked for");
        for (column, &gene) in expected.iter().enumerate() {
            let expressed: Vec<bool> = dense.gene(gene).iter().map(|&x| x > 0.0).collect();
            let written: Vec<bool> = found.normalised.gene(column).iter().map(|&x| x > 0.0).collect();
            ensure!(
                expressed == written,
                "{n} genes asked for: column {column} has values in other cells than gene {gene}, as a gene of equal score"
            );
        }
    }
    ensure!(cuts.count() >= 10, "the input has hardly any ties");
    Ok(())
}

fn variances_have_ddof_1(subject: &Subject) -> Outcome {
    // Of 0, 0, 0, 4: sum of squares 12 about the mean, over 3. With ddof 0 it would be 3.
    let input = from_fn(4, 4, |cell, gene| if cell == gene { 4.0 } else { 0.0 });
    for ctx in contexts() {
        let wanted = [Axis::Cells, Axis::Genes].map(|axis| Reduction { axis, statistic: Statistic::Variance });
        let found = subject.backend.reduce(&open(subject, &input, &ctx)?, &wanted, &ctx)?;
        ensure_eq!(found, [[4.0; 4], [4.0; 4]], "variances of 0, 0, 0, 4 along cells and along genes");
    }
    // Scaled genes have variance 1, which with ddof 0 would be 12/11 or 11/12.
    let few_cells = 12;
    let found = run(
        subject,
        &expression(61, few_cells, 300),
        &Params { n_top_genes: 20, ..Params::default() },
        &context(5, 2),
    )?;
    let n_varying = found.result.scale_deviation.iter().filter(|deviation| **deviation > 0.0).count();
    ensure!(n_varying > 10, "only {n_varying} genes have a deviation");
    for (column, deviation) in found.result.scale_deviation.iter().enumerate() {
        let expected = f64::from(u8::from(*deviation > 0.0));
        let what = format!("variance of scaled gene {column}");
        let (values, rounded) = (found.scaled.gene(column), tolerance(Quantity::Value, Against::Float32));
        rounded.compare(&what, &[variance(&values)], &[expected])?;
    }
    Ok(())
}

fn constant_genes_are_zero_not_nan(subject: &Subject) -> Outcome {
    let (n_cells, constant) = (9, 1);
    let input = cast(
        from_fn(n_cells, 4, |cell, gene| if gene == constant { 3.0 } else { (cell % (gene + 2)) as f64 }),
        ValueKind::F32,
    );
    for max_value in [None, Some(0.7)] {
        let mut plans = Plans::new(&input, false, max_value);
        plans.output.cell_scale = vec![1.0; n_cells].into();
        plans.output.mean[constant] = 3.0;
        plans.output.inverse_deviation[constant] = 0.0;
        for ctx in contexts() {
            for pass in [Pass::Scaled, Pass::ScaledInto] {
                let found = numbers(subject, pass, &input, &plans, &ctx)?;
                let column: Vec<f64> = found.iter().skip(constant).step_by(4).copied().collect();
                ensure_eq!(column, [0.0; 9], "{pass:?}: the column of a gene without deviation");
            }
            for pass in Pass::ALL {
                let found = numbers(subject, pass, &input, &plans, &ctx)?;
                ensure!(found.iter().all(|x| x.is_finite()), "{pass:?}: numbers that are not finite: {found:?}");
            }
        }
        expect_reference(subject, "a gene without deviation", &input, &plans, &Pass::ALL)?;
    }
    Ok(())
}

fn the_median_of_an_even_number_is_the_mean_of_the_middle_two(subject: &Subject) -> Outcome {
    for n_cells in [30, 31] {
        let mut random = Random::new(62);
        let input = from_fn(n_cells, 200, |_, gene| (random.unit() * random.unit() * (3.0 + gene as f64)).round());
        let dense = Dense::of(&input);
        let params = Params { n_top_genes: 60, log: false, ..Params::default() };
        let found = run(subject, &input, &params, &context(7, 2))?;
        let result = &found.result;
        let median = |totals: Vec<f64>| {
            let mut totals: Vec<f64> = totals.into_iter().filter(|&total| total > 0.0).collect();
            totals.sort_by(f64::total_cmp);
            let (lower, upper) = (totals[(totals.len() - 1) / 2], totals[totals.len() / 2]);
            (f64::midpoint(lower, upper), upper)
        };
        let (target, upper) = median((0..n_cells).map(|cell| dense.cell(cell).iter().sum()).collect());
        ensure_eq!(target == upper, n_cells == 31, "whether {n_cells} cells have one total in the middle");
        ensure_eq!(result.target_sum, target, "target sum of {n_cells} cells; the upper of the middle two is {upper}");
        let normalised = result.hvg_totals.iter().zip(&result.cell_totals).map(|(h, t)| h * target / t);
        let (hvg_target, upper) = median(normalised.collect());
        ensure_eq!(hvg_target == upper, n_cells == 31, "whether {n_cells} cells have one such total in the middle");
        let exact = tolerance(Quantity::Total, Against::Float64);
        let what = format!("target sum of the selected genes; the upper of the middle two is {upper}");
        exact.compare(&what, &[result.hvg_target_sum], &[hvg_target])?;
        let rounded = tolerance(Quantity::Value, Against::Float32);
        for (cell, h) in result.hvg_totals.iter().enumerate().filter(|(_, h)| **h > 0.0) {
            let what = format!("{n_cells} cells: sum of normalised cell {cell}, whose total is {h} before");
            rounded.compare(&what, &[found.normalised.cell(cell).iter().sum()], &[hvg_target])?;
        }
    }
    Ok(())
}

// State

fn nothing_is_kept_from_an_earlier_call(subject: &Subject) -> Outcome {
    let inputs = [plain(9, 6), cast(from_fn(9, 6, |cell, gene| (1 + (cell * 5 + gene) % 4) as f64), ValueKind::F32)];
    let plans = [(0, None, None), (1, Some(0.6), None), (0, None, Some(2))].map(|(of, max_value, excluded)| {
        let plans = Plans::new(&inputs[of], of == 1, max_value);
        let excluded = excluded.map(|excluded| (0..6).map(|gene| gene == excluded).collect());
        Plans { excluded, ..plans }
    });
    let ctx = context(4, 2);
    let specification = reference(subject);
    for pass in Pass::ALL {
        // One matrix for all calls, and one after the other.
        let opened = [open(subject, &inputs[0], &ctx)?, open(subject, &inputs[1], &ctx)?];
        for (at, plan) in [(0, 0), (0, 1), (1, 1), (0, 2), (1, 0), (0, 0)] {
            let found = pass.run(&subject.backend, &opened[at], &plans[plan], &ctx, &mut || Ok(()))?;
            let expected = numbers(&specification, pass, &inputs[at], &plans[plan], &ctx)?;
            pass.compare(subject, &format!("matrix {at} with plan {plan} after other calls"), &found, &expected)?;
        }
    }
    Ok(())
}

fn threads_lose_no_counts(subject: &Subject) -> Outcome {
    // Every cell counts in every gene, so that threads meet.
    let input = cast(from_fn(700, 3, |cell, gene| (1 + (cell + gene) % 2) as f64), ValueKind::F32);
    let plans = Plans::new(&input, false, None);
    let (mut counts, mut moments) = (CountSummary::new(3, None), MomentSummary::new(3));
    counts.fold(input.view())?;
    moments.fold(input.view(), &plans.moments);
    for (chunk_rows, threads) in [(1, 2), (1, 8), (10, 4), (350, 2)] {
        let ctx = context(chunk_rows, threads);
        let matrix = open(subject, &input, &ctx)?;
        for time in 0..3 {
            let how = format!("{threads} threads, chunks of {chunk_rows} cells, time {time}");
            let found = subject.backend.count_summary(&matrix, None, &ctx)?;
            ensure_eq!(found.facts(), counts.facts(), "{how}: what is known of all counts");
            ensure_eq!(found.genes(), counts.genes(), "{how}: sums of genes");
            ensure!(found == counts, "{how}: other totals of cells than by one thread");
            ensure_eq!(subject.backend.moment_summary(&matrix, &plans.moments, &ctx)?, moments, "{how}: moments");
            let sums = [Reduction { axis: Axis::Genes, statistic: Statistic::Sum }];
            ensure_eq!(subject.backend.reduce(&matrix, &sums, &ctx)?, [[1050.0; 3]], "{how}: sums");
        }
    }
    Ok(())
}

fn calls_at_the_same_time_do_not_mix(subject: &Subject) -> Outcome {
    let inputs = [plain(60, 6), cast(from_fn(60, 6, |cell, gene| (2 + (cell * 5 + gene) % 7) as f64), ValueKind::F32)];
    let start = Barrier::new(inputs.len());
    let call = |input: &CsrBuffer| -> Outcome {
        let plans = Plans::new(input, false, None);
        let ctx = context(7, 2);
        for pass in Pass::ALL {
            let expected = numbers(&reference(subject), pass, input, &plans, &ctx)?;
            for _ in 0..4 {
                let found = numbers(subject, pass, input, &plans, &ctx)?;
                pass.compare(subject, "while another matrix is worked on", &found, &expected)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let callers = inputs.each_ref().map(|input| {
            scope.spawn(|| {
                start.wait();
                call(input)
            })
        });
        callers
            .into_iter()
            .try_for_each(|caller| caller.join().unwrap_or_else(|_| Err(Stop::Failed("a call panicked".to_owned()))))
    })
}

// Plans

fn logarithms_are_not_left_out(subject: &Subject) -> Outcome {
    let input = plain(15, 6);
    let passes = [Pass::Gram, Pass::Project, Pass::Scaled, Pass::ScaledInto, Pass::Normalised];
    expect_reference(subject, "with logarithms", &input, &Plans::new(&input, true, None), &passes)
}

fn clipping_is_not_left_out(subject: &Subject) -> Outcome {
    let input = plain(15, 6);
    let passes = [Pass::Gram, Pass::Project, Pass::Scaled, Pass::ScaledInto];
    expect_reference(subject, "clipped at 0.5", &input, &Plans::new(&input, false, Some(0.5)), &passes)?;
    let found = numbers(subject, Pass::Scaled, &input, &Plans::new(&input, false, Some(0.5)), &context(4, 2))?;
    let reached = found.contains(&0.5) && found.contains(&-0.5);
    ensure!(reached && found.iter().all(|x| x.abs() <= 0.5), "values clipped at 0.5: {found:?}");
    Ok(())
}

fn excluded_genes_do_not_count(subject: &Subject) -> Outcome {
    let input = plain(15, 6);
    let dense = Dense::of(&input);
    let excluded: Arc<[bool]> = (0..6).map(|gene| gene == 0 || gene == 4).collect();
    let total = |cell: usize| (0..6).filter(|&gene| !excluded[gene]).map(|gene| dense.at(cell, gene)).sum::<f64>();
    let totals: Vec<f64> = (0..15).map(total).collect();
    for ctx in contexts() {
        let summary = subject.backend.count_summary(&open(subject, &input, &ctx)?, Some(&excluded), &ctx)?;
        ensure_eq!(summary.cell_totals(15)?, totals, "totals of cells without genes 0 and 4");
        for gene in [0, 4] {
            let sums = summary.genes()[gene];
            ensure_eq!((sums.sum, sums.sum_of_squares), (0, 0), "moments of the excluded gene {gene}");
            ensure!(sums.total > 0, "the excluded gene {gene} has no total of its own");
        }
    }
    let plans = Plans { excluded: Some(excluded), ..Plans::new(&input, false, None) };
    expect_reference(subject, "genes 0 and 4 excluded", &input, &plans, &[Pass::CountSummary])
}

fn scores_are_centred(subject: &Subject) -> Outcome {
    let params = Params { n_top_genes: 30, components: Some(Components::Exactly(4)), ..Params::default() };
    for version in [RecipeVersion::EXACT, RecipeVersion::SCANPY_1_12] {
        let found = run(subject, &expression(63, 90, 200), &Params { version, ..params.clone() }, &context(20, 2))?;
        let Some(scores) = found.scores else { return Err(Stop::Failed("no scores".to_owned())) };
        for component in 0..4 {
            let mean = mean(&scores.gene(component));
            ensure!(mean.abs() < 1e-5, "{}: scores on component {component} have mean {mean}", version.name);
        }
    }
    Ok(())
}

// Manners

fn a_cancelled_pass_stops(subject: &Subject) -> Outcome {
    let input = plain(50, 3);
    let plans = Plans::new(&input, false, None);
    for threads in [1, 2] {
        let matrix = open(subject, &input, &context(5, threads))?;
        for pass in Pass::ALL {
            let ctx = context(5, threads);
            ctx.cancel.cancel();
            let result = pass.run(&subject.backend, &matrix, &plans, &ctx, &mut || Ok(()));
            expect_kind(&format!("{pass:?} of a run that was cancelled"), result, ErrorKind::Cancelled)?;
        }
        for pass in Pass::WITH_SINK {
            let ctx = context(5, threads);
            let cancel = ctx.cancel.clone();
            let result = pass.run(&subject.backend, &matrix, &plans, &ctx, &mut || {
                cancel.cancel();
                Ok(())
            });
            expect_kind(&format!("{pass:?} that was cancelled at its first piece"), result, ErrorKind::Cancelled)?;
        }
    }
    Ok(())
}

fn errors_of_the_receiver_are_returned(subject: &Subject) -> Outcome {
    let input = plain(50, 3);
    let plans = Plans::new(&input, false, None);
    for threads in [1, 2] {
        let ctx = context(5, threads);
        let matrix = open(subject, &input, &ctx)?;
        for pass in Pass::WITH_SINK {
            for wrong in [0, 1, 3] {
                let mut pieces = 0;
                let result = pass.run(&subject.backend, &matrix, &plans, &ctx, &mut || {
                    pieces += 1;
                    if pieces > wrong { Err(Error::unsupported("the disk is full")) } else { Ok(()) }
                });
                expect_kind(&format!("{pass:?} whose receiver fails"), result, ErrorKind::Unsupported)?;
                ensure_eq!(pieces, wrong + 1, "{pass:?}: pieces handed on until the first that was refused");
            }
        }
    }
    Ok(())
}

#[derive(Default)]
struct Steps(Mutex<Vec<usize>>);

impl Progress for Steps {
    fn start(&self, _pass: &str, _n_cells: usize) {}
    fn advance(&self, n_cells: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(n_cells);
    }
    fn finish(&self) {}
}

fn progress_never_jumps(subject: &Subject) -> Outcome {
    // Pairs of genes are summed by blocks of a fixed size, of which there must be some.
    for (input, chunk_rows, passes) in
        [(plain(50, 3), 5, &Pass::ALL[..]), (plain(3 * GRAM_BLOCK, 2), GRAM_BLOCK, &[Pass::Gram])]
    {
        let plans = Plans::new(&input, false, None);
        for threads in [1, 2] {
            let ctx = context(chunk_rows, threads);
            let matrix = open(subject, &input, &ctx)?;
            for pass in passes {
                let steps = Arc::new(Steps::default());
                let told = Context { progress: Arc::clone(&steps) as _, ..ctx.clone() };
                pass.run(&subject.backend, &matrix, &plans, &told, &mut || Ok(()))?;
                let steps = steps.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
                ensure_eq!(
                    steps.iter().sum::<usize>(),
                    input.n_cells(),
                    "{pass:?}: cells reported, in steps of {steps:?}"
                );
                let most = if *pass == Pass::Gram { GRAM_BLOCK } else { chunk_rows };
                let largest = steps.iter().max().copied().unwrap_or(0);
                ensure!(largest <= most, "{pass:?}: progress jumps by {largest} cells instead of at most {most}");
            }
        }
    }
    Ok(())
}

fn nothing_selected_is_no_trouble(subject: &Subject) -> Outcome {
    let input = plain(8, 5);
    let (none, all) = (Selection::Indices(vec![]), Selection::All);
    for (cells, genes) in [(&none, &all), (&all, &none), (&none, &none)] {
        let n_of = |selection: &Selection, n| if *selection == all { n } else { 0 };
        let (n_cells, n_genes) = (n_of(cells, 8), n_of(genes, 5));
        let plans = Plans::new(&from_fn(n_cells, n_genes, |_, _| 1.0), false, None);
        let pass_over = |subject: &Subject, pass: Pass, ctx: &Context| {
            let matrix = subject.backend.select(&open(subject, &input, ctx)?, cells, genes)?;
            pass.run(&subject.backend, &matrix, &plans, ctx, &mut || Ok(()))
        };
        for pass in Pass::ALL {
            let expected = pass_over(&reference(subject), pass, &Context::default())?;
            for ctx in [context(3, 1), context(3, 2)] {
                let found = pass_over(subject, pass, &ctx)?;
                pass.compare(subject, &format!("{n_cells} cells × {n_genes} genes"), &found, &expected)?;
            }
        }
    }
    Ok(())
}
