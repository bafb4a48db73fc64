//! The in-memory backend on several threads: chunks of cells, one accumulator for each worker, the vectorised kernels.
//!
//! Results have the bits of the serial backend: sums are exact, and what is summed in floats goes in fixed blocks and a fixed
//! order. It starts as many threads as it was given and no more; with one thread it starts none.

mod matrix;
mod workers;

use std::sync::{Arc, Mutex, PoisonError};

pub use matrix::{ChunkedMatrix, USUAL_CHUNK_ENTRIES, chunk_rows, estimated_entries, rows_at_once};
pub use workers::Workers;
use zheng17_core::backend::operations::{self, ReductionSums, check_concat, check_multiply, check_transform};
use zheng17_core::backend::{
    BackendEntry, ChunkSink, DENSE_ROWS, Determinism, GRAM_BLOCK, Gram, Projection, Reduction, Registry, RowSink,
    Transform,
};
use zheng17_core::exact::{CountSummary, MomentPlan, MomentSummary};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{CsrBuffer, GeneMap, ValueKind};
use zheng17_core::{
    Capabilities, ChunkKernels, ChunkSource, Context, CsrView, Result, Selection, Shape, SparseBackend,
};
use zheng17_kernels::{
    CountFolder, FastKernels, GramBlock, GramTotal, KeptChunk, MomentFolder, Scores, select_kept_into,
};

/// The backend.
#[derive(Debug, Clone)]
pub struct Rayon {
    capabilities: Capabilities,
    kernels: FastKernels,
}

impl Default for Rayon {
    fn default() -> Self {
        Self {
            capabilities: Capabilities {
                name: "rayon".to_owned(),
                description: "chunks of cells in memory, several threads, vectorised".to_owned(),
                determinism: Determinism::SameBits,
                ordered_fold: true,
                out_of_core: false,
                threads: true,
                devices: false,
            },
            kernels: FastKernels::default(),
        }
    }
}

/// Adds this backend to a registry.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if the name is taken.
pub fn register(registry: &mut Registry) -> Result<()> {
    registry.register(BackendEntry::new(env!("CARGO_PKG_NAME"), Rayon::default))
}

impl Rayon {
    /// Makes one chunk of each chunk of a matrix.
    fn map(
        matrix: &ChunkedMatrix,
        n_genes: usize,
        make: impl Fn(CsrView<'_>) -> Result<CsrBuffer> + Sync,
    ) -> Result<ChunkedMatrix> {
        let chunks = matrix.workers.map(matrix.n_chunks(), &|at| {
            let made = make(matrix.rows(at, &mut CsrBuffer::new(0, ValueKind::F32)))?;
            Ok(Arc::new(KeptChunk::keep(made.view())))
        })?;
        Ok(ChunkedMatrix::new(n_genes, chunks, Arc::clone(&matrix.workers)))
    }

    /// Hands on what `make` makes of the cells, in order, some rows of a chunk at a time, with these rows.
    fn in_order<T: Default + Send>(
        matrix: &ChunkedMatrix,
        ctx: &Context,
        make: impl Fn(CsrView<'_>, &mut T) -> Result<()> + Sync,
        mut sink: impl FnMut(CsrView<'_>, &T) -> Result<()> + Send,
    ) -> Result<()> {
        let n_cells = matrix.shape().n_cells;
        let at_once = if matrix.n_chunks() == 0 { 1 } else { matrix.cells(0).len().min(DENSE_ROWS) };
        matrix.workers.in_turn(
            n_cells.div_ceil(at_once),
            ctx,
            &|| (CsrBuffer::new(0, ValueKind::F32), T::default()),
            &|(rows, made), at| {
                matrix.read_into(at * at_once..((at + 1) * at_once).min(n_cells), rows);
                make(rows.view(), made)
            },
            &mut |(rows, made), _| {
                sink(rows.view(), made)?;
                Ok(rows.n_cells())
            },
        )
    }

    /// Folds the chunks into one state for each worker.
    fn fold<S: Send>(
        matrix: &ChunkedMatrix,
        ctx: &Context,
        make: impl Fn() -> S + Sync,
        fold: impl Fn(&mut S, usize) -> Result<()> + Sync,
    ) -> Result<Vec<S>> {
        matrix.workers.fold(matrix.n_chunks(), ctx, &make, &|state, at| {
            fold(state, at)?;
            Ok(matrix.cells(at).len())
        })
    }
}

impl SparseBackend for Rayon {
    type Matrix = ChunkedMatrix;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<ChunkedMatrix> {
        let workers = Arc::new(Workers::new(ctx.threads)?);
        ChunkedMatrix::read(source.as_ref(), workers, ctx)
    }

    fn shape(&self, matrix: &ChunkedMatrix) -> Shape {
        matrix.shape()
    }

    fn select(&self, matrix: &ChunkedMatrix, cells: &Selection, genes: &Selection) -> Result<ChunkedMatrix> {
        let Shape { n_cells, n_genes } = matrix.shape();
        let genes = genes.resolve(n_genes, "gene")?;
        let map = GeneMap::new(n_genes, &genes);
        if *cells == Selection::All {
            let chunks = matrix.workers.map(matrix.n_chunks(), &|at| {
                let mut selected = CsrBuffer::new(genes.len(), ValueKind::F32);
                select_kept_into(matrix.kept(at), &map, &mut selected);
                Ok(Arc::new(KeptChunk::keep(selected.view())))
            })?;
            return Ok(ChunkedMatrix::new(genes.len(), chunks, Arc::clone(&matrix.workers)));
        }
        let cells = cells.resolve(n_cells, "cell")?;
        Self::map(matrix, genes.len(), |chunk| {
            let mut out = CsrBuffer::new(genes.len(), chunk.values().kind());
            let first = cells.partition_point(|&cell| cell < chunk.first_cell());
            let end = cells.partition_point(|&cell| cell < chunk.first_cell() + chunk.n_cells());
            for run in cells[first..end].chunk_by(|a, b| a + 1 == *b) {
                let (Some(&from), Some(&to)) = (run.first(), run.last()) else { continue };
                let rows = from - chunk.first_cell()..to + 1 - chunk.first_cell();
                self.kernels.select_into(chunk.rows(rows), &map, &mut out)?;
            }
            Ok(out)
        })
    }

    fn transform(&self, matrix: &ChunkedMatrix, transform: &Transform) -> Result<ChunkedMatrix> {
        check_transform(transform, matrix.shape())?;
        Self::map(matrix, matrix.shape().n_genes, |chunk| match transform {
            Transform::ScaleCells(factors) => {
                let own = factors[chunk.first_cell()..chunk.first_cell() + chunk.n_cells()].into();
                operations::transform(chunk, &Transform::ScaleCells(own))
            }
            other => operations::transform(chunk, other),
        })
    }

    fn multiply(&self, a: &ChunkedMatrix, b: &ChunkedMatrix) -> Result<ChunkedMatrix> {
        check_multiply(a.shape(), b.shape())?;
        Self::map(a, a.shape().n_genes, |chunk| {
            let mut other = CsrBuffer::new(chunk.n_genes(), ValueKind::F32);
            b.read_into(chunk.first_cell()..chunk.first_cell() + chunk.n_cells(), &mut other);
            operations::multiply(chunk, other.view())
        })
    }

    fn reduce(&self, matrix: &ChunkedMatrix, wanted: &[Reduction], ctx: &Context) -> Result<Vec<Vec<f64>>> {
        // Sums of floats depend on their order, so cells are added in theirs.
        let mut sums = ReductionSums::new(matrix.shape(), wanted);
        self.visit(matrix, ctx, &mut |chunk| {
            sums.fold(chunk);
            Ok(())
        })?;
        Ok(sums.finish())
    }

    fn visit(&self, matrix: &ChunkedMatrix, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
        Self::in_order(matrix, ctx, |_, ()| Ok(()), |rows, ()| f(rows))
    }

    fn concat(&self, parts: &[&ChunkedMatrix]) -> Result<ChunkedMatrix> {
        check_concat(&parts.iter().map(|part| part.shape()).collect::<Vec<_>>())?;
        ChunkedMatrix::concat(parts)
    }

    fn count_summary(
        &self,
        matrix: &ChunkedMatrix,
        excluded: Option<&Arc<[bool]>>,
        ctx: &Context,
    ) -> Result<CountSummary> {
        let n_genes = matrix.shape().n_genes;
        let make = || CountFolder::new(n_genes, excluded.cloned());
        let fold = |folder: &mut CountFolder, at| folder.fold_kept(matrix.kept(at), matrix.cells(at).start);
        let folders = Self::fold(matrix, ctx, make, fold)?;
        let mut summary = CountSummary::new(n_genes, excluded.cloned());
        for folder in folders {
            summary.merge(folder.finish()?)?;
        }
        Ok(summary)
    }

    fn moment_summary(&self, matrix: &ChunkedMatrix, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary> {
        let n_genes = matrix.shape().n_genes;
        let make = || (MomentFolder::new(n_genes, plan), CsrBuffer::new(0, ValueKind::F32));
        let folders = Self::fold(matrix, ctx, make, |(folder, scratch), at| folder.fold(matrix.rows(at, scratch)))?;
        let mut summary = MomentSummary::new(n_genes);
        for (folder, _) in folders {
            summary.merge(&folder.finish()?)?;
        }
        Ok(summary)
    }

    fn gram(&self, matrix: &ChunkedMatrix, plan: &OutputPlan, ctx: &Context) -> Result<Gram> {
        let n_cells = matrix.shape().n_cells;
        let mut total = GramTotal::new(plan);
        matrix.workers.in_turn(
            n_cells.div_ceil(GRAM_BLOCK),
            ctx,
            &|| (GramBlock::new(plan), CsrBuffer::new(0, ValueKind::F32)),
            &|(block, rows), at| {
                let first = at * GRAM_BLOCK;
                matrix.read_into(first..(first + GRAM_BLOCK).min(n_cells), rows);
                block.clear();
                block.add(rows.view(), plan);
                block.multiply();
                Ok(())
            },
            &mut |(block, rows), _| {
                total.add(block);
                Ok(rows.n_cells())
            },
        )?;
        Ok(total.finish())
    }

    fn project(
        &self,
        matrix: &ChunkedMatrix,
        plan: &OutputPlan,
        projection: &Projection,
        ctx: &Context,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let projection = Scores::new(projection, plan);
        let make = |rows: CsrView<'_>, scores: &mut Vec<f32>| {
            projection.of(rows, scores);
            Ok(())
        };
        Self::in_order(matrix, ctx, make, |rows, scores| sink(rows.first_cell(), scores))
    }

    fn scaled(&self, matrix: &ChunkedMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        let make = |rows: CsrView<'_>, scaled: &mut Vec<f32>| {
            scaled.resize(rows.n_cells() * rows.n_genes(), 0.0);
            self.kernels.affine_into(rows, plan, scaled)
        };
        Self::in_order(matrix, ctx, make, |rows, scaled| sink(rows.first_cell(), scaled))
    }

    fn scaled_into(&self, matrix: &ChunkedMatrix, plan: &OutputPlan, ctx: &Context, out: &mut [f32]) -> Result<()> {
        operations::check_dense(matrix.shape(), out)?;
        let n_genes = plan.n_genes();
        // Each chunk has a part of the output to itself.
        let mut rest = out;
        let mut parts = Vec::with_capacity(matrix.n_chunks());
        for at in 0..matrix.n_chunks() {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(matrix.cells(at).len() * n_genes);
            parts.push(Mutex::new(part));
            rest = after;
        }
        Self::fold(
            matrix,
            ctx,
            || CsrBuffer::new(0, ValueKind::F32),
            |scratch, at| {
                let mut part = parts[at].lock().unwrap_or_else(PoisonError::into_inner);
                self.kernels.affine_into(matrix.rows(at, scratch), plan, &mut part)
            },
        )?;
        Ok(())
    }
}
