//! Dense matrices in HDF5 as sources of cells: rows are read as they are asked for, and zeros are dropped. Knows how chunks lie in a
//! matrix, not which format it is part of.

use std::ops::Range;
use std::sync::Arc;

use zheng17_core::error::ResultExt as _;
use zheng17_core::matrix::{Value, ValueKind};
use zheng17_core::{ChunkSource, CsrBuffer, Error, Result, Shape, Values};

use crate::bands::Bands;
use crate::hdf5::Hdf5Dataset;
use crate::matrix::{Names, check_range};
use crate::values::smallest;

/// Values that are read at once.
const PIECE: u64 = 1 << 20;

/// Bytes that a value takes while it is read, at most: as stored, as its own type, and as a float.
const VALUE_BYTES: u64 = 24;

/// Decoded chunks of a dataset that doesn't keep them: pieces end where chunks do, and are at most this large.
const LARGEST_BAND_BYTES: u64 = 256 << 20;

/// How often a chunk may have to be decoded in one pass over the cells.
const MOST_DECODINGS: u64 = 16;

/// A dense matrix.
pub(crate) struct DenseRows {
    dataset: Arc<dyn Hdf5Dataset>,
    shape: Shape,
    names: Names,
    plan: Plan,
    /// Rows that were made of a piece, where chunks are so tall that a piece is as large as it can be.
    bands: Bands<()>,
}

/// How rows are read.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    rows_at_once: u64,
    /// Rows of a chunk, where rows that nobody has asked for yet are worth keeping.
    in_bands: Option<u64>,
    /// How often each chunk is decoded in a pass.
    decodings: u64,
    /// Bytes of decoded chunks that should be kept, if that helps.
    kept: Option<u64>,
}

impl Plan {
    /// The plan for a matrix in chunks: all chunks side by side hold some rows, which are read a few at a time.
    fn chunked(shape: [u64; 2], chunk: [u64; 2], element_size: u64, memory: u64) -> Self {
        let [n_rows, row_length] = shape.map(|length| length.max(1));
        let [chunk_rows, chunk_columns] = chunk.map(|length| length.max(1));
        let rows_at_once = (PIECE / row_length).max(1);
        let columns = row_length.div_ceil(chunk_columns).saturating_mul(chunk_columns);
        let band_bytes = columns.saturating_mul(chunk_rows).saturating_mul(element_size);
        if chunk_rows == 1 {
            Self { rows_at_once, in_bands: None, decodings: 1, kept: None }
        } else if band_bytes <= memory / 2 {
            // Two bands, as some threads may be a little behind the others.
            Self { rows_at_once, in_bands: None, decodings: 1, kept: Some(2 * band_bytes) }
        } else {
            // The other half is for the rows.
            let rows_at_once = (memory / 2 / VALUE_BYTES / row_length).clamp(1, chunk_rows.min(n_rows));
            let decodings = chunk_rows.min(n_rows).div_ceil(rows_at_once);
            Self { rows_at_once, in_bands: Some(chunk_rows), decodings, kept: None }
        }
    }
}

impl DenseRows {
    /// A source over a dataset with two dimensions. `memory` is how many bytes reading may take; a note says if that is little.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](zheng17_core::ErrorKind::Unsupported) if the chunks lie so that every read of a few cells
    /// decodes much of the file.
    pub(crate) fn new(
        dataset: Arc<dyn Hdf5Dataset>,
        shape: Shape,
        names: Names,
        memory: u64,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let info = dataset.info();
        let stored = [info.n_rows(), info.shape.get(1).copied().unwrap_or(0)];
        let mut plan = match info.chunk_shape.as_deref() {
            Some(&[rows, columns]) => Plan::chunked(stored, [rows, columns], info.element_size as u64, memory),
            _ => Plan::chunked(stored, [1, stored[1]], info.element_size as u64, memory),
        };
        if plan.decodings > 1 {
            let chunk: Vec<String> = info.chunk_shape.iter().flatten().map(ToString::to_string).collect();
            let what = format!(
                "chunks of {} values, each decoded {} times to read all cells",
                chunk.join(" × "),
                plan.decodings
            );
            if plan.decodings > MOST_DECODINGS {
                return Err(Error::unsupported(format!(
                    "it is stored in {what}, which would take too long; more memory may do, or a sparse matrix, or chunks of fewer rows"
                ))
                .at(&info.path));
            }
            notes.push(format!("{} is stored in {what}.", info.path));
        }
        if let (Some(bytes), Some(chunk)) = (plan.kept, &info.chunk_shape)
            && !dataset.keep_up_to(usize::try_from(bytes).unwrap_or(usize::MAX))
        {
            // Eight bytes are the largest element.
            let most = (LARGEST_BAND_BYTES / 8 / stored[1].max(1)).max(1);
            plan.rows_at_once = plan.rows_at_once.next_multiple_of(chunk[0].max(1)).min(most);
        }
        Ok(Self { dataset, shape, names, plan, bands: Bands::default() })
    }

    /// Reads a piece that holds a cell and does not go beyond its chunks.
    fn band(&self, chunk_rows: u64, cell: usize) -> Result<CsrBuffer> {
        let cell = cell as u64;
        let top = cell / chunk_rows * chunk_rows;
        let start = cell - (cell - top) % self.plan.rows_at_once;
        let end = (start + self.plan.rows_at_once).min(top + chunk_rows).min(self.shape.n_cells as u64);
        let mut band = CsrBuffer::new(self.shape.n_genes, ValueKind::F32);
        band.first_cell = start as usize;
        self.append(start..end, &mut band)?;
        Ok(band)
    }

    fn read(&self, cells: &Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        out.reset(cells.start, self.shape.n_genes, ValueKind::F32);
        let at_once = self.plan.rows_at_once;
        let (mut start, end) = (cells.start as u64, cells.end as u64);
        while start < end {
            // Pieces end where chunks end.
            let stop = ((start / at_once + 1) * at_once).min(end);
            self.append(start..stop, out)?;
            start = stop;
        }
        Ok(())
    }

    /// Appends rows that are read at once.
    fn append(&self, rows: Range<u64>, out: &mut CsrBuffer) -> Result<()> {
        let n_columns = self.dataset.info().shape[1] as usize;
        let end = out.n_cells() + (rows.end - rows.start) as usize;
        match smallest(self.dataset.read(rows)?).at(|| &self.dataset.info().path)? {
            Values::F32(values) => {
                let kept = append_nonzero(&values, n_columns, out);
                out.values.extend(Values::F32(kept).as_ref());
            }
            Values::F64(values) => {
                let kept = append_nonzero(&values, n_columns, out);
                out.values.extend(Values::F64(kept).as_ref());
            }
        }
        // Rows without columns.
        while out.n_cells() < end {
            out.end_row();
        }
        Ok(())
    }
}

/// Appends the columns of the values that aren't zero, row by row, and gives those values. NaN is not zero: it is kept for whoever
/// checks values.
fn append_nonzero<V: Value>(values: &[V], n_columns: usize, out: &mut CsrBuffer) -> Vec<V> {
    let zero = V::from_f64(0.0);
    let mut kept = Vec::new();
    for row in values.chunks_exact(n_columns.max(1)) {
        for (column, &value) in row.iter().enumerate() {
            if value != zero {
                out.indices.push(column as u32);
                kept.push(value);
            }
        }
        out.end_row();
    }
    kept
}

impl ChunkSource for DenseRows {
    fn shape(&self) -> Shape {
        self.shape
    }
    fn n_entries(&self) -> Option<u64> {
        None
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        check_range("cells", &cells, self.shape.n_cells)?;
        match self.plan.in_bands {
            Some(chunk_rows) => {
                out.reset(cells.start, self.shape.n_genes, ValueKind::F32);
                self.bands.read(cells, out, &|(), cell| self.band(chunk_rows, cell))
            }
            None => self.read(&cells, out),
        }
        .at(|| &self.names.file)
    }
    fn cell_name(&self, cell: usize) -> Option<String> {
        self.names.cells.get(cell).map(str::to_owned)
    }
    fn gene_name(&self, gene: usize) -> Option<String> {
        self.names.genes.get(gene).map(str::to_owned)
    }
    fn name(&self) -> String {
        format!("{}: {}", self.names.file, self.dataset.info().path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn chunks_of_usual_shapes_are_decoded_once() {
        // As h5py cuts 300,000 × 28,000 floats by itself.
        let plan = Plan::chunked([300_000, 28_000], [1172, 110], 4, GIB);
        assert_eq!((plan.rows_at_once, plan.decodings, plan.in_bands), (37, 1, None));
        assert_eq!(plan.kept, Some(2 * 1172 * 28_050 * 4));
        let by_rows = Plan::chunked([300_000, 28_000], [1, 28_000], 4, GIB);
        assert_eq!(by_rows, Plan { rows_at_once: 37, in_bands: None, decodings: 1, kept: None });
    }

    #[test]
    fn tall_chunks_are_decoded_again_and_again() {
        let plan = Plan::chunked([20_000, 28_000], [20_000, 100], 4, GIB);
        assert!(plan.in_bands.is_some() && plan.rows_at_once * 28_000 * VALUE_BYTES <= GIB / 2);
        assert_eq!(plan.decodings, 26);
        assert!(Plan::chunked([1_300_000, 28_000], [1_300_000, 1], 4, GIB).decodings > 500);
    }
}
