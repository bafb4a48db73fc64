//! The recipe on matrices with every value written out: a second, slow statement of each version in plain arithmetic.
//!
//! It shares no code with core's recipe, so that one checks the other. Wrong numbers don't come here.

use zheng17_core::recipe::RecipeVersion;

use crate::dense::{Dense, mean, variance};

/// What the recipe gives.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) kept_genes: Vec<usize>,
    pub(crate) cells: Vec<usize>,
    pub(crate) cell_totals: Vec<f64>,
    pub(crate) target_sum: f64,
    pub(crate) means: Vec<f64>,
    pub(crate) dispersions: Vec<f64>,
    pub(crate) scores: Vec<f64>,
    pub(crate) selected: Vec<usize>,
    pub(crate) hvg_totals: Vec<f64>,
    pub(crate) hvg_target_sum: f64,
    pub(crate) scale_mean: Vec<f64>,
    pub(crate) scale_deviation: Vec<f64>,
    pub(crate) scaled: Dense,
}

/// What is asked of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) version: RecipeVersion,
    pub(crate) n_top: usize,
    pub(crate) log: bool,
    pub(crate) max_value: Option<f64>,
}

/// States the recipe; `None` where the version stops because fewer genes have a score than are asked for.
pub(crate) fn state(counts: &Dense, asked: Asked) -> Option<Statement> {
    let name = asked.version.name;
    let kept_genes: Vec<usize> =
        (0..counts.n_genes).filter(|&gene| counts.gene(gene).iter().sum::<f64>() >= 1.0).collect();
    let all: Vec<usize> = (0..counts.n_cells).collect();
    let kept = counts.select(&all, &kept_genes);
    let total_of = |matrix: &Dense, cell: usize| matrix.cell(cell).iter().sum::<f64>();

    // Cells, and genes by their statistics.
    let mut cells = all;
    if name == "scanpy-1.4" {
        cells.retain(|&cell| total_of(&kept, cell) >= 1.0);
    }
    let counts_of_cells = kept.select(&cells, &(0..kept.n_genes).collect::<Vec<_>>());
    let totals: Vec<f64> = (0..cells.len()).map(|cell| total_of(&counts_of_cells, cell)).collect();
    let (target_sum, means, variances) = match name {
        "exact" => float64_statistics(&counts_of_cells, &totals),
        "scanpy-1.4" => ordered_float32_statistics(&counts_of_cells, &totals),
        _ => float32_statistics(&counts_of_cells, &totals, name == "scanpy-main"),
    };
    let (dispersions, scores) = score(&means, &variances, name);
    let among_kept = select(&scores, asked.n_top, name)?;

    // The selected genes.
    let mut values = counts_of_cells.select(&(0..cells.len()).collect::<Vec<_>>(), &among_kept);
    let mut totals = totals;
    if name == "scanpy-1.4" {
        let large: Vec<usize> =
            (0..cells.len()).filter(|&at| total_of(&values, at) * target_sum / totals[at] >= 1.0).collect();
        values = values.select(&large, &(0..among_kept.len()).collect::<Vec<_>>());
        totals = large.iter().map(|&at| totals[at]).collect();
        cells = large.iter().map(|&at| cells[at]).collect();
    }
    let hvg_totals: Vec<f64> = (0..cells.len()).map(|cell| total_of(&values, cell)).collect();
    let normalised: Vec<f64> =
        hvg_totals.iter().zip(&totals).filter(|(h, _)| **h > 0.0).map(|(h, t)| h * target_sum / t).collect();
    let hvg_target_sum = median(&normalised, |x| x);
    let renormalised = name != "scanpy-main";
    let factor = |cell: usize| {
        let (target, total) =
            if renormalised { (hvg_target_sum, hvg_totals[cell]) } else { (target_sum, totals[cell]) };
        if total > 0.0 { target / total } else { 0.0 }
    };
    let log = asked.log || !renormalised;
    let values = Dense::from_fn(cells.len(), among_kept.len(), |cell, gene| {
        let value = values.at(cell, gene) * factor(cell);
        if log { value.ln_1p() } else { value }
    });
    let scale_mean: Vec<f64> = (0..among_kept.len()).map(|gene| mean(&values.gene(gene))).collect();
    let scale_deviation: Vec<f64> = (0..among_kept.len()).map(|gene| variance(&values.gene(gene)).sqrt()).collect();
    let scaled = Dense::from_fn(cells.len(), among_kept.len(), |cell, gene| {
        // Rounding leaves constants a deviation of about 1e-16; they have none.
        let deviation = if scale_deviation[gene] > 1e-12 { scale_deviation[gene] } else { f64::INFINITY };
        let scaled = (values.at(cell, gene) - scale_mean[gene]) / deviation;
        asked.max_value.map_or(scaled, |largest| scaled.clamp(-largest, largest))
    });
    Some(Statement {
        selected: among_kept.iter().map(|&at| kept_genes[at]).collect(),
        kept_genes,
        cells,
        cell_totals: totals,
        target_sum,
        means,
        dispersions,
        scores,
        hvg_totals,
        hvg_target_sum,
        scale_mean,
        scale_deviation,
        scaled,
    })
}

fn single(x: f64) -> f64 {
    f64::from(x as f32)
}

/// The middle number, or the mean of the two in the middle, rounded by `round`.
fn median(numbers: &[f64], round: impl Fn(f64) -> f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => round(round(sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

fn positive(totals: &[f64]) -> Vec<f64> {
    totals.iter().copied().filter(|&total| total > 0.0).collect()
}

/// T, means and variances of the exact version.
fn float64_statistics(counts: &Dense, totals: &[f64]) -> (f64, Vec<f64>, Vec<f64>) {
    let target = median(&positive(totals), |x| x);
    let values = Dense::from_fn(counts.n_cells, counts.n_genes, |cell, gene| {
        if totals[cell] > 0.0 { counts.at(cell, gene) * target / totals[cell] } else { 0.0 }
    });
    let genes: Vec<Vec<f64>> = (0..counts.n_genes).map(|gene| values.gene(gene)).collect();
    (target, genes.iter().map(|gene| mean(gene)).collect(), genes.iter().map(|gene| variance(gene)).collect())
}

/// T, means and variances of scanpy since 1.4.5: values and squares in 32 bits, sums in 64.
fn float32_statistics(counts: &Dense, totals: &[f64], log: bool) -> (f64, Vec<f64>, Vec<f64>) {
    let totals: Vec<f64> = totals.iter().map(|&total| single(total)).collect();
    let target = median(&positive(&totals), single);
    let n = counts.n_cells as f64;
    let (means, variances) = (0..counts.n_genes)
        .map(|gene| {
            let values = (0..counts.n_cells).map(|cell| match single(totals[cell] / target) {
                0.0 => 0.0,
                factor => {
                    let value = single(single(counts.at(cell, gene)) / factor);
                    if log { single(value.ln_1p()) } else { value }
                }
            });
            let (sum, squares) = values.fold((0.0, 0.0), |(sum, squares), v| (sum + v, squares + single(v * v)));
            let (mean, mean_square) = (sum / n, squares / n);
            (mean, (mean_square - mean * mean) * (n / (n - 1.0)))
        })
        .unzip();
    (target, means, variances)
}

/// T, means and variances of scanpy 1.4.0 to 1.4.4: all in 32 bits, in cell order. Totals of counts are exact in any order.
fn ordered_float32_statistics(counts: &Dense, totals: &[f64]) -> (f64, Vec<f64>, Vec<f64>) {
    let totals: Vec<f32> = totals.iter().map(|&total| total as f32).collect();
    let target = median(&totals.iter().map(|&t| f64::from(t)).collect::<Vec<_>>(), single) as f32;
    let n = counts.n_cells as f64;
    let share = (1.0 / n) as f32;
    let correction = (n / (n - 1.0)) as f32;
    let (means, variances) = (0..counts.n_genes)
        .map(|gene| {
            let (mut mean, mut mean_square) = (0.0_f32, 0.0_f32);
            for (cell, total) in totals.iter().enumerate() {
                let value = counts.at(cell, gene) as f32 * (1.0 / (total / target));
                if value != 0.0 {
                    mean += value * share;
                    mean_square += (value * value) * share;
                }
            }
            (f64::from(mean), f64::from((mean_square - mean * mean) * correction))
        })
        .unzip();
    (f64::from(target), means, variances)
}

/// Dispersions and scores.
fn score(means: &[f64], variances: &[f64], name: &str) -> (Vec<f64>, Vec<f64>) {
    let round = |x: f64| if name == "scanpy-1.4" { single(x) } else { x };
    let means: Vec<f64> = means.iter().map(|&mean| if mean == 0.0 { round(1e-12) } else { mean }).collect();
    let dispersions: Vec<f64> = variances.iter().zip(&means).map(|(v, m)| round(v / m)).collect();
    let mut sorted = means.clone();
    sorted.sort_by(f64::total_cmp);
    let mut edges: Vec<f64> = (10..=100)
        .step_by(5)
        .map(|percent| {
            let at = f64::from(percent) / 100.0 * (sorted.len() - 1) as f64;
            let (below, part) = (at.floor() as usize, at - at.floor());
            let (a, b) = (sorted[below], sorted[(below + 1).min(sorted.len() - 1)]);
            match (name, part >= 0.5) {
                ("scanpy-1.4", _) => a * (1.0 - part) + b * part,
                (_, false) => a + (b - a) * part,
                (_, true) => b - (b - a) * (1.0 - part),
            }
        })
        .collect();
    edges.dedup();
    let bin = |mean: f64| edges.iter().filter(|&&edge| edge < mean).count();
    let bins: Vec<usize> = means.iter().map(|&mean| bin(mean)).collect();
    let scores = (0..means.len())
        .map(|gene| {
            let together: Vec<f64> =
                (0..means.len()).filter(|&other| bins[other] == bins[gene]).map(|other| dispersions[other]).collect();
            let centre = median(&together, round);
            let distances: Vec<f64> =
                together.iter().map(|d| round(round(d - centre).abs() / round(0.674_489_750_196_081_7))).collect();
            let distance = round(dispersions[gene] - centre);
            let distance = if name == "scanpy-main" { distance } else { distance.abs() };
            distance / median(&distances, round)
        })
        .collect();
    (dispersions, scores)
}

/// Positions of the selected among the kept genes.
fn select(scores: &[f64], n_top: usize, name: &str) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..scores.len()).filter(|&gene| !scores[gene].is_nan()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    if order.len() < n_top && name.starts_with("scanpy-1") {
        return None;
    }
    order.truncate(n_top.max(1));
    let last = scores[*order.last()?];
    let mut selected = match name {
        "exact" => order,
        "scanpy-main" => (0..scores.len()).filter(|&gene| scores[gene] >= last).collect(),
        _ => (0..scores.len()).filter(|&gene| scores[gene] >= single(last)).collect(),
    };
    selected.sort_unstable();
    Some(selected)
}
