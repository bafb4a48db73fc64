//! Matrices in HDF5, sparse or dense, as sources of cells. Knows how entries are arranged, not which format they are part of.

use std::ops::Range;
use std::sync::Arc;

use zheng17_core::error::ResultExt as _;
use zheng17_core::matrix::{GeneMap, ValueKind, check_row_pointers};
use zheng17_core::{ChunkSource, CsrBuffer, Error, Result, Shape, Values};

use crate::bands::Bands;
use crate::by_genes::SparseColumns;
use crate::dataset::{Layout, MatrixInfo};
use crate::dense::DenseRows;
use crate::hdf5::{DatasetInfo, Hdf5Dataset, Hdf5File, pieces, read_positions};
use crate::table::Texts;

/// Entries that are read at once: bounds what a read holds besides its result.
pub(crate) const PIECE: u64 = 1 << 18;

/// Room for so many entries is made before any is read; more only as they come, for a header may claim any number.
const RESERVED: usize = 1 << 22;

/// Chunks above this many bytes are worth a note.
const LARGE_CHUNK_BYTES: u64 = 64 << 20;

/// A matrix whose place, arrangement and size are known.
pub(crate) struct StoredMatrix {
    /// Its place in the file.
    pub(crate) location: String,
    /// `Csr`, `Csc` or `Dense`.
    pub(crate) layout: Layout,
    /// Cells × columns as stored.
    pub(crate) shape: Shape,
}

/// What messages call the file, its cells and its genes.
pub(crate) struct Names {
    pub(crate) file: String,
    pub(crate) cells: Texts,
    pub(crate) genes: Texts,
}

/// An opened matrix.
pub(crate) struct OpenMatrix {
    pub(crate) source: Arc<dyn ChunkSource>,
    pub(crate) info: MatrixInfo,
    pub(crate) notes: Vec<String>,
}

impl StoredMatrix {
    /// Makes a source of cells of it. Errors name the dataset; the source's own errors name the file as well.
    /// `memory` is how many bytes may be held of a matrix that isn't stored by cells.
    pub(crate) fn open(self, file: &dyn Hdf5File, names: Names, memory: u64) -> Result<OpenMatrix> {
        match self.layout {
            Layout::Dense => self.open_dense(file, names, memory),
            Layout::Csc => self.open_by_genes(file, names, memory),
            Layout::Csr | Layout::Coordinate => self.open_by_cells(file, None, names),
        }
    }

    /// Makes a source of cells of some columns of a matrix that is stored by cells; the others are skipped while reading.
    pub(crate) fn open_columns(self, file: &dyn Hdf5File, kept: &[usize], names: Names) -> Result<OpenMatrix> {
        let columns = GeneMap::new(self.shape.n_genes, kept);
        self.open_by_cells(file, Some(columns), names)
    }

    fn open_dense(self, file: &dyn Hdf5File, names: Names, memory: u64) -> Result<OpenMatrix> {
        let dataset = file.dataset(&self.location)?;
        let info = dataset.info();
        let matrix = MatrixInfo {
            location: self.location,
            layout: Layout::Dense,
            value_type: info.type_name.clone(),
            index_type: None,
            compression: info.compression(),
        };
        let mut notes = large_chunks(info).into_iter().collect();
        let source = DenseRows::new(dataset, self.shape, names, memory, &mut notes)?;
        Ok(OpenMatrix { source: Arc::new(source), info: matrix, notes })
    }

    fn open_by_cells(self, file: &dyn Hdf5File, columns: Option<GeneMap>, names: Names) -> Result<OpenMatrix> {
        let parts = self.open_parts(file, self.shape.n_cells)?;
        let n_genes = columns.as_ref().map_or(self.shape.n_genes, GeneMap::n_selected);
        let shape = Shape { n_genes, ..self.shape };
        let source =
            SparseRows { entries: parts.entries, indptr: parts.indptr, location: self.location, shape, columns, names };
        Ok(OpenMatrix { source: Arc::new(source), info: parts.info, notes: parts.notes })
    }

    fn open_by_genes(self, file: &dyn Hdf5File, names: Names, memory: u64) -> Result<OpenMatrix> {
        let mut parts = self.open_parts(file, self.shape.n_genes)?;
        let Self { location, shape, .. } = self;
        let SparseParts { entries, indptr, info, .. } = parts;
        let n_entries = entries.data.info().n_rows();
        let source = SparseColumns { entries, indptr, location, shape, names, memory, bands: Bands::default() };
        let how = if source.fits() {
            "once".to_owned()
        } else {
            format!("a part at a time within {} MB, each with a pass over the file", memory.div_ceil(1_000_000))
        };
        parts.notes.push(format!(
            "{} is stored by genes (CSC); steps that need cells get its {n_entries} entries as rows in memory, {how}.",
            source.location
        ));
        Ok(OpenMatrix { source: Arc::new(source), info, notes: parts.notes })
    }

    /// Opens the three arrays of a sparse matrix of so many rows or columns, and checks their lengths and the pointers.
    fn open_parts(&self, file: &dyn Hdf5File, n_major: usize) -> Result<SparseParts> {
        let location = &self.location;
        let dataset = |name: &str| file.dataset(&format!("{location}/{name}"));
        let (data, indices, pointers) = (dataset("data")?, dataset("indices")?, dataset("indptr")?);
        for part in [&data, &indices, &pointers] {
            if part.info().shape.len() != 1 {
                return Err(Error::input(format!("number of dimensions: {} instead of 1", part.info().shape.len()))
                    .at(&part.info().path));
            }
        }
        let (n_entries, n_indices) = (data.info().n_rows(), indices.info().n_rows());
        if n_entries != n_indices {
            return Err(Error::input(format!("{n_indices} indices for {n_entries} values")).at(location));
        }
        data.check_written()?;
        indices.check_written()?;
        let indptr = read_positions(pointers.as_ref())?;
        let check = || {
            if indptr.len() as u64 == n_major as u64 + 1 {
                check_row_pointers(0, &indptr, 0, n_entries)
            } else {
                Err(Error::input(format!("{} pointers, but {} are due", indptr.len(), n_major as u64 + 1)))
            }
        };
        check().at(|| &pointers.info().path)?;
        let info = MatrixInfo {
            location: location.clone(),
            layout: self.layout,
            value_type: data.info().type_name.clone(),
            index_type: Some(indices.info().type_name.clone()),
            compression: data.info().compression(),
        };
        let notes = [&data, &indices].into_iter().filter_map(|part| large_chunks(part.info())).collect();
        Ok(SparseParts { entries: Entries { data, indices }, indptr, info, notes })
    }
}

/// A sparse matrix whose arrays fit each other.
struct SparseParts {
    entries: Entries,
    indptr: Vec<u64>,
    info: MatrixInfo,
    notes: Vec<String>,
}

/// A note on chunks so large that holding one is felt; some writers make one chunk of everything.
fn large_chunks(info: &DatasetInfo) -> Option<String> {
    let bytes = info.chunk_bytes().filter(|&bytes| bytes > LARGE_CHUNK_BYTES)?;
    Some(format!(
        "{} is stored in chunks of {} MB; one is held in memory while it is read.",
        info.path,
        bytes.div_ceil(1_000_000)
    ))
}

/// The values and minor indices of a sparse matrix.
pub(crate) struct Entries {
    pub(crate) data: Arc<dyn Hdf5Dataset>,
    pub(crate) indices: Arc<dyn Hdf5Dataset>,
}

impl Entries {
    fn indices(&self, entries: Range<u64>) -> Result<Vec<u32>> {
        let mut indices = Vec::new();
        self.indices.append_indices(entries, &mut indices)?;
        Ok(indices)
    }

    fn values(&self, entries: Range<u64>) -> Result<Values> {
        let mut values = Values::empty(ValueKind::F32);
        self.data.append_values(entries, &mut values)?;
        Ok(values)
    }

    /// Appends the rows, or columns, between these pointers as they are stored.
    pub(crate) fn append_rows(&self, pointers: &[u64], out: &mut CsrBuffer) -> Result<()> {
        let (Some(&start), Some(&end)) = (pointers.first(), pointers.last()) else { return Ok(()) };
        let room = ((end - start) as usize).min(RESERVED);
        out.indices.try_reserve_exact(room).map_err(no_room)?;
        out.values.try_reserve_exact(room).map_err(no_room)?;
        self.indices.append_indices(start..end, &mut out.indices)?;
        self.data.append_values(start..end, &mut out.values)?;
        out.indptr.extend(pointers[1..].iter().map(|&pointer| pointer - start));
        Ok(())
    }
}

fn no_room(error: std::collections::TryReserveError) -> Error {
    Error::system("not enough memory").with_source(error)
}

/// A sparse matrix by cells, read as it is asked for.
struct SparseRows {
    entries: Entries,
    indptr: Vec<u64>,
    location: String,
    shape: Shape,
    columns: Option<GeneMap>,
    names: Names,
}

impl SparseRows {
    fn read(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        out.reset(cells.start, self.shape.n_genes, ValueKind::F32);
        let pointers = &self.indptr[cells.start..=cells.end];
        let (start, end) = (pointers[0], pointers[cells.len()]);
        let Some(map) = &self.columns else {
            return self.entries.append_rows(pointers, out);
        };
        for piece in pieces(start..end, PIECE) {
            let indices = self.entries.indices(piece.clone())?;
            let values = self.entries.values(piece.clone())?;
            self.append_selected(map, pointers, piece, &indices, &values, out)?;
        }
        // Empty rows at the end have no entry that would have ended the row before them.
        while out.n_cells() < cells.len() {
            out.end_row();
        }
        Ok(())
    }

    /// Adds the entries of a piece whose columns are selected, ending rows on the way.
    fn append_selected(
        &self,
        map: &GeneMap,
        pointers: &[u64],
        piece: Range<u64>,
        indices: &[u32],
        values: &Values,
        out: &mut CsrBuffer,
    ) -> Result<()> {
        let mut kept = Vec::new();
        for ((at, entry), &column) in piece.enumerate().zip(indices) {
            while pointers[out.n_cells() + 1] <= entry {
                out.end_row();
            }
            let Some(&gene) = map.new_index().get(column as usize) else {
                return Err(Error::input(format!(
                    "row {}: column index {column}, but there are only {} columns",
                    out.first_cell + out.n_cells(),
                    map.new_index().len()
                ))
                .at(&self.entries.indices.info().path));
            };
            if gene != GeneMap::NOT_SELECTED {
                kept.push(at);
                out.indices.push(gene);
            }
        }
        match values {
            Values::F32(values) => {
                let kept = kept.into_iter().map(|at| values[at]).collect();
                out.values.extend(Values::F32(kept).as_ref());
            }
            Values::F64(values) => {
                let kept: Vec<f64> = kept.into_iter().map(|at| values[at]).collect();
                out.values.extend(zheng17_core::numbers::smallest_values(&kept).as_ref());
            }
        }
        Ok(())
    }
}

impl ChunkSource for SparseRows {
    fn shape(&self) -> Shape {
        self.shape
    }
    fn n_entries(&self) -> Option<u64> {
        // With columns left out nobody knows without reading.
        if self.columns.is_some() { None } else { self.indptr.last().copied() }
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        check_range("cells", &cells, self.shape.n_cells)?;
        self.read(cells, out).at(|| &self.names.file)
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

/// An error if a range goes beyond what there is.
pub(crate) fn check_range(what: &str, range: &Range<usize>, n: usize) -> Result<()> {
    if range.start <= range.end && range.end <= n {
        Ok(())
    } else {
        Err(Error::internal(format!("{what} {}..{} of {n} were asked for", range.start, range.end)))
    }
}
