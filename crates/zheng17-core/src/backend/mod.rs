//! What a backend is: a matrix of its own kind, the operations of the investigation on it, and one way to look at its cells.
//!
//! Implementers write the required methods; the provided ones go through [`SparseBackend::visit`] and the scalar chunk
//! functions, and are the specification of every override. Override a provided method when the backend can do it without
//! handing chunks to one thread: several threads, a device, a fused pass. Input has been checked before it arrives here.

mod any;
mod capabilities;
pub mod chunked;
pub mod operations;
mod pca_sums;
mod registry;

use std::sync::Arc;

pub use any::{AnyBackend, AnyMatrix};
pub use capabilities::{Capabilities, Determinism};
pub use pca_sums::{GRAM_BLOCK, Gram, GramBuilder, Projection};
pub use registry::{AUTO, BackendEntry, LinkedBackend, Origin, Registry};

use crate::context::Context;
use crate::error::Result;
use crate::exact::{CountSummary, MomentPlan, MomentSummary};
use crate::kernels::{ChunkKernels, OutputPlan, ScalarKernels};
use crate::matrix::{CsrBuffer, CsrView, Selection, Shape, ValueKind};
use crate::source::ChunkSource;

/// Rows or columns, as a direction to sum along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// One result per cell: along its genes.
    Cells,
    /// One result per gene: along the cells.
    Genes,
}

/// A statistic along an axis, zeros included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// The sum.
    Sum,
    /// The arithmetic mean.
    Mean,
    /// The variance with ddof 1. It doesn't cancel: a constant gives 0, and large means cost no digits.
    Variance,
}

/// What [`SparseBackend::reduce`] is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reduction {
    /// One result per cell or per gene.
    pub axis: Axis,
    /// Which.
    pub statistic: Statistic,
}

/// A change of each stored value that leaves zeros alone.
#[derive(Debug, Clone)]
pub enum Transform {
    /// Multiplies each cell by its factor.
    ScaleCells(Arc<[f64]>),
    /// Multiplies each gene by its factor.
    ScaleGenes(Arc<[f64]>),
    /// Applies a function with f(0) = 0.
    Map(ZeroPreserving),
    /// Changes the number type; `f64` values are rounded to the nearest `f32`.
    Cast(ValueKind),
}

/// Functions with f(0) = 0.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ZeroPreserving {
    /// log(1 + x), by [`crate::log1p::log1p`].
    Log1p,
    /// exp(x) − 1.
    Expm1,
    /// x².
    Square,
    /// √x.
    Sqrt,
    /// |x|.
    Abs,
    /// −1, 0 or 1.
    Sign,
    /// To the nearest integer, ties to even.
    Round,
    Floor,
    Ceil,
    /// x times a number.
    Times(f64),
}

impl ZeroPreserving {
    /// One of each, for listings and tests.
    pub const ALL: [Self; 10] = [
        Self::Log1p,
        Self::Expm1,
        Self::Square,
        Self::Sqrt,
        Self::Abs,
        Self::Sign,
        Self::Round,
        Self::Floor,
        Self::Ceil,
        Self::Times(2.5),
    ];

    /// f(x), in 64 bits.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Self::Log1p => crate::log1p::log1p(x),
            Self::Expm1 => x.exp_m1(),
            Self::Square => x * x,
            Self::Sqrt => x.sqrt(),
            Self::Abs => x.abs(),
            Self::Sign if x == 0.0 => 0.0,
            Self::Sign => x.signum(),
            Self::Round => x.round_ties_even(),
            Self::Floor => x.floor(),
            Self::Ceil => x.ceil(),
            Self::Times(factor) => x * factor,
        }
    }
}

/// Dense rows that are made at a time, whatever the size of chunks: more need memory, and cost the time to get it.
pub const DENSE_ROWS: usize = 1024;

/// Receives chunks of cells, one after another; perhaps on another thread than the caller's.
pub type ChunkSink<'a> = dyn FnMut(CsrView<'_>) -> Result<()> + Send + 'a;

/// Receives dense rows, one after another, each time with the position of the first; perhaps on another thread than the
/// caller's.
pub type RowSink<'a> = dyn FnMut(usize, &[f32]) -> Result<()> + Send + 'a;

/// A way to hold sparse matrices and compute with them.
///
/// Matrices are cells × genes and never change: each operation makes a new one, which may be lazy. Where a source has chunks of
/// different number types, so may a matrix; what is said of "the matrix's number type" holds for each chunk, and a cast makes
/// them one.
pub trait SparseBackend: Send + Sync + 'static {
    /// What the backend keeps for a matrix.
    type Matrix: Send + Sync + 'static;

    /// What the backend can do, as data.
    fn capabilities(&self) -> &Capabilities;

    /// Takes in the cells of a source. The source has been checked and can be read again.
    ///
    /// # Behavior
    /// - The matrix has the source's cells, in order, with every value exact.
    /// - A source with a damaged chunk is an error, and so is one that was cancelled.
    ///
    /// # Errors
    /// Those of the source; [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<Self::Matrix>;

    /// Cells × genes.
    fn shape(&self, matrix: &Self::Matrix) -> Shape;

    /// Keeps some cells and some genes.
    ///
    /// # Behavior
    /// - Masks, increasing indices, ranges and `All` work on both axes together and keep the order.
    /// - Selecting nothing gives a matrix without cells or genes.
    /// - A mask of another length, indices that don't increase or lie beyond the end are usage errors.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) as above.
    fn select(&self, matrix: &Self::Matrix, cells: &Selection, genes: &Selection) -> Result<Self::Matrix>;

    /// Changes each stored value.
    ///
    /// # Behavior
    /// - Scaling multiplies in 64 bits and rounds to the matrix's number type once.
    /// - Maps are computed in 64 bits and rounded to the matrix's number type once; zeros stay zeros.
    /// - Values that become zero are no longer stored.
    /// - A cast to `f64` keeps every value, a cast to `f32` rounds to the nearest.
    /// - Factors of another number than there are cells or genes are usage errors.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) as above.
    fn transform(&self, matrix: &Self::Matrix, transform: &Transform) -> Result<Self::Matrix>;

    /// Multiplies two matrices of one shape, element by element.
    ///
    /// # Behavior
    /// - The product has an entry where both have one; it is computed in 64 bits and rounded once to the wider number type.
    /// - Products that are zero after rounding are not stored.
    /// - Unsorted rows are multiplied as if they were sorted.
    /// - Different shapes are a usage error.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) as above.
    fn multiply(&self, a: &Self::Matrix, b: &Self::Matrix) -> Result<Self::Matrix>;

    /// Statistics along axes, all from one pass where the backend can.
    ///
    /// # Behavior
    /// - Results come in the order asked for, one value per cell or gene, zeros included.
    /// - A constant has variance 0, and a large mean costs no digits of the variance.
    /// - The mean along an empty axis is NaN, and so is the variance of fewer than two.
    ///
    /// # Errors
    /// Those of reading, for lazy matrices.
    fn reduce(&self, matrix: &Self::Matrix, wanted: &[Reduction], ctx: &Context) -> Result<Vec<Vec<f64>>> {
        let mut sums = operations::ReductionSums::new(self.shape(matrix), wanted);
        self.visit(matrix, ctx, &mut |chunk| {
            sums.fold(chunk);
            Ok(())
        })?;
        Ok(sums.finish())
    }

    /// Shows all cells to `f`, chunk by chunk in cell order, and reports each finished chunk to `ctx.progress`.
    ///
    /// # Behavior
    /// - Each cell is shown once, in order, at its place (`first_cell`).
    /// - An error of `f` ends the visit and is returned; so does a cancellation.
    ///
    /// # Errors
    /// Those of `f`, those of reading, [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    fn visit(&self, matrix: &Self::Matrix, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()>;

    /// How a matrix comes about and what was done with it so far, for people: one step a line. `None` where a matrix is just
    /// what is in memory.
    fn explain(&self, _matrix: &Self::Matrix) -> Option<String> {
        None
    }

    /// What a user should know of how a matrix was computed so far, because it did not go as it should. Full sentences without
    /// their end.
    fn notes(&self, _matrix: &Self::Matrix) -> Vec<String> {
        Vec::new()
    }

    /// Puts the cells of one matrix behind those of another.
    ///
    /// # Behavior
    /// - The cells come in the order of the parts, all values exact.
    /// - Parts with different numbers of genes, or no parts, are usage errors.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) as above.
    fn concat(&self, parts: &[&Self::Matrix]) -> Result<Self::Matrix>;

    /// Totals and exact moments of all cells; `excluded` genes don't count in cell totals.
    ///
    /// # Behavior
    /// - The bits are those of [`CountSummary::fold`], whatever the order.
    ///
    /// # Errors
    /// A cell with a total above 2^53; those of reading.
    fn count_summary(
        &self,
        matrix: &Self::Matrix,
        excluded: Option<&Arc<[bool]>>,
        ctx: &Context,
    ) -> Result<CountSummary> {
        let mut summary = CountSummary::new(self.shape(matrix).n_genes, excluded.cloned());
        self.visit(matrix, ctx, &mut |chunk| ScalarKernels.fold_counts(&mut summary, chunk))?;
        Ok(summary)
    }

    /// Exact moments of each gene after cells were scaled as the plan says.
    ///
    /// # Behavior
    /// - The bits are those of [`MomentSummary::fold`], whatever the order.
    ///
    /// # Errors
    /// Those of reading.
    fn moment_summary(&self, matrix: &Self::Matrix, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary> {
        let mut summary = MomentSummary::new(self.shape(matrix).n_genes);
        self.visit(matrix, ctx, &mut |chunk| ScalarKernels.fold_moments(&mut summary, chunk, plan))?;
        Ok(summary)
    }

    /// Products of all pairs of selected genes, summed over cells: what PCA needs.
    ///
    /// # Behavior
    /// - Blocks of 4,096 cells are summed in `f64` and added in cell order, so chunks and threads never change a bit.
    ///
    /// # Errors
    /// Those of reading.
    fn gram(&self, matrix: &Self::Matrix, plan: &OutputPlan, ctx: &Context) -> Result<Gram> {
        let mut builder = GramBuilder::new(plan);
        self.visit(matrix, ctx, &mut |chunk| {
            builder.fold(chunk, plan);
            Ok(())
        })?;
        Ok(builder.finish())
    }

    /// The scores of all cells on the components of a projection: rows of cells × components, handed on in cell order.
    ///
    /// # Behavior
    /// - Scores are those of the centred, scaled matrix; each cell's are summed in `f64` in gene order.
    ///
    /// # Errors
    /// Those of reading and of `sink`.
    fn project(
        &self,
        matrix: &Self::Matrix,
        plan: &OutputPlan,
        projection: &Projection,
        ctx: &Context,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let mut scores = Vec::new();
        self.visit(matrix, ctx, &mut |chunk| {
            projection.scores(chunk, plan, &mut scores);
            sink(chunk.first_cell(), &scores)
        })
    }

    /// The scaled values of all cells: dense rows of cells × genes, handed on in cell order.
    ///
    /// # Behavior
    /// - Values are those of [`OutputPlan::scaled`], rounded to `f32` once.
    ///
    /// # Errors
    /// Those of reading and of `sink`.
    fn scaled(&self, matrix: &Self::Matrix, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        let mut rows = Vec::new();
        self.visit(matrix, ctx, &mut |chunk| {
            for start in (0..chunk.n_cells()).step_by(DENSE_ROWS) {
                let part = chunk.rows(start..(start + DENSE_ROWS).min(chunk.n_cells()));
                rows.resize(part.n_cells() * part.n_genes(), 0.0);
                ScalarKernels.affine_into(part, plan, &mut rows)?;
                sink(part.first_cell(), &rows)?;
            }
            Ok(())
        })
    }

    /// The scaled values of all cells as one dense matrix in memory: cells × genes, row by row.
    ///
    /// # Behavior
    /// - The bits are those of [`SparseBackend::scaled`].
    /// - A matrix of another size is a usage error.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) as above; those of reading.
    fn scaled_into(&self, matrix: &Self::Matrix, plan: &OutputPlan, ctx: &Context, out: &mut [f32]) -> Result<()> {
        operations::check_dense(self.shape(matrix), out)?;
        let n_genes = plan.n_genes();
        self.scaled(matrix, plan, ctx, &mut |first_cell, rows| {
            out[first_cell * n_genes..][..rows.len()].copy_from_slice(rows);
            Ok(())
        })
    }

    /// The normalised, perhaps logarithmised values of all cells before centring: sparse rows, handed on in cell order.
    ///
    /// # Behavior
    /// - Values are those of [`OutputPlan::normalised`], rounded to `f32` once; rows are sorted.
    ///
    /// # Errors
    /// Those of reading and of `sink`.
    fn normalised(
        &self,
        matrix: &Self::Matrix,
        plan: &OutputPlan,
        ctx: &Context,
        sink: &mut ChunkSink<'_>,
    ) -> Result<()> {
        let mut buffer = CsrBuffer::new(plan.n_genes(), ValueKind::F32);
        self.visit(matrix, ctx, &mut |chunk| {
            buffer.reset(chunk.first_cell(), chunk.n_genes(), ValueKind::F32);
            for row in 0..chunk.n_cells() {
                let scale = plan.cell_scale[chunk.first_cell() + row];
                let values = chunk.row_values(row);
                for (at, &gene) in chunk.row_indices(row).iter().enumerate() {
                    buffer.indices.push(gene);
                    buffer.values.push(plan.normalised(values.get(at), scale));
                }
                buffer.end_row();
            }
            buffer.sort_rows();
            sink(buffer.view())
        })
    }
}
