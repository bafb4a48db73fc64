//! What a matrix would take in memory, from its size and a few of its cells.

use std::sync::Arc;

use zheng17_core::matrix::ValueKind;
use zheng17_core::source::CheckedSource;
use zheng17_core::{ChunkSource, CsrBuffer, Result, Shape};
use zheng17_kernels::KeptChunk;
use zheng17_lazy::share_of_selected;

/// Cells that are looked at, in blocks spread over the matrix.
const SAMPLE_CELLS: usize = 256;
const SAMPLE_BLOCKS: usize = 4;

/// Genes that are looked at in matrices that are stored by genes.
const SAMPLE_GENES: usize = 16;

/// Bytes of an entry in the narrow form.
const BYTES_OF_A_PACKED_ENTRY: f64 = 2.1;

/// Bytes of an entry that is held as a 32-bit gene and a 32-bit value.
const BYTES_OF_AN_ENTRY: f64 = 8.0;

/// What a matrix would take, about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Number of stored entries.
    pub n_entries: u64,
    /// Bytes of the whole matrix as the backends rayon and lazy keep it.
    pub matrix_bytes: u64,
}

impl Estimate {
    /// Looks at a few cells, unless that would mean to read everything.
    ///
    /// # Errors
    /// Those of reading, which names wrong values.
    pub fn new(source: &Arc<dyn ChunkSource>) -> Result<Self> {
        let Shape { n_cells, n_genes } = source.shape();
        if source.stored_by_genes() || n_cells < 2 || n_genes == 0 {
            return Self::by_genes(source);
        }
        let source = CheckedSource::new(Arc::clone(source))?;
        let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
        let (blocks, block) =
            if n_cells <= SAMPLE_CELLS { (1, n_cells) } else { (SAMPLE_BLOCKS, SAMPLE_CELLS / SAMPLE_BLOCKS) };
        let (mut cells, mut entries, mut bytes) = (0, 0, 0);
        for at in 0..blocks {
            let start = at * n_cells / blocks;
            source.read_cells(start..start + block, &mut buffer)?;
            cells += block;
            entries += buffer.indices.len();
            bytes += KeptChunk::keep(buffer.view()).bytes();
        }
        let by_cells = n_cells as f64 / cells as f64;
        let n_entries = source.n_entries().unwrap_or((entries as f64 * by_cells) as u64);
        let times = if entries == 0 { by_cells } else { n_entries as f64 / entries as f64 };
        Ok(Self { n_entries, matrix_bytes: (bytes as f64 * times) as u64 })
    }

    /// Looks at a few genes, where looking at cells would mean to read everything.
    fn by_genes(source: &Arc<dyn ChunkSource>) -> Result<Self> {
        let Shape { n_cells, n_genes } = source.shape();
        let n_entries = source.n_entries().unwrap_or(n_cells as u64 * n_genes as u64);
        let mut buffer = CsrBuffer::new(n_cells, ValueKind::F32);
        let mut packed = source.stored_by_genes();
        for at in 0..if packed { SAMPLE_GENES.min(n_genes) } else { 0 } {
            let gene = at * n_genes / SAMPLE_GENES.min(n_genes);
            source.read_genes(gene..gene + 1, &mut buffer)?;
            // Rows of cells come out sorted; whether values are small counts is seen as well in the column of a gene.
            buffer.sort_rows();
            packed &= matches!(KeptChunk::keep(buffer.view()), KeptChunk::Packed(_));
        }
        let of_an_entry = if packed { BYTES_OF_A_PACKED_ENTRY } else { BYTES_OF_AN_ENTRY };
        Ok(Self { n_entries, matrix_bytes: (n_entries as f64 * of_an_entry) as u64 })
    }

    /// Entries of so many selected genes.
    pub fn selected_entries(&self, n_selected: usize) -> u64 {
        (self.n_entries as f64 * share_of_selected(n_selected)) as u64
    }

    /// Bytes of so many selected genes, as they are kept.
    pub fn selected_bytes(&self, n_selected: usize) -> u64 {
        (self.matrix_bytes as f64 * share_of_selected(n_selected)) as u64
    }

    /// Bytes that the serial backend takes for the matrix, the selected genes included.
    pub fn serial_bytes(&self, n_selected: usize) -> u64 {
        ((self.n_entries + self.selected_entries(n_selected)) as f64 * BYTES_OF_AN_ENTRY) as u64
    }
}
