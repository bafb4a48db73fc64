//! Exact principal components of all cells, from sums over cells alone.
//!
//! With the corrections D of the scaled matrix (see [`Gram`]) and their means m, the covariance is (DᵀD − n·m·mᵀ)/(n − 1):
//! genes × genes, whatever the number of cells. Its eigenvectors are the loadings.

use faer::{Mat, Side};

use super::params::Components;
use super::result::Warning;
use crate::backend::{Gram, Projection};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::OutputPlan;

/// Principal components of the scaled matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Pca {
    /// Number of components.
    pub n_components: usize,
    /// Loadings, genes × components at `gene * n_components + component`. Columns have length 1, and their entry of largest
    /// magnitude (the first, on a tie) is positive.
    pub loadings: Vec<f64>,
    /// The variance (ddof 1) of the scores of each component, largest first.
    pub variances: Vec<f64>,
    /// The variance of each component over the total variance of the scaled matrix.
    pub variance_ratios: Vec<f64>,
    /// The total variance of the scaled matrix.
    pub total_variance: f64,
    /// The mean of the corrections projected on each component: what scores are centred by.
    offset: Vec<f64>,
}

impl Pca {
    /// The map from cells to scores.
    pub fn projection(&self) -> Projection {
        Projection { n_components: self.n_components, weights: self.loadings.clone(), offset: self.offset.clone() }
    }
}

/// How many components there will be, and a warning if that is fewer than the usual number.
///
/// # Errors
/// [`ErrorKind::Usage`] if more are demanded than min(cells, genes) − 1.
pub fn number_of_components(wanted: Components, n_cells: usize, n_genes: usize) -> Result<(usize, Option<Warning>)> {
    let most = n_cells.min(n_genes).saturating_sub(1);
    let refuse = |asked: usize| {
        Error::usage(format!(
            "{asked} principal components asked for, but {n_cells} cells and {n_genes} selected genes have at most {most}"
        ))
    };
    match wanted {
        Components::Exactly(asked) if asked > most => Err(refuse(asked)),
        Components::UpTo(asked) if most == 0 => Err(refuse(asked)),
        Components::UpTo(asked) if asked > most => Ok((most, Some(Warning::FewerComponents { asked, computed: most }))),
        Components::Exactly(asked) | Components::UpTo(asked) => Ok((asked, None)),
    }
}

/// Principal components from the sums over `n_cells` cells.
///
/// # Errors
/// [`ErrorKind::Internal`] if the eigensolver does not converge.
pub fn principal_components(gram: &Gram, plan: &OutputPlan, n_cells: usize, n_components: usize) -> Result<Pca> {
    let n_genes = gram.n_genes;
    let n = n_cells as f64;
    let means: Vec<f64> = match plan.max_value {
        // Known exactly, from the integer sums.
        None => plan.mean.iter().zip(&plan.inverse_deviation).map(|(mean, inverse)| mean * inverse).collect(),
        Some(_) => gram.sums.iter().map(|sum| sum / n).collect(),
    };
    let covariance = Mat::from_fn(n_genes, n_genes, |a, b| {
        if a == b && plan.max_value.is_none() {
            // Scaled genes have variance 1, constant ones 0.
            return if plan.inverse_deviation[a] > 0.0 { 1.0 } else { 0.0 };
        }
        let (row, column) = (a.max(b), a.min(b));
        (gram.products[row * n_genes + column] - n * means[row] * means[column]) / (n - 1.0)
    });
    let total_variance: f64 = (0..n_genes).map(|gene| covariance[(gene, gene)]).sum();
    let eigen = covariance
        .self_adjoint_eigen(Side::Lower)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("the eigensolver did not converge: {error:?}")))?;
    let (values, vectors) = (eigen.S().column_vector(), eigen.U());

    let mut pca = Pca {
        n_components,
        loadings: vec![0.0; n_genes * n_components],
        variances: Vec::with_capacity(n_components),
        variance_ratios: Vec::with_capacity(n_components),
        total_variance,
        offset: vec![0.0; n_components],
    };
    for component in 0..n_components {
        // Eigenvalues come in increasing order.
        let from = n_genes - 1 - component;
        let mut largest = 0.0_f64;
        for gene in 0..n_genes {
            let weight = vectors[(gene, from)];
            if weight.abs() > largest.abs() {
                largest = weight;
            }
        }
        let sign = if largest < 0.0 { -1.0 } else { 1.0 };
        for gene in 0..n_genes {
            let weight = sign * vectors[(gene, from)];
            pca.loadings[gene * n_components + component] = weight;
            pca.offset[component] += means[gene] * weight;
        }
        let variance = values[from].max(0.0);
        pca.variances.push(variance);
        pca.variance_ratios.push(if total_variance > 0.0 { variance / total_variance } else { 0.0 });
    }
    Ok(pca)
}
