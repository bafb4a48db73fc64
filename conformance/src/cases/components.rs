//! Principal components: how many, their sign, and that they are those of the dense scaled matrix.

use zheng17_core::recipe::{Components, Params, Pca, Warning};
use zheng17_core::{Context, ErrorKind};

use super::edges::expect_error;
use super::recipes::{Everything, inputs, run};
use crate::dense::{Dense, mean, variance};
use crate::inputs::{context, expression, source};
use crate::statement::{Asked, state};
use crate::suite::{Case, Outcome, Stop, Subject};
use crate::tolerance::{Against, Quantity, compare, tolerance};
use crate::{case_list, ensure, ensure_eq};

pub(super) fn cases() -> Vec<Case> {
    case_list!("components": too_many_are_a_usage_error_or_a_warning, loadings_have_length_one_and_a_positive_largest_entry,
        those_of_the_dense_scaled_matrix, those_of_the_clipped_matrix, none_asked_for_gives_no_scores)
}

pub(super) fn pca_of(everything: &Everything) -> Result<&Pca, Stop> {
    everything.result.pca.as_ref().ok_or_else(|| Stop::Failed("no principal components".to_owned()))
}

fn too_many_are_a_usage_error_or_a_warning(subject: &Subject) -> Outcome {
    for (n_cells, n_genes, n_top, most) in [(35, 300, 100, 34), (200, 300, 20, 19)] {
        let input = expression(31, n_cells, n_genes);
        let asked = |components| Params { n_top_genes: n_top, components: Some(components), ..Params::default() };
        let too_many = asked(Components::Exactly(most + 1));
        let says = [format!("{} principal components asked for", most + 1), format!("at most {most}")];
        let says: Vec<&str> = says.iter().map(String::as_str).collect();
        expect_error(subject, "one too many", source(input.clone())?, &too_many, ErrorKind::Usage, &says)?;
        let found = run(subject, &input, &asked(Components::DEFAULT), &Context::default())?;
        ensure_eq!(pca_of(&found)?.n_components, most, "number of components");
        let warning = Warning::FewerComponents { asked: 50, computed: most };
        ensure!(found.result.warnings.contains(&warning), "no warning: {:?}", found.result.warnings);
        let all = run(subject, &input, &asked(Components::Exactly(most)), &Context::default())?;
        ensure_eq!(pca_of(&all)?.variances.len(), most, "number of variances");
    }
    let none = Params { components: Some(Components::Exactly(0)), ..Params::default() };
    let input = source(expression(31, 50, 100))?;
    expect_error(subject, "no components", input, &none, ErrorKind::Usage, &["0 principal components"])
}

fn loadings_have_length_one_and_a_positive_largest_entry(subject: &Subject) -> Outcome {
    for (name, input) in inputs() {
        let params = Params { n_top_genes: 40, components: Some(Components::Exactly(12)), ..Params::default() };
        let found = run(subject, &input, &params, &context(50, 2))?;
        let pca = pca_of(&found)?;
        let column = |k: usize| -> Vec<f64> {
            (0..found.result.selected.len()).map(|gene| pca.loadings[gene * pca.n_components + k]).collect()
        };
        for a in 0..pca.n_components {
            let largest =
                column(a).into_iter().fold(0.0_f64, |largest, x| if x.abs() > largest.abs() { x } else { largest });
            ensure!(largest > 0.0, "{name}, component {a}: the entry of largest magnitude is {largest}");
            for b in 0..=a {
                let product: f64 = column(a).iter().zip(column(b)).map(|(x, y)| x * y).sum();
                let expected = f64::from(u8::from(a == b));
                ensure!((product - expected).abs() < 1e-10, "{name}, components {a} and {b}: product {product}");
            }
        }
        ensure!(pca.variances.is_sorted_by(|a, b| a >= b), "{name}: variances {:?}", pca.variances);
    }
    Ok(())
}

/// Whether components are those of a scaled matrix with every value written out: eigenvectors of its covariance.
pub(super) fn expect_components_of(found: &Everything, scaled: &Dense) -> Outcome {
    let pca = pca_of(found)?;
    let n_genes = scaled.n_genes;
    let columns: Vec<Vec<f64>> = (0..n_genes).map(|gene| scaled.gene(gene)).collect();
    let means: Vec<f64> = columns.iter().map(|column| mean(column)).collect();
    let covariance = Dense::from_fn(n_genes, n_genes, |a, b| {
        let products = columns[a].iter().zip(&columns[b]).map(|(x, y)| (x - means[a]) * (y - means[b]));
        products.sum::<f64>() / (scaled.n_cells as f64 - 1.0)
    });
    let total: f64 = (0..n_genes).map(|gene| covariance.at(gene, gene)).sum();
    let value = Quantity::Value;
    compare("total variance", value, Against::Float64, &[pca.total_variance], &[total])?;
    let scores = found.scores.as_ref().ok_or_else(|| Stop::Failed("no scores".to_owned()))?;
    for k in 0..pca.n_components {
        let loading: Vec<f64> = (0..n_genes).map(|gene| pca.loadings[gene * pca.n_components + k]).collect();
        let lambda = pca.variances[k];
        for gene in 0..n_genes {
            let image: f64 = covariance.cell(gene).iter().zip(&loading).map(|(c, v)| c * v).sum();
            let residual = (image - lambda * loading[gene]).abs();
            ensure!(residual <= 1e-10 * pca.variances[0], "component {k}, gene {gene}: off by {residual:e}");
        }
        ensure!((pca.variance_ratios[k] - lambda / total).abs() < 1e-12, "component {k}: variance ratio");
        let expected: Vec<f64> = (0..scaled.n_cells)
            .map(|cell| (0..n_genes).map(|gene| (scaled.at(cell, gene) - means[gene]) * loading[gene]).sum())
            .collect();
        let of_component = scores.gene(k);
        tolerance(value, Against::Float32).compare("scores", &of_component, &expected)?;
        ensure!(mean(&of_component).abs() < 1e-5, "component {k}: scores have mean {}", mean(&of_component));
        ensure!((variance(&of_component) - lambda).abs() < 1e-5 * lambda.max(1.0), "component {k}: variance of scores");
    }
    Ok(())
}

fn expect_dense_components(subject: &Subject, max_value: Option<f64>) -> Outcome {
    for (name, input) in inputs() {
        let params =
            Params { n_top_genes: 40, max_value, components: Some(Components::Exactly(10)), ..Params::default() };
        let found = run(subject, &input, &params, &context(64, 3))?;
        let asked = Asked { version: params.version, n_top: 40, log: true, max_value };
        let Some(statement) = state(&Dense::of(&input), asked) else {
            return Err(Stop::Failed(format!("{name}: the statement stops")));
        };
        expect_components_of(&found, &statement.scaled)?;
    }
    Ok(())
}

fn those_of_the_dense_scaled_matrix(subject: &Subject) -> Outcome {
    expect_dense_components(subject, None)
}

fn those_of_the_clipped_matrix(subject: &Subject) -> Outcome {
    expect_dense_components(subject, Some(1.2))
}

fn none_asked_for_gives_no_scores(subject: &Subject) -> Outcome {
    let found =
        run(subject, &expression(31, 50, 100), &Params { n_top_genes: 10, ..Params::default() }, &Context::default())?;
    ensure!(found.result.pca.is_none() && found.scores.is_none(), "components without being asked");
    Ok(())
}
