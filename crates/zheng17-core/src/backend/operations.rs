//! The trait's operations on chunks in memory, for backends that keep their cells as CSR: selecting, transforming,
//! multiplying, and sums that neither cancel nor depend on chunks.

use super::{Axis, Reduction, Statistic, Transform};
use crate::error::{Error, Result};
use crate::kernels::{ChunkKernels, ScalarKernels};
use crate::matrix::{CsrBuffer, CsrView, GeneMap, Selection, Shape, ValueKind};

/// The selected cells and genes of a matrix.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for selections that don't fit.
pub fn select(matrix: CsrView<'_>, cells: &Selection, genes: &Selection) -> Result<CsrBuffer> {
    let cells = cells.resolve(matrix.n_cells(), "cell")?;
    let genes = genes.resolve(matrix.n_genes(), "gene")?;
    let map = GeneMap::new(matrix.n_genes(), &genes);
    let mut out = CsrBuffer::new(genes.len(), matrix.values().kind());
    for cell in cells {
        ScalarKernels.select_into(matrix.rows(cell..cell + 1), &map, &mut out)?;
    }
    Ok(out)
}

/// The matrix with each stored value changed; values that become zero are dropped.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for factors of another number than there are cells or genes.
pub fn transform(matrix: CsrView<'_>, transform: &Transform) -> Result<CsrBuffer> {
    check_transform(transform, Shape { n_cells: matrix.n_cells(), n_genes: matrix.n_genes() })?;
    let kind = match transform {
        Transform::Cast(kind) => *kind,
        _ => matrix.values().kind(),
    };
    let mut out = CsrBuffer::new(matrix.n_genes(), kind);
    for row in 0..matrix.n_cells() {
        let values = matrix.row_values(row);
        for (at, &gene) in matrix.row_indices(row).iter().enumerate() {
            let x = values.get(at);
            let y = match transform {
                Transform::ScaleCells(factors) => x * factors[row],
                Transform::ScaleGenes(factors) => x * factors[gene as usize],
                Transform::Map(map) => map.apply(x),
                Transform::Cast(_) => x,
            };
            if out.values.push_nonzero(y) {
                out.indices.push(gene);
            }
        }
        out.end_row();
    }
    Ok(out)
}

/// Whether a dense matrix in memory has a shape.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for another number of values.
pub fn check_dense(shape: Shape, values: &[f32]) -> Result<()> {
    let Shape { n_cells, n_genes } = shape;
    if n_cells.checked_mul(n_genes) == Some(values.len()) {
        return Ok(());
    }
    Err(Error::usage(format!("{} values for {n_cells} cells x {n_genes} genes", values.len())))
}

/// Whether a transform fits a matrix of this shape.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for factors of another number than there are cells or genes.
pub fn check_transform(transform: &Transform, shape: Shape) -> Result<()> {
    let (factors, expected, what) = match transform {
        Transform::ScaleCells(factors) => (factors.len(), shape.n_cells, "cell"),
        Transform::ScaleGenes(factors) => (factors.len(), shape.n_genes, "gene"),
        Transform::Map(_) | Transform::Cast(_) => return Ok(()),
    };
    if factors == expected { Ok(()) } else { Err(Error::usage(format!("{factors} factors for {expected} {what}s"))) }
}

/// The elementwise product of two matrices.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for different shapes.
pub fn multiply(a: CsrView<'_>, b: CsrView<'_>) -> Result<CsrBuffer> {
    check_multiply(
        Shape { n_cells: a.n_cells(), n_genes: a.n_genes() },
        Shape { n_cells: b.n_cells(), n_genes: b.n_genes() },
    )?;
    let kind = match (a.values().kind(), b.values().kind()) {
        (ValueKind::F32, ValueKind::F32) => ValueKind::F32,
        _ => ValueKind::F64,
    };
    let mut out = CsrBuffer::new(a.n_genes(), kind);
    let mut row_of_b = vec![0.0; b.n_genes()];
    for row in 0..a.n_cells() {
        for (at, &gene) in b.row_indices(row).iter().enumerate() {
            row_of_b[gene as usize] = b.row_values(row).get(at);
        }
        for (at, &gene) in a.row_indices(row).iter().enumerate() {
            let product = a.row_values(row).get(at) * row_of_b[gene as usize];
            if out.values.push_nonzero(product) {
                out.indices.push(gene);
            }
        }
        for &gene in b.row_indices(row) {
            row_of_b[gene as usize] = 0.0;
        }
        out.end_row();
    }
    out.sort_rows();
    Ok(out)
}

/// Whether two matrices can be multiplied elementwise.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for different shapes.
pub fn check_multiply(a: Shape, b: Shape) -> Result<()> {
    if a == b {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{} × {} can't be multiplied elementwise with {} × {}",
        a.n_cells, a.n_genes, b.n_cells, b.n_genes
    )))
}

/// Whether matrices can be put below each other.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for no matrices, or different numbers of genes.
pub fn check_concat(shapes: &[Shape]) -> Result<()> {
    let Some(first) = shapes.first() else {
        return Err(Error::usage("no matrices to put below each other"));
    };
    match shapes.iter().find(|shape| shape.n_genes != first.n_genes) {
        None => Ok(()),
        Some(other) => Err(Error::usage(format!(
            "matrices with {} and {} genes can't be put below each other",
            first.n_genes, other.n_genes
        ))),
    }
}

/// A sum in twice the digits of an `f64`, by error-free transformations (Knuth's two-sum, Dekker's product).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DoubleSum {
    high: f64,
    low: f64,
}

impl DoubleSum {
    /// Adds a number.
    pub fn add(&mut self, x: f64) {
        let (sum, error) = two_sum(self.high, x);
        (self.high, self.low) = two_sum(sum, self.low + error);
    }

    /// Adds the square of a number.
    pub fn add_square(&mut self, x: f64) {
        let square = x * x;
        self.add(square);
        // A fused multiply-add gives the rounding error of the product exactly, in hardware or software alike.
        let error = x.mul_add(x, -square);
        if error != 0.0 {
            self.add(error);
        }
    }

    /// Adds another such sum.
    pub fn merge(&mut self, other: Self) {
        self.add(other.high);
        self.add(other.low);
    }

    /// The nearest `f64`.
    pub fn value(self) -> f64 {
        self.high + self.low
    }

    fn times(self, x: f64) -> Self {
        let product = self.high * x;
        let (high, low) = two_sum(product, self.high.mul_add(x, -product) + self.low * x);
        Self { high, low }
    }

    fn square(self) -> Self {
        let product = self.high * self.high;
        let (high, low) = two_sum(product, self.high.mul_add(self.high, -product) + 2.0 * self.high * self.low);
        Self { high, low }
    }

    fn minus(self, other: Self) -> Self {
        let (high, low) = two_sum(self.high, -other.high);
        let (high, low) = two_sum(high, low + self.low - other.low);
        Self { high, low }
    }
}

fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_in_sum = sum - a;
    (sum, (a - (sum - b_in_sum)) + (b - b_in_sum))
}

/// Sums for any number of reductions, from chunks in cell order.
pub struct ReductionSums {
    shape: Shape,
    wanted: Vec<Reduction>,
    genes: Vec<(DoubleSum, DoubleSum)>,
    cells: Vec<(f64, f64)>,
}

impl ReductionSums {
    /// No cells yet.
    pub fn new(shape: Shape, wanted: &[Reduction]) -> Self {
        Self { shape, wanted: wanted.to_vec(), genes: vec![Default::default(); shape.n_genes], cells: Vec::new() }
    }

    /// Adds the next cells.
    pub fn fold(&mut self, chunk: CsrView<'_>) {
        for row in 0..chunk.n_cells() {
            let mut cell = (DoubleSum::default(), DoubleSum::default());
            let values = chunk.row_values(row);
            for (at, &gene) in chunk.row_indices(row).iter().enumerate() {
                let x = values.get(at);
                for (sum, squares) in [&mut cell, &mut self.genes[gene as usize]] {
                    sum.add(x);
                    squares.add_square(x);
                }
            }
            self.cells.push((cell.0.value(), variance(cell, self.shape.n_genes)));
        }
    }

    /// Adds the sums of the next cells, and of their squares, that a backend formed by itself.
    pub fn add_cells(&mut self, cells: impl IntoIterator<Item = (DoubleSum, DoubleSum)>) {
        let n_genes = self.shape.n_genes;
        self.cells.extend(cells.into_iter().map(|cell| (cell.0.value(), variance(cell, n_genes))));
    }

    /// Adds sums of each gene, and of its squares, that a backend formed by itself.
    pub fn add_genes(&mut self, genes: impl IntoIterator<Item = (DoubleSum, DoubleSum)>) {
        for (to, from) in self.genes.iter_mut().zip(genes) {
            to.0.merge(from.0);
            to.1.merge(from.1);
        }
    }

    /// Adds the sums over the cells that come next.
    pub fn merge(&mut self, next: Self) {
        self.add_genes(next.genes);
        self.cells.extend(next.cells);
    }

    /// The results, in the order asked for.
    pub fn finish(self) -> Vec<Vec<f64>> {
        let Shape { n_cells, n_genes } = self.shape;
        let result = |reduction: &Reduction| match (reduction.axis, reduction.statistic) {
            (Axis::Cells, Statistic::Sum) => self.cells.iter().map(|cell| cell.0).collect(),
            (Axis::Cells, Statistic::Mean) => self.cells.iter().map(|cell| cell.0 / n_genes as f64).collect(),
            (Axis::Cells, Statistic::Variance) => self.cells.iter().map(|cell| cell.1).collect(),
            (Axis::Genes, Statistic::Sum) => self.genes.iter().map(|gene| gene.0.value()).collect(),
            (Axis::Genes, Statistic::Mean) => self.genes.iter().map(|gene| gene.0.value() / n_cells as f64).collect(),
            (Axis::Genes, Statistic::Variance) => self.genes.iter().map(|&gene| variance(gene, n_cells)).collect(),
        };
        self.wanted.iter().map(result).collect()
    }
}

/// The variance (ddof 1) of `n` numbers from their sum and sum of squares.
fn variance((sum, squares): (DoubleSum, DoubleSum), n: usize) -> f64 {
    if n < 2 {
        return f64::NAN;
    }
    let n = n as f64;
    let scaled = squares.times(n).minus(sum.square());
    // Below what 106 bits resolve there is no variance: a constant gives exactly 0.
    let resolution = squares.value() * n * 2_f64.powi(-98);
    if scaled.value() <= resolution { 0.0 } else { scaled.value() / (n * (n - 1.0)) }
}
