//! Planning: what merged summaries decide. Pure functions, the same on every machine.

use std::sync::Arc;

use super::params::{Params, RecipeVersion, Statistics};
use super::result::Warning;
use super::score::{self, Scores, median};
use crate::error::{Error, Result};
use crate::exact::{Arithmetic, CountSummary, MomentPlan, MomentSummary, TWO_40, share_weight, total_from_fixed};
use crate::kernels::OutputPlan;
use crate::matrix::Shape;

/// The smallest total of a kept gene, in units of 2^−40.
const LEAST_TOTAL: u128 = TWO_40 as u128;

/// Genes of fractional total between 0 and 1: they are removed, and must not count in cell totals, so that cells have to be
/// summed again without them. `None` where there is no such gene, as with counts.
pub fn genes_to_exclude(summary: &CountSummary) -> Option<Arc<[bool]>> {
    if summary.excluded().is_some() {
        return None;
    }
    let flags: Vec<bool> = summary.genes().iter().map(|gene| gene.total > 0 && gene.total < LEAST_TOTAL).collect();
    flags.contains(&true).then(|| flags.into())
}

/// The genes with a total of at least 1.
///
/// # Errors
/// [`ErrorKind::Input`](crate::ErrorKind::Input) if there is none.
pub fn kept_genes(summary: &CountSummary) -> Result<Vec<usize>> {
    let kept: Vec<usize> = (0..summary.n_genes()).filter(|&gene| summary.genes()[gene].total >= LEAST_TOTAL).collect();
    if kept.is_empty() {
        let complaint = if summary.facts().n_entries == 0 {
            "every count is 0"
        } else {
            "no gene has a total of at least 1 over all cells"
        };
        return Err(Error::input(complaint));
    }
    Ok(kept)
}

/// The total of every gene.
pub fn gene_totals(summary: &CountSummary) -> Vec<f64> {
    summary.genes().iter().map(|gene| total_from_fixed(gene.total)).collect()
}

/// The target sum: the median of the totals above 0. 1 if there are none.
pub fn target_sum(totals: impl IntoIterator<Item = f64>, round: impl Fn(f64) -> f64) -> f64 {
    let mut positive: Vec<f64> = totals.into_iter().filter(|&total| total > 0.0).collect();
    if positive.is_empty() { 1.0 } else { median(&mut positive, round) }
}

/// Means and variances (ddof 1) of normalised genes.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneStatistics {
    /// T.
    pub target_sum: f64,
    /// The mean of each kept gene.
    pub means: Vec<f64>,
    /// The variance of each kept gene.
    pub variances: Vec<f64>,
}

/// Statistics of the exact recipe, from the first summary alone: T is a factor applied after.
///
/// # Errors
/// [`ErrorKind::Internal`](crate::ErrorKind::Internal) if cells are missing from the summary.
pub fn exact_statistics(summary: &CountSummary, shape: Shape, kept: &[usize]) -> Result<GeneStatistics> {
    let target = target_sum(summary.cell_totals(shape.n_cells)?.iter().copied(), |x| x);
    let unit = 2_f64.powi(-52);
    let (means, variances) = kept
        .iter()
        .map(|&gene| {
            let sums = &summary.genes()[gene];
            let (mean, variance) = crate::exact::mean_and_variance(shape.n_cells as u64, sums.sum, sums.sum_of_squares);
            (target * (mean * unit), target * target * (variance * (unit * unit)))
        })
        .unzip();
    Ok(GeneStatistics { target_sum: target, means, variances })
}

/// The target sum of scanpy's 32-bit values: the median of the totals as `f32`.
pub fn float32_target(cell_totals: &[f64]) -> f64 {
    target_sum(cell_totals.iter().map(|&total| single(total)), single)
}

/// The moment pass that scanpy's 32-bit values need, for all cells or for some, given their totals and the target sum.
pub fn float32_moments(version: &RecipeVersion, target: f64, cell_totals: &[f64]) -> MomentPlan {
    let cell_scale = cell_totals.iter().map(|&total| single(single(total) / target)).collect();
    // A value is at most a little more than the target, since no entry exceeds its cell's total.
    let largest = if version.scored_on_logs { target.ln_1p() } else { target };
    let exponent = (largest * (1.0 + 1e-6)).log2().ceil() as i32;
    MomentPlan { cell_scale, arithmetic: Arithmetic::Float32 { log: version.scored_on_logs, exponent } }
}

/// Rounded to `f32`.
fn single(x: f64) -> f64 {
    f64::from(x as f32)
}

/// Statistics from the moments of scanpy's 32-bit values, by its formula.
pub fn float32_statistics(target: f64, plan: &MomentPlan, moments: &MomentSummary, kept: &[usize]) -> GeneStatistics {
    let n = moments.n_cells() as f64;
    let unit = plan.unit();
    let (means, variances) = kept
        .iter()
        .map(|&gene| {
            let sums = &moments.genes()[gene];
            let mean = sums.sum as f64 * unit / n;
            let mean_square = sums.sum_of_squares as f64 * (unit * unit) / n;
            (mean, (mean_square - mean * mean) * (n / (n - 1.0)))
        })
        .unzip();
    GeneStatistics { target_sum: target, means, variances }
}

/// Scores and the selection: what the statistics decide.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneSelection {
    /// Scores of the kept genes.
    pub scores: Scores,
    /// Positions of the selected genes among those of the input, increasing.
    pub selected: Vec<usize>,
    /// What a user should know.
    pub warnings: Vec<Warning>,
}

/// Scores the kept genes and selects the best.
///
/// # Errors
/// [`ErrorKind::Input`](crate::ErrorKind::Input) where the version refuses such data.
pub fn select_genes(params: &Params, kept: &[usize], statistics: &GeneStatistics) -> Result<GeneSelection> {
    if let Some(at) = statistics.means.iter().zip(&statistics.variances).position(|(m, v)| !(m + v).is_finite()) {
        return Err(Error::input(format!(
            "gene {}: its mean {} and variance {} are not finite numbers",
            kept[at], statistics.means[at], statistics.variances[at]
        )));
    }
    let scores = score::score(&params.version, &statistics.means, &statistics.variances)?;
    let (among_kept, mut warnings) = score::select(&params.version, &scores.scores, params.n_top_genes)?;
    if scores.collapsed_edges > 0 {
        warnings.push(Warning::CollapsedEdges { collapsed: scores.collapsed_edges });
    }
    let selected = among_kept.into_iter().map(|at| kept[at]).collect();
    Ok(GeneSelection { scores, selected, warnings })
}

/// The whole plan of the exact recipe from its one summary: kept genes, statistics, scores, selection.
///
/// # Errors
/// [`ErrorKind::Input`](crate::ErrorKind::Input) for data without counts or scores;
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for parameters that make no sense or a version that needs more than this
/// summary.
pub fn plan(
    summary: &CountSummary,
    shape: Shape,
    params: &Params,
) -> Result<(Vec<usize>, GeneStatistics, GeneSelection)> {
    params.check()?;
    if params.version.statistics != Statistics::Exact {
        return Err(Error::usage(format!("the version {} can't be planned from one summary", params.version.name)));
    }
    let kept = kept_genes(summary)?;
    let statistics = exact_statistics(summary, shape, &kept)?;
    let selection = select_genes(params, &kept, &statistics)?;
    Ok((kept, statistics, selection))
}

/// What a user should know of the values that came in. `duplicates` were summed into other entries of the same cell and gene.
pub fn input_warnings(params: &Params, summary: &CountSummary, duplicates: u64) -> Vec<Warning> {
    let facts = summary.facts();
    let mut warnings = Vec::new();
    if duplicates > 0 {
        warnings.push(Warning::Duplicates { entries: duplicates });
    }
    if facts.n_fractional > 0 {
        warnings.push(Warning::NotCounts { fractional: facts.n_fractional, entries: facts.n_entries });
        // Without a logarithm, data that are logarithmised already are what the recipe wants.
        if params.log && facts.largest < 30.0 {
            warnings.push(Warning::LooksLogged { largest: facts.largest });
        }
    }
    warnings
}

/// What a user should know of cells, from their totals and those over the selected genes.
pub fn cell_warnings(cell_totals: &[f64], hvg_totals: &[f64]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let empty = cell_totals.iter().filter(|&&total| total == 0.0).count();
    if empty > 0 {
        warnings.push(Warning::EmptyCells { cells: empty });
    }
    let empty_among_selected = hvg_totals.iter().filter(|&&total| total == 0.0).count() - empty;
    if empty_among_selected > 0 {
        warnings.push(Warning::EmptyAmongSelected { cells: empty_among_selected });
    }
    warnings
}

/// How the cells of the selected genes are scaled before the last moments are taken.
#[derive(Debug, Clone)]
pub struct CellScaling {
    /// T′, or T where the version doesn't renormalise.
    pub target_sum: f64,
    /// The factor of each cell; 0 for cells without selected genes.
    pub factors: Arc<[f64]>,
    /// The last moment pass.
    pub moments: MomentPlan,
    /// Whether values are logarithmised.
    pub log: bool,
}

/// The factors of cells: T′/h with T′ the median of h·T/t over the cells with h above 0.
///
/// `target_sum` is T, `cell_totals` are t and `hvg_totals` are h. `renormalised_target` sets T′ from outside.
pub fn cell_scaling(
    params: &Params,
    target_sum: f64,
    cell_totals: &[f64],
    hvg_totals: &[f64],
    renormalised_target: Option<f64>,
) -> CellScaling {
    let log = params.log || !params.version.renormalises;
    let own_target = self::target_sum(
        hvg_totals.iter().zip(cell_totals).filter(|(h, _)| **h > 0.0).map(|(h, t)| h * target_sum / t),
        |x| x,
    );
    let hvg_target = renormalised_target.unwrap_or(own_target);
    let (numerator, totals) =
        if params.version.renormalises { (hvg_target, hvg_totals) } else { (target_sum, cell_totals) };
    let factors: Arc<[f64]> = totals.iter().map(|&total| if total > 0.0 { numerator / total } else { 0.0 }).collect();
    let moments = if log {
        MomentPlan { cell_scale: Arc::clone(&factors), arithmetic: Arithmetic::Log }
    } else {
        let weights = totals.iter().map(|&total| share_weight(total)).collect();
        MomentPlan { cell_scale: weights, arithmetic: Arithmetic::Share }
    };
    CellScaling { target_sum: hvg_target, factors, moments, log }
}

/// The plan for the output, and the standard deviation of each selected gene, from the last moments.
pub fn output_plan(params: &Params, scaling: &CellScaling, moments: &MomentSummary) -> (OutputPlan, Vec<f64>) {
    // Without logarithms the moments are of shares, and T′ is a factor applied after.
    let unit = scaling.moments.unit() * if scaling.log { 1.0 } else { scaling.target_sum };
    let (mean, deviation): (Vec<f64>, Vec<f64>) = (0..moments.genes().len())
        .map(|gene| {
            let (mean, variance) = moments.mean_and_variance(gene);
            (mean * unit, variance.sqrt() * unit)
        })
        .unzip();
    let inverse_deviation = deviation.iter().map(|&d| if d > 0.0 { 1.0 / d } else { 0.0 }).collect();
    let plan = OutputPlan {
        cell_scale: Arc::clone(&scaling.factors),
        log: scaling.log,
        mean,
        inverse_deviation,
        max_value: params.max_value,
    };
    (plan, deviation)
}
