//! What the recipe gives on generated inputs, written down once: shapes, counts, genes, orders, digests and rounded numbers.

use std::fmt::Write as _;

use zheng17_core::Context;
use zheng17_core::recipe::{Components, Params, RecipeVersion};

use super::recipes::{Everything, inputs, run};
use crate::golden;
use crate::suite::{Case, Outcome, Subject};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for version in RecipeVersion::ALL {
        for (at, (input, _)) in inputs().into_iter().enumerate() {
            let name = format!("{}_{}", version.name, input.replace([' ', ','], "_").replace("__", "_"));
            let file = name.clone();
            let case = Case::new(format!("golden::{name}"), move |subject| check(subject, version, at, &file));
            cases.push(super::for_version(case, version));
        }
    }
    cases
}

fn check(subject: &Subject, version: RecipeVersion, input: usize, name: &str) -> Outcome {
    let (_, input) = inputs().swap_remove(input);
    let params = Params { version, n_top_genes: 40, components: Some(Components::UpTo(6)), ..Params::default() };
    let found = run(subject, &input, &params, &Context::default())?;
    golden::compare(subject, name, &describe(&found))
}

/// Numbers to six digits; whoever differs in the last bits has the same text.
fn rounded(numbers: impl IntoIterator<Item = f64>) -> String {
    numbers.into_iter().map(|x| format!("{x:.5e}")).collect::<Vec<_>>().join(" ")
}

fn describe(found: &Everything) -> String {
    let result = &found.result;
    let mut by_rank: Vec<(usize, usize)> =
        result.ranks.iter().zip(&result.kept_genes).filter_map(|(rank, &gene)| Some(((*rank)?, gene))).collect();
    by_rank.sort_unstable();
    let best: Vec<usize> = by_rank.iter().take(20).map(|entry| entry.1).collect();
    let n_bins = result.bins.iter().max().map_or(0, |last| last + 1);
    let bin_sizes: Vec<usize> = (0..n_bins).map(|bin| result.bins.iter().filter(|b| **b == bin).count()).collect();
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        let _ = writeln!(text, "{what}: {value}");
    };
    line("input", format!("{} cells × {} genes", result.shape.n_cells, result.shape.n_genes));
    line("version", result.params.version.name.to_owned());
    line("entries", format!("{} (largest {})", result.facts.n_entries, result.facts.largest));
    line("cells", result.cells.len().to_string());
    line("kept genes", result.kept_genes.len().to_string());
    line("digest", result.digest.clone());
    line("target sum", rounded([result.target_sum]));
    line("target sum of selected genes", rounded([result.hvg_target_sum]));
    line("genes in each bin", format!("{bin_sizes:?}"));
    line("best genes", format!("{best:?}"));
    line("selected", format!("{:?}", result.selected));
    line("warnings", result.warnings.iter().map(|warning| format!("{warning:?}")).collect::<Vec<_>>().join("; "));
    line("means", rounded(result.means.iter().copied().take(12)));
    line("dispersions", rounded(result.dispersions.iter().copied().take(12)));
    line("scores", rounded(result.scores.iter().copied().take(12)));
    line("mean of scaling", rounded(result.scale_mean.iter().copied().take(12)));
    line("deviation of scaling", rounded(result.scale_deviation.iter().copied().take(12)));
    line("scaled values of the first cell", rounded(found.scaled.cell(0).iter().copied().take(12)));
    line("normalised values of the first cell", rounded(found.normalised.cell(0).iter().copied().take(12)));
    if let Some(pca) = &result.pca {
        line("component variances", rounded(pca.variances.iter().copied()));
        line("total variance", rounded([pca.total_variance]));
        line("loadings of the first gene", rounded(pca.loadings.iter().copied().take(pca.n_components)));
    }
    if let Some(scores) = &found.scores {
        line("scores of the first cell", rounded(scores.cell(0).iter().copied()));
    }
    text
}
