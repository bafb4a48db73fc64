//! The paper's steps, one by one, through a backend's operations alone: an independent check of the fused recipe.
//!
//! Ordinary 64-bit arithmetic on whole matrices, as the investigation of 2019 composed it: nothing is fused, nothing exact,
//! and the scaled matrix is made. For data that fit into memory several times.

use std::sync::Arc;

use super::params::Params;
use super::plan::target_sum;
use super::score;
use crate::backend::{Axis, Reduction, SparseBackend, Statistic, Transform, ZeroPreserving};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::matrix::{Selection, ValueKind};
use crate::source::{CheckedSource, ChunkSource};

/// What the steps give.
#[derive(Debug, Clone, PartialEq)]
pub struct Stepwise {
    /// Positions of the genes with a total of at least 1.
    pub kept_genes: Vec<usize>,
    /// The total of each cell over kept genes.
    pub cell_totals: Vec<f64>,
    /// The mean of each kept gene, normalised.
    pub means: Vec<f64>,
    /// Variance over mean of each kept gene.
    pub dispersions: Vec<f64>,
    /// The normalised dispersion of each kept gene.
    pub scores: Vec<f64>,
    /// Positions of the selected genes.
    pub selected: Vec<usize>,
    /// The mean of each selected gene before scaling.
    pub scale_mean: Vec<f64>,
    /// The standard deviation of each selected gene before scaling.
    pub scale_deviation: Vec<f64>,
    /// The scaled matrix, cells × selected genes, row by row.
    pub scaled: Vec<f64>,
}

/// Runs the steps of the exact version.
///
/// # Errors
/// Those of the backend, of reading, and of data that can't be scored.
pub fn run<B: SparseBackend>(
    backend: &B,
    source: Arc<dyn ChunkSource>,
    params: &Params,
    ctx: &Context,
) -> Result<Stepwise> {
    params.check()?;
    let sum = |axis| Reduction { axis, statistic: Statistic::Sum };
    let one = |matrix: &B::Matrix, reduction: Reduction| -> Result<Vec<f64>> {
        let mut results = backend.reduce(matrix, &[reduction], ctx)?.into_iter();
        results.next().ok_or_else(|| Error::internal("a reduction without a result"))
    };

    // 1. Filter genes.
    let counts = backend.open(Arc::new(CheckedSource::new(source)?), ctx)?;
    let counts = backend.transform(&counts, &Transform::Cast(ValueKind::F64))?;
    let keep: Vec<bool> = one(&counts, sum(Axis::Genes))?.iter().map(|&total| total >= 1.0).collect();
    let kept_genes: Vec<usize> = (0..keep.len()).filter(|&gene| keep[gene]).collect();
    let counts = backend.select(&counts, &Selection::All, &Selection::Mask(keep))?;

    // 2. Normalise cells.
    let cell_totals = one(&counts, sum(Axis::Cells))?;
    let normalised = normalise(backend, &counts, &cell_totals)?;

    // 3. Score genes: the variance from the mean of squares.
    let n = backend.shape(&normalised).n_cells as f64;
    let mean = Reduction { axis: Axis::Genes, statistic: Statistic::Mean };
    let means = one(&normalised, mean)?;
    let mean_squares = one(&backend.multiply(&normalised, &normalised)?, mean)?;
    let variances: Vec<f64> =
        means.iter().zip(&mean_squares).map(|(m, s)| ((s - m * m) * n / (n - 1.0)).max(0.0)).collect();
    let scores = score::score(&params.version, &means, &variances)?;

    // 4. Select genes.
    let (among_kept, _) = score::select(&params.version, &scores.scores, params.n_top_genes)?;
    let selected: Vec<usize> = among_kept.iter().map(|&at| kept_genes[at]).collect();
    let values = backend.select(&normalised, &Selection::All, &Selection::Indices(among_kept))?;

    // 5. Renormalise. 6. log1p.
    let hvg_totals = one(&values, sum(Axis::Cells))?;
    let mut values = normalise(backend, &values, &hvg_totals)?;
    if params.log {
        values = backend.transform(&values, &Transform::Map(ZeroPreserving::Log1p))?;
    }

    // 7. Scale.
    let variance = Reduction { axis: Axis::Genes, statistic: Statistic::Variance };
    let mut results = backend.reduce(&values, &[mean, variance], ctx)?.into_iter();
    let (Some(scale_mean), Some(variances)) = (results.next(), results.next()) else {
        return Err(Error::internal("a reduction without a result"));
    };
    let scale_deviation: Vec<f64> = variances.iter().map(|variance| variance.sqrt()).collect();
    let n_genes = selected.len();
    let mut scaled = vec![0.0; backend.shape(&values).n_cells * n_genes];
    backend.visit(&values, ctx, &mut |chunk| {
        for row in 0..chunk.n_cells() {
            let dense = &mut scaled[(chunk.first_cell() + row) * n_genes..][..n_genes];
            for (at, &gene) in chunk.row_indices(row).iter().enumerate() {
                dense[gene as usize] = chunk.row_values(row).get(at);
            }
        }
        Ok(())
    })?;
    for dense in scaled.chunks_exact_mut(n_genes) {
        for (gene, value) in dense.iter_mut().enumerate() {
            let deviation = if scale_deviation[gene] > 0.0 { scale_deviation[gene] } else { 1.0 };
            *value = (*value - scale_mean[gene]) / deviation;
            if let Some(largest) = params.max_value {
                *value = value.clamp(-largest, largest);
            }
        }
    }
    Ok(Stepwise {
        kept_genes,
        cell_totals,
        means,
        dispersions: scores.dispersions,
        scores: scores.scores,
        selected,
        scale_mean,
        scale_deviation,
        scaled,
    })
}

/// Scales each cell to the median of the totals above 0.
fn normalise<B: SparseBackend>(backend: &B, matrix: &B::Matrix, totals: &[f64]) -> Result<B::Matrix> {
    let target = target_sum(totals.iter().copied(), |x| x);
    let factors = totals.iter().map(|&total| if total > 0.0 { target / total } else { 0.0 }).collect();
    backend.transform(matrix, &Transform::ScaleCells(factors))
}
