//! The recipe on generated inputs: fused against stepwise, each version against its second statement, and the same bits
//! however it runs.

use std::sync::Arc;

use zheng17_core::backend::Determinism;
use zheng17_core::backend::chunked::KernelBackend;
use zheng17_core::kernels::ScalarKernels;
use zheng17_core::matrix::{CsrBuffer, ValueKind};
use zheng17_core::recipe::{self, Components, Outcome as RunOutcome, Params, RecipeResult, RecipeVersion, stepwise};
use zheng17_core::{Context, SparseBackend};

use crate::dense::Dense;
use crate::inputs::{cast, context, contexts, expression, source, unsorted};
use crate::statement::{Asked, Statement, state};
use crate::suite::{Case, Outcome, Requirement, Stop, Subject};
use crate::tolerance::{Against, Quantity, compare, tolerance};
use crate::{case_list, ensure, ensure_eq};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = case_list!("recipe": stepwise_agrees_with_fused, same_bits_for_32_and_64_bit_values,
        same_bits_for_any_order_within_rows);
    for version in RecipeVersion::ALL {
        let of_version = [
            Case::new(format!("recipe::{}_agrees_with_its_statement", version.name), move |subject| {
                agrees_with_statement(subject, version)
            }),
            Case::new(format!("recipe::{}_same_bits_for_any_chunks_and_threads", version.name), move |subject| {
                same_bits_for_any_chunks_and_threads(subject, version)
            }),
            Case::new(format!("recipe::{}_same_bits_as_the_scalar_kernels", version.name), move |subject| {
                same_bits_as_the_scalar_kernels(subject, version)
            }),
        ];
        cases.extend(of_version.map(|case| super::for_version(case, version)));
    }
    cases
}

/// Inputs of different sizes and number types.
pub(super) fn inputs() -> Vec<(&'static str, CsrBuffer)> {
    vec![
        ("300 cells of 400 genes", expression(11, 300, 400)),
        ("60 cells of 900 genes", expression(12, 60, 900)),
        ("500 cells of 150 genes, 64 bits", cast(expression(13, 500, 150), ValueKind::F64)),
    ]
}

/// Everything that a run gives.
pub(super) struct Everything {
    pub(super) result: RecipeResult,
    pub(super) scaled: Dense,
    pub(super) normalised: Dense,
    pub(super) scores: Option<Dense>,
}

pub(super) fn run(subject: &Subject, input: &CsrBuffer, params: &Params, ctx: &Context) -> Result<Everything, Stop> {
    let outcome = recipe::run(Arc::clone(&subject.backend), source(input.clone())?, params, ctx)?;
    everything(&outcome, ctx)
}

pub(super) fn everything<B: SparseBackend>(outcome: &RunOutcome<B>, ctx: &Context) -> Result<Everything, Stop> {
    let n_cells = outcome.result.cells.len();
    let n_genes = outcome.result.selected.len();
    let dense = |n_columns: usize, values: Vec<f32>| Dense {
        n_cells,
        n_genes: n_columns,
        values: values.into_iter().map(f64::from).collect(),
    };
    let mut scaled = Vec::new();
    outcome.scaled(ctx, &mut |_, rows| {
        scaled.extend_from_slice(rows);
        Ok(())
    })?;
    let mut normalised = CsrBuffer::new(n_genes, ValueKind::F32);
    outcome.normalised(ctx, &mut |chunk| {
        normalised.append(chunk);
        Ok(())
    })?;
    let scores = match &outcome.result.pca {
        None => None,
        Some(pca) => {
            let mut scores = Vec::new();
            outcome.scores(ctx, &mut |_, rows| {
                scores.extend_from_slice(rows);
                Ok(())
            })?;
            Some(dense(pca.n_components, scores))
        }
    };
    Ok(Everything {
        scaled: dense(n_genes, scaled),
        normalised: Dense::of(&normalised),
        scores,
        result: outcome.result.clone(),
    })
}

fn stepwise_agrees_with_fused(subject: &Subject) -> Outcome {
    for (name, input) in inputs() {
        for (log, max_value) in [(true, None), (false, None), (true, Some(1.5))] {
            let params = Params { n_top_genes: 50, log, max_value, ..Params::default() };
            let fused = run(subject, &input, &params, &context(64, 2))?;
            let steps = stepwise::run(subject.backend.as_ref(), source(input.clone())?, &params, &context(100, 1))?;
            let result = &fused.result;
            ensure_eq!(result.kept_genes, steps.kept_genes, "kept genes of {name}");
            ensure_eq!(result.selected, steps.selected, "selected genes of {name}");
            let against = Against::Float64;
            compare("totals of cells", Quantity::Total, against, &result.cell_totals, &steps.cell_totals)?;
            compare("means", Quantity::Value, against, &result.means, &steps.means)?;
            compare("dispersions", Quantity::Value, against, &result.dispersions, &steps.dispersions)?;
            compare("scores", Quantity::Value, against, &result.scores, &steps.scores)?;
            compare("mean of scaling", Quantity::Value, against, &result.scale_mean, &steps.scale_mean)?;
            compare("deviation of scaling", Quantity::Value, against, &result.scale_deviation, &steps.scale_deviation)?;
            let tolerance = tolerance(Quantity::Value, Against::Float32);
            tolerance.compare("scaled values", &fused.scaled.values, &steps.scaled)?;
        }
    }
    Ok(())
}

/// Compares a run with the statement of its version.
pub(super) fn expect_statement(found: &Everything, expected: &Statement) -> Outcome {
    let result = &found.result;
    let (value, against) = (Quantity::Value, Against::Float64);
    ensure_eq!(result.kept_genes, expected.kept_genes, "kept genes");
    ensure_eq!(result.cells, expected.cells, "cells");
    compare("T", Quantity::Total, against, &[result.target_sum], &[expected.target_sum])?;
    compare("totals of cells", Quantity::Total, against, &result.cell_totals, &expected.cell_totals)?;
    compare("means", value, against, &result.means, &expected.means)?;
    compare("dispersions", value, against, &result.dispersions, &expected.dispersions)?;
    compare("scores", value, against, &result.scores, &expected.scores)?;
    ensure_eq!(result.selected, expected.selected, "selected genes");
    compare("totals over selected genes", Quantity::Total, against, &result.hvg_totals, &expected.hvg_totals)?;
    compare("T′", Quantity::Total, against, &[result.hvg_target_sum], &[expected.hvg_target_sum])?;
    compare("mean of scaling", value, against, &result.scale_mean, &expected.scale_mean)?;
    compare("deviation of scaling", value, against, &result.scale_deviation, &expected.scale_deviation)?;
    found.scaled.expect("scaled values", &expected.scaled, tolerance(value, Against::Float32))
}

fn agrees_with_statement(subject: &Subject, version: RecipeVersion) -> Outcome {
    for (name, input) in inputs() {
        for (n_top, log, max_value) in [(50, true, None), (7, false, None), (90, true, Some(2.0))] {
            let params = Params { version, n_top_genes: n_top, log, max_value, components: None };
            let found = run(subject, &input, &params, &context(64, 2))?;
            let asked = Asked { version, n_top, log, max_value };
            let Some(expected) = state(&Dense::of(&input), asked) else {
                return Err(Stop::Failed(format!("{name}: the statement stops")));
            };
            expect_statement(&found, &expected)
                .map_err(|stop| Stop::Failed(format!("{name}, {n_top} genes: {stop:?}")))?;
        }
    }
    Ok(())
}

/// Every bit of a run, as text: `Debug` writes floats so that they can be read back, NaN and the sign of zero included.
fn bits(everything: &Everything) -> String {
    format!("{:?} {:?} {:?} {:?}", everything.result, everything.scaled, everything.normalised, everything.scores)
}

fn params(version: RecipeVersion) -> Params {
    Params { version, n_top_genes: 40, components: Some(Components::Exactly(10)), ..Params::default() }
}

fn same_bits_for_any_chunks_and_threads(subject: &Subject, version: RecipeVersion) -> Outcome {
    for (name, input) in inputs() {
        let whole = bits(&run(subject, &input, &params(version), &Context::default())?);
        for ctx in contexts() {
            let found = bits(&run(subject, &input, &params(version), &ctx)?);
            ensure!(
                found == whole,
                "{name}: chunks of {}, {} threads give other bits",
                ctx.rows_per_chunk(),
                ctx.threads
            );
        }
    }
    Ok(())
}

fn same_bits_for_32_and_64_bit_values(subject: &Subject) -> Outcome {
    for (name, input) in inputs() {
        let run = |kind| run(subject, &cast(input.clone(), kind), &params(RecipeVersion::EXACT), &Context::default());
        ensure!(bits(&run(ValueKind::F32)?) == bits(&run(ValueKind::F64)?), "{name}: other bits");
    }
    Ok(())
}

fn same_bits_for_any_order_within_rows(subject: &Subject) -> Outcome {
    for version in RecipeVersion::ALL {
        if version == RecipeVersion::SCANPY_1_4 && !Requirement::OrderedFold.is_met_by(subject.capabilities()) {
            continue;
        }
        for (name, input) in inputs() {
            let mut sorted = input.clone();
            sorted.sort_rows();
            let run = |input: &CsrBuffer| run(subject, input, &params(version), &context(50, 2));
            let sorted = bits(&run(&sorted)?);
            for seed in 0..2 {
                let other = bits(&run(&unsorted(&input, seed))?);
                ensure!(other == sorted, "{name}, {}: rows in another order give other bits", version.name);
            }
        }
    }
    Ok(())
}

fn same_bits_as_the_scalar_kernels(subject: &Subject, version: RecipeVersion) -> Outcome {
    let determinism = subject.capabilities().determinism;
    let reference = Arc::new(KernelBackend::new(ScalarKernels, subject.capabilities().clone()));
    for (name, input) in inputs() {
        let ctx = context(128, 4);
        let found = run(subject, &input, &params(version), &ctx)?;
        let outcome = recipe::run(Arc::clone(&reference), source(input)?, &params(version), &Context::default())?;
        let expected = everything(&outcome, &Context::default())?;
        if determinism == Determinism::SameBits {
            ensure!(bits(&found) == bits(&expected), "{name}: other bits");
            continue;
        }
        let (found_result, expected_result) = (&found.result, &expected.result);
        ensure_eq!(found_result.digest, expected_result.digest, "digest of {name}");
        ensure_eq!(found_result.selected, expected_result.selected, "selected genes of {name}");
        let against = Against::Reference(determinism);
        compare("scores", Quantity::Value, against, &found_result.scores, &expected_result.scores)?;
        compare("mean of scaling", Quantity::Value, against, &found_result.scale_mean, &expected_result.scale_mean)?;
        let tolerance = tolerance(Quantity::Value, against);
        found.scaled.expect("scaled values", &expected.scaled, tolerance)?;
        found.normalised.expect("normalised values", &expected.normalised, tolerance)?;
    }
    Ok(())
}
