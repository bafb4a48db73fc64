//! Exact principal components of all cells, from sums over cells alone.
//!
//! With the corrections D of the scaled matrix (see [`Gram`]) and their means m, the covariance is (DᵀD − n·m·mᵀ)/(n − 1):
//! genes × genes, whatever the number of cells. Its eigenvectors are the loadings.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::tridiag::tridiag_in_place;
use faer::linalg::evd::{self, ComputeEigenvectors};
use faer::linalg::householder::apply_block_householder_sequence_on_the_left_in_place_with_conj;
use faer::linalg::qr::no_pivoting::factor::recommended_block_size;
use faer::{Conj, Mat, Par, Spec};

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

/// Asks for the memory that the eigensolver will want, because it can't say that there is none.
fn check_memory(n_genes: usize) -> Result<()> {
    /// The covariance, its eigenvectors, and what the solver needs besides.
    const MATRICES: usize = 4;
    let numbers = n_genes.saturating_mul(n_genes).saturating_mul(MATRICES);
    Vec::<f64>::new().try_reserve_exact(numbers).map_err(|error| {
        Error::system(format!("no memory for the eigenvectors of {n_genes} x {n_genes} products")).with_source(error)
    })
}

/// Principal components from the sums over `n_cells` cells.
///
/// # Errors
/// [`ErrorKind::Internal`] if the eigensolver does not converge.
pub fn principal_components(gram: &Gram, plan: &OutputPlan, n_cells: usize, n_components: usize) -> Result<Pca> {
    let n_genes = gram.n_genes;
    let n = n_cells as f64;
    check_memory(n_genes)?;
    let means: Vec<f64> = match plan.max_value {
        // Known exactly, from the integer sums.
        None => plan.mean.iter().zip(&plan.inverse_deviation).map(|(mean, inverse)| mean * inverse).collect(),
        Some(_) => gram.sums.iter().map(|sum| sum / n).collect(),
    };
    // Only what stands on and below the diagonal is looked at.
    let covariance = Mat::from_fn(n_genes, n_genes, |row, column| {
        if row == column && plan.max_value.is_none() {
            // Scaled genes have variance 1, constant ones 0.
            return if plan.inverse_deviation[row] > 0.0 { 1.0 } else { 0.0 };
        }
        if row < column {
            return 0.0;
        }
        (gram.products[row * n_genes + column] - n * means[row] * means[column]) / (n - 1.0)
    });
    let total_variance: f64 = (0..n_genes).map(|gene| covariance[(gene, gene)]).sum();
    let (values, vectors) = largest_eigenpairs(covariance, n_components)?;

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
        let from = n_components - 1 - component;
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

/// The largest eigenvalues, in increasing order, and their eigenvectors. The lower triangle of the matrix is read.
///
/// The steps of [`Mat::self_adjoint_eigen`], of which the last, transforming eigenvectors back, is left out for all but the
/// wanted ones. On one thread, so that the bits don't depend on the number of threads.
fn largest_eigenpairs(mut matrix: Mat<f64>, wanted: usize) -> Result<(Vec<f64>, Mat<f64>)> {
    let n = matrix.nrows();
    if n == 0 {
        return Ok((Vec::new(), matrix));
    }
    let memory = evd::self_adjoint_evd_scratch::<f64>(n, ComputeEigenvectors::Yes, Par::Seq, Spec::default());
    let mut memory =
        MemBuffer::try_new(memory).map_err(|_| Error::system("there is not enough memory for the eigensolver"))?;
    let stack = MemStack::new(&mut memory);
    let block = recommended_block_size::<f64>(n, n);
    let mut reflections = Mat::zeros(block, n - 1);
    tridiag_in_place(matrix.as_mut(), reflections.as_mut(), Par::Seq, stack, Spec::default());

    let (mut diagonal, mut beside) = (Diag::zeros(n), Diag::zeros(n));
    for at in 0..n {
        diagonal[at] = matrix[(at, at)];
        if at + 1 < n {
            beside[at] = matrix[(at + 1, at)];
        }
    }
    let mut values = Diag::zeros(n);
    let mut vectors = Mat::zeros(n, n);
    evd::tridiagonal_self_adjoint_evd(
        diagonal.as_ref(),
        beside.as_ref(),
        values.as_mut(),
        Some(vectors.as_mut()),
        Par::Seq,
        stack,
        Spec::default(),
    )
    .map_err(|error| Error::new(ErrorKind::Internal, format!("the eigensolver did not converge: {error:?}")))?;

    let mut vectors = vectors.subcols(n - wanted, wanted).to_owned();
    apply_block_householder_sequence_on_the_left_in_place_with_conj(
        matrix.submatrix(1, 0, n - 1, n - 1),
        reflections.as_ref(),
        Conj::No,
        vectors.as_mut().subrows_mut(1, n - 1),
        Par::Seq,
        stack,
    );
    Ok(((n - wanted..n).map(|at| values[at]).collect(), vectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eigenpairs_are_those_of_the_whole_decomposition() {
        for (n, wanted) in [(1, 0), (1, 1), (2, 1), (3, 3), (40, 7), (150, 50)] {
            let mut matrix = Mat::from_fn(n, n, |row, column| ((row * 7 + column * 13) as f64).sin());
            matrix = &matrix + matrix.transpose();
            let whole = matrix.self_adjoint_eigen(faer::Side::Lower).expect("it converges");
            let (values, vectors) = largest_eigenpairs(matrix, wanted).expect("it converges");
            assert_eq!((values.len(), vectors.ncols()), (wanted, wanted));
            for (at, value) in values.iter().enumerate() {
                let from = n - wanted + at;
                assert!((value - whole.S()[from]).abs() < 1e-12 * n as f64, "value {at} of {n}");
                for row in 0..n {
                    let difference = vectors[(row, at)] - whole.U()[(row, from)];
                    assert!(difference.abs() < 1e-9, "vector {at} of {n}");
                }
            }
        }
    }
}
