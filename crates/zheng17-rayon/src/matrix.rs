//! A matrix in memory as chunks of consecutive cells, each in as few bytes as it has.

use std::ops::Range;
use std::sync::Arc;

use zheng17_core::backend::GRAM_BLOCK;
use zheng17_core::matrix::ValueKind;
use zheng17_core::{ChunkSource, Context, CsrBuffer, CsrView, Result, Shape};
use zheng17_kernels::KeptChunk;

use crate::workers::Workers;

/// Entries of a chunk that keep a worker busy for a few milliseconds; more only cost memory.
pub const USUAL_CHUNK_ENTRIES: u64 = 1 << 20;

/// Rows of chunks with at most so many entries: a power of two up to the rows that PCA sums at once, so that its blocks are
/// made of whole chunks.
pub fn chunk_rows(n_cells: usize, n_entries: u64, chunk_entries: u64) -> usize {
    let row_entries = n_entries.div_ceil(n_cells.max(1) as u64).max(1);
    let rows = (chunk_entries / row_entries).clamp(16, GRAM_BLOCK as u64);
    1 << rows.ilog2()
}

/// Rows that a worker reads at once, if chunks should have `rows`: a few chunks for each worker, so that none waits long for the
/// last one.
pub fn rows_at_once(rows: usize, n_cells: usize, workers: usize) -> usize {
    rows.min(n_cells.div_ceil(CHUNKS_PER_WORKER * workers)).max(1)
}

/// Cells that are looked at where a source doesn't tell how many entries it has.
const SAMPLE_CELLS: usize = 32;

/// How many entries a source has, about, if it doesn't tell: as if all cells were like the first ones.
///
/// # Errors
/// Those of reading.
pub fn estimated_entries(source: &dyn ChunkSource) -> Result<u64> {
    let Shape { n_cells, n_genes } = source.shape();
    if let Some(n_entries) = source.n_entries() {
        return Ok(n_entries);
    }
    let sample = n_cells.min(SAMPLE_CELLS);
    let mut cells = CsrBuffer::new(n_genes, ValueKind::F32);
    source.read_cells(0..sample, &mut cells)?;
    Ok((cells.indices.len() as f64 / sample.max(1) as f64 * n_cells as f64) as u64)
}

/// Small matrices are cut into at least so many chunks for each worker.
const CHUNKS_PER_WORKER: usize = 4;

/// Chunks of consecutive cells, and the workers that compute with them.
pub struct ChunkedMatrix {
    n_genes: usize,
    chunks: Vec<Arc<KeptChunk>>,
    /// The first cell of each chunk, and the number of all cells.
    first_cells: Vec<usize>,
    pub(crate) workers: Arc<Workers>,
}

impl ChunkedMatrix {
    /// A matrix of these chunks, whatever they say of their place.
    pub(crate) fn new(n_genes: usize, mut chunks: Vec<Arc<KeptChunk>>, workers: Arc<Workers>) -> Self {
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
        let step = match ctx.chunk_rows {
            None => chunk_rows(n_cells, estimated_entries(source)?, USUAL_CHUNK_ENTRIES),
            Some(rows) => rows.get(),
        };
        let step = rows_at_once(step, n_cells, workers.number());
        let read = workers.fold(
            n_cells.div_ceil(step),
            ctx,
            &|| (CsrBuffer::new(n_genes, ValueKind::F32), Vec::new()),
            &|(buffer, chunks): &mut (CsrBuffer, Vec<KeptChunk>), at| {
                let cells = at * step..((at + 1) * step).min(n_cells);
                source.read_cells(cells.clone(), buffer)?;
                chunks.push(KeptChunk::keep(buffer.view()));
                Ok(cells.len())
            },
        )?;
        let mut chunks: Vec<KeptChunk> = read.into_iter().flat_map(|(_, chunks)| chunks).collect();
        chunks.sort_by_key(KeptChunk::first_cell);
        Ok(Self::new(n_genes, chunks.into_iter().map(Arc::new).collect(), workers))
    }

    /// The cells of several matrices, shared with them.
    pub(crate) fn concat(parts: &[&Self]) -> Result<Self> {
        let Some(first) = parts.first() else {
            return Err(zheng17_core::Error::usage("no matrices to put below each other"));
        };
        let chunks = parts.iter().flat_map(|part| part.chunks.iter().cloned()).collect();
        Ok(Self::new(first.n_genes, chunks, Arc::clone(&first.workers)))
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { n_cells: self.first_cells[self.chunks.len()], n_genes: self.n_genes }
    }

    pub(crate) fn n_chunks(&self) -> usize {
        self.chunks.len()
    }

    /// A chunk, which may think that it is elsewhere.
    pub(crate) fn kept(&self, at: usize) -> &KeptChunk {
        &self.chunks[at]
    }

    /// Where a chunk is.
    pub(crate) fn cells(&self, at: usize) -> Range<usize> {
        self.first_cells[at]..self.first_cells[at + 1]
    }

    /// The rows of a chunk at their place; `scratch` may be needed to hold them.
    pub(crate) fn rows<'a>(&'a self, at: usize, scratch: &'a mut CsrBuffer) -> CsrView<'a> {
        self.kept(at).view(scratch).with_first_cell(self.first_cells[at])
    }

    /// Any cells, which may span chunks.
    pub(crate) fn read_into(&self, cells: Range<usize>, out: &mut CsrBuffer) {
        out.reset(cells.start, self.n_genes, ValueKind::F32);
        let mut at = self.first_cells.partition_point(|&first| first <= cells.start).saturating_sub(1);
        let mut start = cells.start;
        while start < cells.end {
            let chunk = self.cells(at);
            let end = cells.end.min(chunk.end);
            self.kept(at).append_rows_to(start - chunk.start..end - chunk.start, out);
            start = end;
            at += 1;
        }
    }
}
