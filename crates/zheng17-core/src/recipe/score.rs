//! Scoring genes: dispersions within bins of similar means, and which scores are good enough.
//!
//! Everything here is a pure function of per-gene means and variances.

use std::cmp::Ordering;

use super::params::{Cutoff, RecipeVersion, Statistics};
use super::result::Warning;
use crate::error::{Error, Result};

/// The third quartile of the standard normal distribution: a MAD over it estimates a standard deviation.
const NORMAL_QUARTILE: f64 = 0.674_489_750_196_081_7;

/// The percentiles of the means that bound the bins. The first bin is twice as wide as the others: that is the recipe.
const PERCENTILES: std::ops::RangeInclusive<usize> = 2..=20;

/// Scores of the kept genes.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// Variance over mean.
    pub dispersions: Vec<f64>,
    /// The bin of each gene, from 0.
    pub bins: Vec<usize>,
    /// The normalised dispersion; NaN where it is undefined.
    pub scores: Vec<f64>,
    /// The rank of each gene among the defined scores, from 1, highest first, ties by gene order.
    pub ranks: Vec<Option<usize>>,
    /// How many bin edges were equal to another.
    pub collapsed_edges: usize,
}

/// Scores genes from their means and variances over cells.
///
/// # Errors
/// [`ErrorKind::Input`](crate::ErrorKind::Input) for equal bin edges, in versions that refuse them.
pub fn score(version: &RecipeVersion, means: &[f64], variances: &[f64]) -> Result<Scores> {
    let single = version.statistics == Statistics::OrderedFloat32;
    let round = |x: f64| if single { f64::from(x as f32) } else { x };
    // A mean of zero would divide by zero.
    let means: Vec<f64> = means.iter().map(|&mean| if mean == 0.0 { round(1e-12) } else { mean }).collect();
    let dispersions: Vec<f64> = variances.iter().zip(&means).map(|(variance, mean)| round(variance / mean)).collect();

    let mut edges = percentiles(&means, single);
    let n_edges = edges.len();
    edges.dedup();
    let collapsed_edges = n_edges - edges.len();
    if collapsed_edges > 0 && version.refuses_equal_edges {
        return Err(Error::input(format!(
            "{collapsed_edges} of the {n_edges} bin edges are equal, because many genes have the same mean; {} stops \
             here too. The version \"exact\" collapses them",
            version.name
        )));
    }
    // Right-closed bins: an edge belongs to the bin below it.
    let bins: Vec<usize> = means.iter().map(|mean| edges.partition_point(|edge| edge < mean)).collect();

    let quartile = round(NORMAL_QUARTILE);
    let mut by_bin: Vec<Vec<f64>> = vec![Vec::new(); edges.len() + 1];
    for (&bin, &dispersion) in bins.iter().zip(&dispersions) {
        by_bin[bin].push(dispersion);
    }
    let centre_and_spread: Vec<(f64, f64)> = by_bin
        .into_iter()
        .map(|mut bin| {
            let centre = round(median(&mut bin, round));
            for d in &mut bin {
                *d = round(round(*d - centre).abs() / quartile);
            }
            (centre, round(median(&mut bin, round)))
        })
        .collect();
    let scores: Vec<f64> = bins
        .iter()
        .zip(&dispersions)
        .map(|(&bin, &dispersion)| {
            let (centre, spread) = centre_and_spread[bin];
            let distance = round(dispersion - centre);
            (if version.signed_score { distance } else { distance.abs() }) / spread
        })
        .collect();

    let mut ranks = vec![None; scores.len()];
    for (rank, gene) in ranking(&scores).into_iter().enumerate() {
        ranks[gene] = Some(rank + 1);
    }
    Ok(Scores { dispersions, bins, scores, ranks, collapsed_edges })
}

/// The genes with a defined score, highest first, ties by gene order.
fn ranking(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).filter(|&gene| !scores[gene].is_nan()).collect();
    order.sort_by(|&a, &b| descending(scores[a], scores[b]));
    order
}

fn descending(a: f64, b: f64) -> Ordering {
    // −0 and 0 are equal scores.
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}

/// Selects about `n_top` genes by their scores: their positions, increasing, and what a user should know.
///
/// # Errors
/// [`ErrorKind::Input`](crate::ErrorKind::Input) where no gene can be selected, or fewer than a strict version demands.
pub fn select(version: &RecipeVersion, scores: &[f64], n_top: usize) -> Result<(Vec<usize>, Vec<Warning>)> {
    let order = ranking(scores);
    let n_defined = order.len();
    if n_defined == 0 {
        return Err(Error::input(
            "no gene has a defined score, so 0 genes are selected: genes are compared with others of similar mean, and here \
             no gene has one that differs. There are too few genes or cells for this recipe",
        ));
    }
    if n_defined < n_top && version.refuses_too_few {
        return Err(Error::input(format!(
            "{n_top} genes asked for, but only {n_defined} have a defined score; {} stops here too. Ask for fewer, or use \
             the version \"exact\"",
            version.name
        )));
    }
    let n = n_top.min(n_defined);
    let nth = scores[order[n - 1]];
    let mut selected: Vec<usize> = match version.cutoff {
        Cutoff::ExactlyN => order[..n].to_vec(),
        Cutoff::NthRoundedToFloat32 => {
            let cutoff = f64::from(nth as f32);
            order.into_iter().filter(|&gene| scores[gene] >= cutoff).collect()
        }
        // scanpy replaces infinite scores by the largest finite number before it compares.
        Cutoff::Nth if nth == f64::INFINITY => {
            return Err(Error::input(format!(
                "at least {n} genes have an infinite score, of which {} selects none; the version \"exact\" takes the \
                 first {n}",
                version.name
            )));
        }
        Cutoff::Nth => order.into_iter().filter(|&gene| scores[gene] >= nth).collect(),
    };
    selected.sort_unstable();
    if selected.is_empty() {
        return Err(Error::input(format!(
            "0 genes are selected: the cutoff of {} rounds up above every score",
            version.name
        )));
    }
    let mut warnings = Vec::new();
    if n_defined < n_top {
        warnings.push(Warning::FewerGenes { asked: n_top, defined: n_defined });
    }
    if selected.len() != n {
        warnings.push(Warning::CutoffCount { asked: n, selected: selected.len(), version: version.name });
    }
    Ok((selected, warnings))
}

/// The median; for even numbers the mean of the two middle values, rounded as the versions do. NaN for none.
pub fn median(values: &mut [f64], round: impl Fn(f64) -> f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let middle = values.len() / 2;
    let odd = values.len() % 2 == 1;
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if odd {
        return upper;
    }
    let lower = below.iter().copied().max_by(f64::total_cmp).unwrap_or(upper);
    round(round(lower + upper) / 2.0)
}

/// The bin edges: percentiles 10, 15, …, 100, linearly interpolated.
fn percentiles(means: &[f64], single: bool) -> Vec<f64> {
    let mut sorted = means.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    if sorted.is_empty() {
        return Vec::new();
    }
    PERCENTILES
        .map(|step| {
            let at = (5 * step) as f64 / 100.0 * last as f64;
            let (low, weight) = (at.floor() as usize, at - at.floor());
            let (a, b) = (sorted[low], sorted[(low + 1).min(last)]);
            if single {
                // numpy before 1.22.
                a * (1.0 - weight) + b * weight
            } else if weight >= 0.5 {
                // numpy since 1.22 interpolates from the nearer end.
                b - (b - a) * (1.0 - weight)
            } else {
                a + (b - a) * weight
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_and_odd_numbers() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0], |x| x), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0], |x| x), 2.5);
        assert_eq!(median(&mut [1.0, f64::INFINITY], |x| x), f64::INFINITY);
        assert!(median(&mut [], |x| x).is_nan());
    }

    #[test]
    fn an_edge_belongs_to_the_lower_bin_and_the_last_bin_is_empty() {
        let means: Vec<f64> = (1..=21).map(f64::from).collect();
        let scores = score(&RecipeVersion::EXACT, &means, &means).expect("scores");
        // Percentile 10 of 1..21 is 3, percentile 15 is 4, …, 100 is 21.
        assert_eq!(&scores.bins[..5], &[0, 0, 0, 1, 2]);
        assert_eq!(scores.bins[20], 18);
    }

    #[test]
    fn undefined_and_infinite_scores() {
        // One bin each for 1 and 2; in the first, four of five dispersions are equal.
        let means = vec![1.0; 5];
        let scores = score(&RecipeVersion::EXACT, &means, &[2.0, 2.0, 2.0, 2.0, 5.0]).expect("scores");
        assert!(scores.scores[0].is_nan());
        assert_eq!(scores.scores[4], f64::INFINITY);
        assert_eq!(scores.ranks[4], Some(1));
        assert_eq!(scores.collapsed_edges, 18);
        let (selected, warnings) = select(&RecipeVersion::EXACT, &scores.scores, 3).expect("selection");
        assert_eq!(selected, [4]);
        assert_eq!(warnings, [Warning::FewerGenes { asked: 3, defined: 1 }]);
    }

    #[test]
    fn cutoffs_differ_as_stated() {
        let tied = [3.0, 2.0, 2.0, 1.0];
        let count = |version: &RecipeVersion, scores: &[f64], n| select(version, scores, n).map(|s| s.0);
        assert_eq!(count(&RecipeVersion::EXACT, &tied, 2).expect("exact"), [0, 1]);
        assert_eq!(count(&RecipeVersion::SCANPY_1_12, &tied, 2).expect("1.12"), [0, 1, 2]);
        assert_eq!(count(&RecipeVersion::SCANPY_MAIN, &tied, 2).expect("main"), [0, 1, 2]);
        // 2.00000001 rounds down to 2 in f32 and so is kept; 1.99999999 rounds up to 2 and is lost.
        assert_eq!(count(&RecipeVersion::SCANPY_1_12, &[3.0, 1.999_999_99], 2).expect("1.12"), [0]);
        let infinite = [f64::INFINITY, f64::INFINITY, f64::INFINITY, 1.0];
        assert_eq!(count(&RecipeVersion::EXACT, &infinite, 2).expect("exact"), [0, 1]);
        assert_eq!(count(&RecipeVersion::SCANPY_1_12, &infinite, 2).expect("1.12"), [0, 1, 2]);
        assert!(count(&RecipeVersion::SCANPY_MAIN, &infinite, 2).is_err());
        assert!(count(&RecipeVersion::SCANPY_1_4, &tied, 5).is_err());
    }
}
