//! A matrix in memory as chunks of consecutive cells.

use std::ops::Range;
use std::sync::Arc;

use zheng17_core::backend::ChunkSink;
use zheng17_core::matrix::ValueKind;
use zheng17_core::{ChunkSource, Context, CsrBuffer, CsrView, Result, Shape, Values};

use crate::workers::Workers;

/// Small matrices are cut into at least so many chunks for each worker.
const CHUNKS_PER_WORKER: usize = 4;

/// Chunks of consecutive cells, and the workers that compute with them.
pub struct ChunkedMatrix {
    n_genes: usize,
    chunks: Vec<Arc<CsrBuffer>>,
    /// The first cell of each chunk, and the number of all cells.
    first_cells: Vec<usize>,
    pub(crate) workers: Arc<Workers>,
}

impl ChunkedMatrix {
    /// A matrix of these chunks, whatever they say of their place.
    pub(crate) fn new(n_genes: usize, chunks: Vec<CsrBuffer>, workers: Arc<Workers>) -> Self {
        Self::of_shared(n_genes, chunks.into_iter().map(Arc::new).collect(), workers)
    }

    fn of_shared(n_genes: usize, mut chunks: Vec<Arc<CsrBuffer>>, workers: Arc<Workers>) -> Self {
        chunks.retain(|chunk| chunk.n_cells() > 0);
        let mut first_cells = vec![0];
        let mut n_cells = 0;
        for chunk in &chunks {
            n_cells += chunk.n_cells();
            first_cells.push(n_cells);
        }
        Self { n_genes, chunks, first_cells, workers }
    }

    /// Reads all cells of a source, several chunks at once.
    pub(crate) fn read(source: &dyn ChunkSource, workers: Arc<Workers>, ctx: &Context) -> Result<Self> {
        let Shape { n_cells, n_genes } = source.shape();
        // A few chunks for each worker, so that none waits long for the last one.
        let step = ctx.rows_per_chunk().min(n_cells.div_ceil(CHUNKS_PER_WORKER * workers.number())).max(1);
        let read = workers.fold(
            n_cells.div_ceil(step),
            ctx,
            &|| (CsrBuffer::new(n_genes, ValueKind::F32), Vec::new()),
            &|(buffer, chunks): &mut (CsrBuffer, Vec<CsrBuffer>), at| {
                let cells = at * step..((at + 1) * step).min(n_cells);
                source.read_cells(cells.clone(), buffer)?;
                // A copy has exactly the size it needs; the buffer keeps its slack for the next chunk.
                chunks.push(exact_copy(buffer));
                Ok(cells.len())
            },
        )?;
        let mut chunks: Vec<CsrBuffer> = read.into_iter().flat_map(|(_, chunks)| chunks).collect();
        chunks.sort_by_key(|chunk| chunk.first_cell);
        Ok(Self::new(n_genes, chunks, workers))
    }

    /// The cells of several matrices, shared with them.
    pub(crate) fn concat(parts: &[&Self]) -> Result<Self> {
        let Some(first) = parts.first() else {
            return Err(zheng17_core::Error::usage("no matrices to put below each other"));
        };
        let chunks = parts.iter().flat_map(|part| part.chunks.iter().cloned()).collect();
        Ok(Self::of_shared(first.n_genes, chunks, Arc::clone(&first.workers)))
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { n_cells: self.first_cells[self.chunks.len()], n_genes: self.n_genes }
    }

    pub(crate) fn n_chunks(&self) -> usize {
        self.chunks.len()
    }

    pub(crate) fn chunk(&self, at: usize) -> CsrView<'_> {
        self.chunks[at].view().with_first_cell(self.first_cells[at])
    }

    /// Shows a range of cells, which may span chunks, in order.
    pub(crate) fn for_pieces(&self, cells: Range<usize>, f: &mut ChunkSink<'_>) -> Result<()> {
        let mut at = self.first_cells.partition_point(|&first| first <= cells.start).saturating_sub(1);
        let mut start = cells.start;
        while start < cells.end {
            let chunk = self.chunk(at);
            let end = cells.end.min(chunk.first_cell() + chunk.n_cells());
            f(chunk.rows(start - chunk.first_cell()..end - chunk.first_cell()))?;
            start = end;
            at += 1;
        }
        Ok(())
    }
}

fn exact_copy(buffer: &CsrBuffer) -> CsrBuffer {
    CsrBuffer {
        first_cell: buffer.first_cell,
        n_genes: buffer.n_genes,
        indptr: buffer.indptr.clone(),
        indices: buffer.indices.clone(),
        values: match &buffer.values {
            Values::F32(values) => Values::F32(values.clone()),
            Values::F64(values) => Values::F64(values.clone()),
        },
    }
}
