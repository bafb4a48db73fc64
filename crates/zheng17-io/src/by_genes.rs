//! Matrices that are stored by genes (CSC): read by genes as they are, and by cells through bands of cells that are gathered from
//! the whole file, one after the other, within a limit of memory. Knows entries and pointers, not which format they are part of.

use std::ops::Range;

use zheng17_core::error::ResultExt as _;
use zheng17_core::matrix::{Value, ValueKind};
use zheng17_core::{ChunkSource, CsrBuffer, Error, Result, Shape, Values};

use crate::bands::Bands;
use crate::hdf5::pieces;
use crate::matrix::{Entries, Names, PIECE, check_range};

/// Bytes of an entry in rows: its gene and an `f32`.
const ENTRY_BYTES: u64 = 8;

/// The same for values that need `f64`, with the `f32` that it was until then.
const WIDE_ENTRY_BYTES: u64 = 16;

/// Bytes for each cell of a band: its pointer, and where its next entry goes.
const CELL_BYTES: u64 = 16;

/// A sparse matrix by genes.
pub(crate) struct SparseColumns {
    pub(crate) entries: Entries,
    /// Where the entries of each gene start.
    pub(crate) indptr: Vec<u64>,
    pub(crate) location: String,
    pub(crate) shape: Shape,
    pub(crate) names: Names,
    /// Bytes that bands may take.
    pub(crate) memory: u64,
    pub(crate) bands: Bands<Option<Plan>>,
}

/// How cells are cut into bands.
pub(crate) struct Plan {
    /// Where the entries of each cell would start if all were in rows, and their number.
    row_starts: Vec<u64>,
    /// Where each band starts, and the number of cells.
    band_starts: Vec<usize>,
    entry_bytes: u64,
}

impl Plan {
    fn new(row_starts: Vec<u64>, memory: u64, entry_bytes: u64) -> Self {
        let n_cells = row_starts.len() - 1;
        let bytes = |cells: Range<usize>| {
            (row_starts[cells.end] - row_starts[cells.start]).saturating_mul(entry_bytes)
                + cells.len() as u64 * CELL_BYTES
        };
        let mut band_starts = vec![0];
        if bytes(0..n_cells) <= memory {
            band_starts.push(n_cells);
        } else {
            // Two at once: some threads may be a little behind the others.
            let mut start = 0;
            while start < n_cells {
                let fitting = start + 1..n_cells + 1;
                let (mut end, mut beyond) = (fitting.start, fitting.end);
                while end + 1 < beyond {
                    let middle = end.midpoint(beyond);
                    if bytes(start..middle) <= memory / 2 { end = middle } else { beyond = middle }
                }
                band_starts.push(end);
                start = end;
            }
        }
        Self { row_starts, band_starts, entry_bytes }
    }

    /// The band that holds a cell.
    fn band(&self, cell: usize) -> Range<usize> {
        let at = self.band_starts.partition_point(|&start| start <= cell);
        self.band_starts[at - 1]..self.band_starts[at]
    }
}

/// What gathering came to.
enum Gathered {
    Band(CsrBuffer),
    /// A value needs `f64`, for which there may be no room.
    NeedsWide,
}

impl SparseColumns {
    /// Whether all cells fit into one band, as far as is known without reading.
    pub(crate) fn fits(&self) -> bool {
        let n_entries = self.indptr.last().copied().unwrap_or(0);
        n_entries.saturating_mul(ENTRY_BYTES) + self.shape.n_cells as u64 * CELL_BYTES <= self.memory
    }

    /// Gathers the band that holds a cell.
    fn band(&self, plan: &mut Option<Plan>, cell: usize) -> Result<CsrBuffer> {
        let mut current = match plan.take() {
            Some(plan) => plan,
            None => Plan::new(self.count()?, self.memory, ENTRY_BYTES),
        };
        let gathered = loop {
            match self.gather(&current, current.band(cell)) {
                Ok(Gathered::NeedsWide) => current = Plan::new(current.row_starts, self.memory, WIDE_ENTRY_BYTES),
                Ok(Gathered::Band(band)) => break Ok(band),
                Err(error) => break Err(error),
            }
        };
        *plan = Some(current);
        gathered
    }

    /// Where the entries of each cell would start if all were in rows.
    fn count(&self) -> Result<Vec<u64>> {
        let mut row_starts = vec![0_u64; self.shape.n_cells + 1];
        let mut cells = Vec::new();
        for piece in pieces(0..self.n_stored(), PIECE) {
            cells.clear();
            self.entries.indices.append_indices(piece.clone(), &mut cells)?;
            for (entry, &cell) in piece.zip(&cells) {
                let Some(count) = row_starts.get_mut(cell as usize + 1) else {
                    return Err(self.wrong_cell(entry, cell));
                };
                *count += 1;
            }
        }
        for row in 0..self.shape.n_cells {
            row_starts[row + 1] += row_starts[row];
        }
        Ok(row_starts)
    }

    fn n_stored(&self) -> u64 {
        self.indptr[self.shape.n_genes]
    }

    fn wrong_cell(&self, entry: u64, cell: u32) -> Error {
        let gene = self.indptr.partition_point(|&start| start <= entry) - 1;
        let n_cells = self.shape.n_cells;
        Error::input(format!("column {gene}: row index {cell}, but there are only {n_cells} cells")).at(&self
            .entries
            .indices
            .info()
            .path)
    }

    /// Reads the whole file to put the entries of some cells into rows.
    fn gather(&self, plan: &Plan, cells: Range<usize>) -> Result<Gathered> {
        let starts = &plan.row_starts[cells.start..=cells.end];
        let indptr: Vec<u64> = starts.iter().map(|start| start - starts[0]).collect();
        let mut next = indptr[..cells.len()].to_vec();
        let n_entries = indptr[cells.len()] as usize;
        let wide = plan.entry_bytes == WIDE_ENTRY_BYTES;
        let mut indices = vec![0_u32; n_entries];
        let mut values = Values::F32(vec![0.0; n_entries]);
        let (mut piece_cells, mut piece_values) = (Vec::new(), Values::empty(ValueKind::F32));
        let mut gene = 0;
        for piece in pieces(0..self.n_stored(), PIECE) {
            piece_cells.clear();
            self.entries.indices.append_indices(piece.clone(), &mut piece_cells)?;
            piece_values = match piece_values {
                Values::F32(mut values) => {
                    values.clear();
                    Values::F32(values)
                }
                Values::F64(_) => Values::empty(ValueKind::F32),
            };
            self.entries.data.append_values(piece.clone(), &mut piece_values)?;
            if piece_values.kind() == ValueKind::F64 {
                if !wide {
                    return Ok(Gathered::NeedsWide);
                }
                values.widen();
            } else if values.kind() == ValueKind::F64 {
                piece_values.widen();
            }
            let mut at = piece.start;
            while at < piece.end {
                while self.indptr[gene + 1] <= at {
                    gene += 1;
                }
                let stop = self.indptr[gene + 1].min(piece.end);
                let part = (at - piece.start) as usize..(stop - piece.start) as usize;
                let column = &piece_cells[part.clone()];
                let done = match (&mut values, &piece_values) {
                    (Values::F32(to), Values::F32(from)) => {
                        place(cells.start, gene, column, &from[part], &mut next, &mut indices, to)
                    }
                    (Values::F64(to), Values::F64(from)) => {
                        place(cells.start, gene, column, &from[part], &mut next, &mut indices, to)
                    }
                    _ => return Err(Error::internal("values of two kinds in one band")),
                };
                done.ok_or_else(|| self.changed())?;
                at = stop;
            }
        }
        if next != indptr[1..] {
            return Err(self.changed());
        }
        let n_genes = self.shape.n_genes;
        Ok(Gathered::Band(CsrBuffer { first_cell: cells.start, n_genes, indptr, indices, values }))
    }

    fn changed(&self) -> Error {
        Error::input("the file changed while it was read").at(&self.entries.indices.info().path)
    }
}

/// Puts the entries of a gene behind those that its cells have. Cells outside the band are passed over. `None` if a place is
/// beyond the end.
fn place<V: Value>(
    first_cell: usize,
    gene: usize,
    cells: &[u32],
    values: &[V],
    next: &mut [u64],
    indices_out: &mut [u32],
    values_out: &mut [V],
) -> Option<()> {
    for (&cell, &value) in cells.iter().zip(values) {
        let Some(next) = next.get_mut((cell as usize).wrapping_sub(first_cell)) else { continue };
        let to = *next as usize;
        *next += 1;
        *indices_out.get_mut(to)? = gene as u32;
        *values_out.get_mut(to)? = value;
    }
    Some(())
}

impl ChunkSource for SparseColumns {
    fn shape(&self) -> Shape {
        self.shape
    }
    fn n_entries(&self) -> Option<u64> {
        Some(self.n_stored())
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        check_range("cells", &cells, self.shape.n_cells)?;
        out.reset(cells.start, self.shape.n_genes, ValueKind::F32);
        self.bands.read(cells, out, &|plan, cell| self.band(plan, cell)).at(|| &self.names.file)
    }
    fn stored_by_genes(&self) -> bool {
        true
    }
    fn read_genes(&self, genes: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        check_range("genes", &genes, self.shape.n_genes)?;
        out.reset(genes.start, self.shape.n_cells, ValueKind::F32);
        self.entries.append_rows(&self.indptr[genes.start..=genes.end], out).at(|| &self.names.file)
    }
    fn cell_name(&self, cell: usize) -> Option<String> {
        self.names.cells.get(cell).map(str::to_owned)
    }
    fn gene_name(&self, gene: usize) -> Option<String> {
        self.names.genes.get(gene).map(str::to_owned)
    }
    fn name(&self) -> String {
        format!("{}: {}", self.names.file, self.location)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_fill_the_memory_and_hold_a_cell_at_least() {
        // Ten cells of 100 entries, 816 bytes each.
        let row_starts: Vec<u64> = (0..=10).map(|row| row * 100).collect();
        let bands = |memory| Plan::new(row_starts.clone(), memory, ENTRY_BYTES).band_starts;
        assert_eq!(bands(8160), [0, 10]);
        assert_eq!(bands(8159), [0, 4, 8, 10], "two bands are held at once");
        assert_eq!(bands(1), (0..=10).collect::<Vec<_>>());
        let plan = Plan::new(row_starts, 8159, ENTRY_BYTES);
        assert_eq!([0, 3, 4, 9].map(|cell| plan.band(cell)), [0..4, 0..4, 4..8, 8..10]);
    }
}
