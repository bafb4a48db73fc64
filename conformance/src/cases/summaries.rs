//! What the trait says of the summaries that the fused recipe asks for, and of what it makes of its plan.

use std::sync::Arc;

use zheng17_core::backend::{Determinism, Gram, Projection, RowSink};
use zheng17_core::exact::{Arithmetic, CountSummary, MomentPlan, MomentSummary};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{CsrBuffer, ValueKind};
use zheng17_core::{Context, ErrorKind, Selection, SparseBackend as _};

use crate::dense::{Dense, mean, variance};
use crate::inputs::{context, contexts, from_fn, matrices, open, rows, unsorted};
use crate::suite::{Case, Outcome, Stop, Subject};
use crate::tolerance::{Against, Quantity, compare, tolerance};
use crate::{case_list, ensure, ensure_eq};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = case_list!("count_summary": bits_of_the_fold, bits_of_the_fold_with_excluded_genes,
        bits_of_the_fold_for_selected_genes, a_total_above_2_to_53_is_an_error);
    cases.extend(case_list!("moment_summary": shares_have_the_bits_of_the_fold, logarithms_have_the_bits_of_the_fold,
        scanpy_values_have_the_bits_of_the_fold, values_above_the_plan_do_not_overflow));
    cases.extend(case_list!("gram": products_of_all_pairs, chunks_and_threads_never_change_a_bit));
    cases.extend(case_list!("project": scores_of_the_centred_scaled_matrix));
    cases.extend(case_list!("scaled": values_of_the_plan_rounded_once));
    cases.extend(case_list!("normalised": values_of_the_plan_rounded_once_in_sorted_rows));
    cases
}

// count_summary

fn expect_fold(subject: &Subject, what: &str, input: &CsrBuffer, excluded: Option<&Arc<[bool]>>) -> Outcome {
    let mut expected = CountSummary::new(input.n_genes, excluded.cloned());
    expected.fold(input.view())?;
    for ctx in contexts() {
        let matrix = open(subject, input, &ctx)?;
        let found = subject.backend.count_summary(&matrix, excluded, &ctx)?;
        ensure!(found.to_bytes() == expected.to_bytes(), "{what}: other bits than CountSummary::fold");
    }
    Ok(())
}

fn bits_of_the_fold(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        expect_fold(subject, name, &input, None)?;
    }
    Ok(())
}

fn bits_of_the_fold_with_excluded_genes(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        let excluded: Arc<[bool]> = (0..input.n_genes).map(|gene| gene % 3 == 1).collect();
        expect_fold(subject, name, &input, Some(&excluded))?;
        // Cells whose genes are all excluded have a total of 0.
        let all: Arc<[bool]> = vec![true; input.n_genes].into();
        expect_fold(subject, name, &input, Some(&all))?;
    }
    Ok(())
}

fn bits_of_the_fold_for_selected_genes(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        let genes: Vec<usize> = (0..input.n_genes).filter(|gene| gene % 4 != 2).collect();
        let dense = Dense::of(&input).select(&(0..input.n_cells()).collect::<Vec<_>>(), &genes);
        let mut expected = CountSummary::new(genes.len(), None);
        expected.fold(from_fn(dense.n_cells, dense.n_genes, |cell, gene| dense.at(cell, gene)).view())?;
        for ctx in contexts() {
            let matrix = open(subject, &input, &ctx)?;
            let selected = subject.backend.select(&matrix, &Selection::All, &Selection::Indices(genes.clone()))?;
            let found = subject.backend.count_summary(&selected, None, &ctx)?;
            ensure!(found.to_bytes() == expected.to_bytes(), "{name}: other bits than CountSummary::fold");
        }
    }
    Ok(())
}

fn a_total_above_2_to_53_is_an_error(subject: &Subject) -> Outcome {
    let large = 2_f64.powi(53);
    let cells: [&[(u32, f64)]; 3] = [&[(0, 1.0)], &[(0, large), (2, large)], &[(1, large)]];
    let input = rows(3, cells);
    for ctx in contexts() {
        let matrix = open(subject, &input, &ctx)?;
        let Err(error) = subject.backend.count_summary(&matrix, None, &ctx) else {
            return Err(Stop::Failed("a total of 2^54 was accepted".to_owned()));
        };
        ensure_eq!(error.kind(), ErrorKind::Input, "kind of error");
        ensure!(error.to_string().contains("cell 1"), "the error doesn't name the cell: {error}");
    }
    Ok(())
}

// moment_summary

fn expect_moments(subject: &Subject, what: &str, input: &CsrBuffer, plan: &MomentPlan) -> Outcome {
    let mut expected = MomentSummary::new(input.n_genes);
    expected.fold(input.view(), plan);
    let log = matches!(plan.arithmetic, Arithmetic::Log | Arithmetic::Float32 { log: true, .. });
    for ctx in contexts() {
        let matrix = open(subject, input, &ctx)?;
        let found = subject.backend.moment_summary(&matrix, plan, &ctx)?;
        if log && subject.capabilities().determinism == Determinism::SameBitsUpToLog {
            ensure_eq!(found.n_cells(), expected.n_cells(), "number of cells");
            let moments = |summary: &MomentSummary| -> Vec<f64> {
                (0..input.n_genes).flat_map(|gene| <[f64; 2]>::from(summary.mean_and_variance(gene))).collect()
            };
            let against = Against::Reference(Determinism::SameBitsUpToLog);
            compare(what, Quantity::Value, against, &moments(&found), &moments(&expected))?;
        } else {
            ensure!(found.to_bytes() == expected.to_bytes(), "{what}: other bits than MomentSummary::fold");
        }
    }
    Ok(())
}

pub(super) fn totals(input: &CsrBuffer) -> Vec<f64> {
    let dense = Dense::of(input);
    (0..dense.n_cells).map(|cell| dense.cell(cell).iter().sum()).collect()
}

fn shares_have_the_bits_of_the_fold(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        let cell_scale = totals(&input).iter().map(|t| if *t > 0.0 { 2_f64.powi(52) / t } else { 0.0 }).collect();
        expect_moments(subject, name, &input, &MomentPlan { cell_scale, arithmetic: Arithmetic::Share })?;
    }
    Ok(())
}

fn logarithms_have_the_bits_of_the_fold(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        let cell_scale = totals(&input).iter().map(|t| if *t > 0.0 { 1234.5 / t } else { 0.0 }).collect();
        expect_moments(subject, name, &input, &MomentPlan { cell_scale, arithmetic: Arithmetic::Log })?;
    }
    Ok(())
}

fn scanpy_values_have_the_bits_of_the_fold(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        let cell_scale: Arc<[f64]> = totals(&input).iter().map(|t| f64::from((t / 777.0) as f32)).collect();
        for (log, exponent) in [(false, 10), (true, 3)] {
            let plan =
                MomentPlan { cell_scale: Arc::clone(&cell_scale), arithmetic: Arithmetic::Float32 { log, exponent } };
            expect_moments(subject, name, &input, &plan)?;
        }
    }
    Ok(())
}

fn values_above_the_plan_do_not_overflow(subject: &Subject) -> Outcome {
    // A gene that was removed may be far above its cell's total, which leaves it out.
    let input = from_fn(12, 2, |cell, _| 0.4 + cell as f64);
    for log in [false, true] {
        let plan =
            MomentPlan { cell_scale: vec![1e-12; 12].into(), arithmetic: Arithmetic::Float32 { log, exponent: 1 } };
        expect_moments(subject, "values above 2^exponent", &input, &plan)?;
    }
    Ok(())
}

// gram, project, scaled, normalised

/// A matrix of selected genes and a plan for it; gene 2 has no deviation.
pub(super) fn planned(input: &CsrBuffer, log: bool, max_value: Option<f64>) -> OutputPlan {
    let totals = totals(input);
    let cell_scale: Arc<[f64]> = totals.iter().map(|t| if *t > 0.0 { 50.0 / t } else { 0.0 }).collect();
    let mut plan = OutputPlan {
        cell_scale,
        log,
        mean: vec![0.0; input.n_genes],
        inverse_deviation: vec![0.0; input.n_genes],
        max_value,
    };
    let values = normalised(input, &plan);
    for gene in 0..input.n_genes {
        let deviation = variance(&values.gene(gene)).sqrt();
        plan.mean[gene] = mean(&values.gene(gene));
        plan.inverse_deviation[gene] = if deviation > 0.0 && gene != 2 { 1.0 / deviation } else { 0.0 };
    }
    plan
}

fn normalised(input: &CsrBuffer, plan: &OutputPlan) -> Dense {
    let dense = Dense::of(input);
    Dense::from_fn(dense.n_cells, dense.n_genes, |cell, gene| {
        plan.normalised(dense.at(cell, gene), plan.cell_scale[cell])
    })
}

fn scaled(input: &CsrBuffer, plan: &OutputPlan) -> Dense {
    let values = normalised(input, plan);
    Dense::from_fn(values.n_cells, values.n_genes, |cell, gene| plan.scaled(values.at(cell, gene), gene))
}

fn plans(input: &CsrBuffer) -> Vec<OutputPlan> {
    vec![planned(input, true, None), planned(input, false, None), planned(input, true, Some(0.8))]
}

fn planned_matrices() -> Vec<(&'static str, CsrBuffer)> {
    matrices().into_iter().filter(|(name, _)| *name != "large counts").collect()
}

fn products_of_all_pairs(subject: &Subject) -> Outcome {
    for (name, input) in planned_matrices() {
        for plan in plans(&input) {
            // What entries add to the row of a cell without entries.
            let zero = plan.zero_values();
            let (values, scaled) = (Dense::of(&input), scaled(&input, &plan));
            let added = Dense::from_fn(values.n_cells, values.n_genes, |cell, gene| {
                if values.at(cell, gene) == 0.0 { 0.0 } else { scaled.at(cell, gene) - zero[gene] }
            });
            let mut products = vec![0.0; input.n_genes * input.n_genes];
            for a in 0..input.n_genes {
                for b in 0..=a {
                    products[a * input.n_genes + b] = added.gene(a).iter().zip(added.gene(b)).map(|(x, y)| x * y).sum();
                }
            }
            let sums: Vec<f64> = (0..input.n_genes).map(|gene| added.gene(gene).iter().sum()).collect();
            for ctx in contexts() {
                let gram = subject.backend.gram(&open(subject, &input, &ctx)?, &plan, &ctx)?;
                ensure_eq!(gram.n_genes, input.n_genes, "number of genes of {name}");
                for gene in 0..input.n_genes {
                    // Only what stands up to the diagonal counts.
                    let row = gene * input.n_genes..gene * (input.n_genes + 1) + 1;
                    let what = format!("products of {name} with gene {gene}");
                    let (found, expected) = (&gram.products[row.clone()], &products[row]);
                    compare(&what, Quantity::Value, Against::Float64, found, expected)?;
                }
                compare(&format!("sums of {name}"), Quantity::Value, Against::Float64, &gram.sums, &sums)?;
            }
        }
    }
    Ok(())
}

fn chunks_and_threads_never_change_a_bit(subject: &Subject) -> Outcome {
    // More cells than the blocks of 4,096 that are summed one by one.
    let input = unsorted(&from_fn(9000, 7, |cell, gene| ((cell * 31 + gene * 17) % 11) as f64 / 3.0), 4);
    let plan = planned(&input, true, None);
    let mut first: Option<Gram> = None;
    for (chunk_rows, threads) in [(4096, 1), (1, 2), (999, 3), (5000, 5), (20_000, 1)] {
        let ctx = context(chunk_rows, threads);
        let gram = subject.backend.gram(&open(subject, &input, &ctx)?, &plan, &ctx)?;
        let first = first.get_or_insert_with(|| gram.clone());
        ensure!(gram == *first, "chunks of {chunk_rows} cells, {threads} threads: other bits");
    }
    Ok(())
}

/// Rows as a sink receives them; they must come in cell order.
fn collect(n_columns: usize, give: impl FnOnce(&mut RowSink<'_>) -> zheng17_core::Result<()>) -> Result<Dense, Stop> {
    let mut values: Vec<f64> = Vec::new();
    let mut misplaced = None;
    give(&mut |first_cell, rows| {
        if first_cell * n_columns != values.len() {
            misplaced.get_or_insert(first_cell);
        }
        values.extend(rows.iter().map(|&x| f64::from(x)));
        Ok(())
    })?;
    match misplaced {
        Some(cell) => Err(Stop::Failed(format!("rows of cell {cell} came out of order"))),
        None => Ok(Dense { n_cells: values.len() / n_columns, n_genes: n_columns, values }),
    }
}

fn scores_of_the_centred_scaled_matrix(subject: &Subject) -> Outcome {
    for (name, input) in planned_matrices() {
        for plan in plans(&input) {
            let n_components = 3;
            let weights: Vec<f64> =
                (0..input.n_genes * n_components).map(|at| (at * 7 % 11) as f64 / 11.0 - 0.4).collect();
            let zero = plan.zero_values();
            let scaled = scaled(&input, &plan);
            let weight = |gene: usize, component: usize| weights[gene * n_components + component];
            let offset: Vec<f64> = (0..n_components).map(|k| 0.25 + k as f64).collect();
            let expected = Dense::from_fn(scaled.n_cells, n_components, |cell, k| {
                (0..input.n_genes).map(|gene| (scaled.at(cell, gene) - zero[gene]) * weight(gene, k)).sum::<f64>()
                    - offset[k]
            });
            let projection = Projection { n_components, weights: weights.clone(), offset: offset.clone() };
            for ctx in contexts() {
                let matrix = open(subject, &input, &ctx)?;
                let found =
                    collect(n_components, |sink| subject.backend.project(&matrix, &plan, &projection, &ctx, sink))?;
                found.expect(name, &expected, tolerance(Quantity::Value, Against::Float32))?;
            }
        }
    }
    Ok(())
}

fn values_of_the_plan_rounded_once(subject: &Subject) -> Outcome {
    let tolerance = tolerance(Quantity::Value, Against::Reference(subject.capabilities().determinism));
    for (name, input) in planned_matrices() {
        for plan in plans(&input) {
            let expected = scaled(&input, &plan).map(|x| f64::from(x as f32));
            for ctx in contexts() {
                let matrix = open(subject, &input, &ctx)?;
                let found = collect(input.n_genes, |sink| subject.backend.scaled(&matrix, &plan, &ctx, sink))?;
                found.expect(name, &expected, tolerance)?;
                let mut whole = vec![f32::NAN; input.n_cells() * input.n_genes];
                subject.backend.scaled_into(&matrix, &plan, &ctx, &mut whole)?;
                let same = whole.iter().zip(&found.values).all(|(&a, &b)| f64::from(a) == b);
                ensure!(same && whole.len() == found.values.len(), "{name}: another matrix at once than row by row");
                let refused = subject.backend.scaled_into(&matrix, &plan, &ctx, &mut whole[1..]);
                ensure!(refused.is_err(), "{name}: a matrix of another size was taken");
            }
        }
    }
    Ok(())
}

fn values_of_the_plan_rounded_once_in_sorted_rows(subject: &Subject) -> Outcome {
    let tolerance = tolerance(Quantity::Value, Against::Reference(subject.capabilities().determinism));
    for (name, input) in planned_matrices() {
        for plan in plans(&input) {
            let expected = normalised(&input, &plan).map(|x| f64::from(x as f32));
            for ctx in contexts() {
                let matrix = open(subject, &input, &ctx)?;
                let found = collect_sparse(subject, &matrix, &plan, &ctx)?;
                found.expect(name, &expected, tolerance)?;
            }
        }
    }
    Ok(())
}

fn collect_sparse(
    subject: &Subject,
    matrix: &zheng17_core::backend::AnyMatrix,
    plan: &OutputPlan,
    ctx: &Context,
) -> Result<Dense, Stop> {
    let mut all = CsrBuffer::new(plan.n_genes(), ValueKind::F32);
    let mut fault = None;
    subject.backend.normalised(matrix, plan, ctx, &mut |chunk| {
        if chunk.first_cell() != all.n_cells() {
            fault.get_or_insert(format!("rows of cell {} came out of order", chunk.first_cell()));
        }
        for row in 0..chunk.n_cells() {
            if !chunk.row_indices(row).is_sorted_by(|a, b| a < b) {
                fault.get_or_insert(format!("the row of cell {} is not sorted", chunk.first_cell() + row));
            }
        }
        all.append(chunk);
        Ok(())
    })?;
    ensure_eq!(all.values.kind(), ValueKind::F32, "number type");
    match fault {
        Some(fault) => Err(Stop::Failed(fault)),
        None => Ok(Dense::of(&all)),
    }
}
