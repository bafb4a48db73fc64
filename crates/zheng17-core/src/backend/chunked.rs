//! A backend made of chunk kernels alone: whoever has fast kernels, in any language, has a backend.
//!
//! It keeps the matrix in memory as one CSR and hands it to the kernels chunk by chunk, on one thread.

use std::sync::Arc;

use super::{Capabilities, ChunkSink, DENSE_ROWS, RowSink, SparseBackend, Transform, operations};
use crate::context::Context;
use crate::error::Result;
use crate::exact::{CountSummary, MomentPlan, MomentSummary};
use crate::kernels::{ChunkKernels, OutputPlan};
use crate::matrix::{CsrBuffer, GeneMap, Selection, Shape, ValueKind};
use crate::source::{ChunkSource, for_each_chunk};

/// A backend that does every fused step with kernels `K`, and the other operations with core's.
pub struct KernelBackend<K> {
    kernels: K,
    capabilities: Capabilities,
}

impl<K: ChunkKernels> KernelBackend<K> {
    /// A backend with these kernels, which presents itself as `capabilities`.
    pub fn new(kernels: K, capabilities: Capabilities) -> Self {
        Self { kernels, capabilities }
    }
}

impl<K: ChunkKernels + 'static> SparseBackend for KernelBackend<K> {
    type Matrix = CsrBuffer;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<CsrBuffer> {
        read_all(source.as_ref(), ctx)
    }

    fn shape(&self, matrix: &CsrBuffer) -> Shape {
        Shape { n_cells: matrix.n_cells(), n_genes: matrix.n_genes }
    }

    fn select(&self, matrix: &CsrBuffer, cells: &Selection, genes: &Selection) -> Result<CsrBuffer> {
        let cells = cells.resolve(matrix.n_cells(), "cell")?;
        let genes = genes.resolve(matrix.n_genes, "gene")?;
        let map = GeneMap::new(matrix.n_genes, &genes);
        let mut out = CsrBuffer::new(genes.len(), matrix.values.kind());
        let view = matrix.view();
        for run in cells.chunk_by(|a, b| a + 1 == *b) {
            let (Some(&first), Some(&last)) = (run.first(), run.last()) else { continue };
            self.kernels.select_into(view.rows(first..last + 1), &map, &mut out)?;
        }
        Ok(out)
    }

    fn transform(&self, matrix: &CsrBuffer, transform: &Transform) -> Result<CsrBuffer> {
        operations::transform(matrix.view(), transform)
    }

    fn multiply(&self, a: &CsrBuffer, b: &CsrBuffer) -> Result<CsrBuffer> {
        operations::multiply(a.view(), b.view())
    }

    fn visit(&self, matrix: &CsrBuffer, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
        let view = matrix.view();
        for start in (0..view.n_cells()).step_by(ctx.rows_per_chunk()) {
            ctx.check_cancelled()?;
            let end = (start + ctx.rows_per_chunk()).min(view.n_cells());
            f(view.rows(start..end))?;
            ctx.progress.advance(end - start);
        }
        Ok(())
    }

    fn concat(&self, parts: &[&CsrBuffer]) -> Result<CsrBuffer> {
        operations::check_concat(&parts.iter().map(|part| self.shape(part)).collect::<Vec<_>>())?;
        let mut out = CsrBuffer::new(parts.first().map_or(0, |part| part.n_genes), ValueKind::F32);
        for part in parts {
            out.append(part.view());
        }
        Ok(out)
    }

    fn count_summary(&self, matrix: &CsrBuffer, excluded: Option<&Arc<[bool]>>, ctx: &Context) -> Result<CountSummary> {
        let mut summary = CountSummary::new(matrix.n_genes, excluded.cloned());
        self.visit(matrix, ctx, &mut |chunk| self.kernels.fold_counts(&mut summary, chunk))?;
        Ok(summary)
    }

    fn moment_summary(&self, matrix: &CsrBuffer, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary> {
        let mut summary = MomentSummary::new(matrix.n_genes);
        self.visit(matrix, ctx, &mut |chunk| self.kernels.fold_moments(&mut summary, chunk, plan))?;
        Ok(summary)
    }

    fn scaled(&self, matrix: &CsrBuffer, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        let mut rows = Vec::new();
        self.visit(matrix, ctx, &mut |chunk| {
            for start in (0..chunk.n_cells()).step_by(DENSE_ROWS) {
                let part = chunk.rows(start..(start + DENSE_ROWS).min(chunk.n_cells()));
                rows.resize(part.n_cells() * part.n_genes(), 0.0);
                self.kernels.affine_into(part, plan, &mut rows)?;
                sink(part.first_cell(), &rows)?;
            }
            Ok(())
        })
    }
}

/// All cells of a source in memory.
///
/// # Errors
/// Those of the source; [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
pub fn read_all(source: &dyn ChunkSource, ctx: &Context) -> Result<CsrBuffer> {
    let Shape { n_cells, n_genes } = source.shape();
    let mut matrix = CsrBuffer::new(n_genes, ValueKind::F32);
    matrix.indptr.reserve_exact(n_cells);
    let mut first = true;
    for_each_chunk(source, ctx, &mut |chunk| {
        if std::mem::take(&mut first)
            && let Some(n_entries) = source.n_entries()
        {
            // Doubling a vector needs three times its memory at its worst; the source knows how much it has.
            let n_entries = usize::try_from(n_entries).unwrap_or(usize::MAX);
            if chunk.values().kind() == ValueKind::F64 {
                matrix.values.widen();
            }
            let refused = |error| crate::Error::system(format!("no memory for {n_entries} entries")).with_source(error);
            matrix.indices.try_reserve_exact(n_entries).map_err(refused)?;
            matrix.values.try_reserve_exact(n_entries).map_err(refused)?;
        }
        matrix.append(chunk);
        Ok(())
    })?;
    Ok(matrix)
}
