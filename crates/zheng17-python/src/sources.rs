//! Where cells come from in Python: arrays of scipy and numpy, read where they are, and files.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use zheng17_core::matrix::{ValueKind, check_row_pointers};
use zheng17_core::{ChunkSource, CsrBuffer, Error, Result, Shape};
use zheng17_io::dataset::{FeatureTypes, OpenOptions};

use crate::arrays::{Numbers, Positions};
use crate::errors::OrException as _;

/// A matrix of cells × genes that the recipe can read, in memory or in a file.
#[pyclass(frozen, module = "zheng17._zheng17")]
pub(crate) struct Source {
    pub(crate) inner: Arc<dyn ChunkSource>,
    /// The first cell that is there: those before are elsewhere.
    pub(crate) first_cell: usize,
    /// Whether it is in memory, where reading a few cells costs no more than reading many.
    pub(crate) in_memory: bool,
}

#[pymethods]
impl Source {
    /// Compressed sparse rows. `first_cell` is the place of the first row in a larger matrix, whose names are given.
    #[staticmethod]
    #[pyo3(signature = (indptr, indices, data, n_genes, *, name, cell_names=None, gene_names=None, first_cell=0))]
    #[allow(clippy::too_many_arguments, reason = "the parts of a matrix")]
    fn csr(
        indptr: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        n_genes: usize,
        name: String,
        cell_names: Option<Py<PyAny>>,
        gene_names: Option<Py<PyAny>>,
        first_cell: usize,
    ) -> PyResult<Self> {
        let rows =
            CsrArrays { indptr: Positions::of(indptr)?, indices: Positions::of(indices)?, data: Numbers::of(data)? };
        rows.check().map_err(|error| error.at(&name)).or_exception()?;
        let names = Names { name, cells: cell_names, genes: gene_names };
        let n_cells = rows.n_rows();
        Ok(Self {
            inner: Arc::new(PlacedRows { inner: rows, names, first_cell, n_cells, n_genes }),
            first_cell,
            in_memory: true,
        })
    }

    /// A dense matrix, row by row in one array.
    #[staticmethod]
    #[pyo3(signature = (values, n_genes, *, name, cell_names=None, gene_names=None, first_cell=0))]
    fn dense(
        values: &Bound<'_, PyAny>,
        n_genes: usize,
        name: String,
        cell_names: Option<Py<PyAny>>,
        gene_names: Option<Py<PyAny>>,
        first_cell: usize,
    ) -> PyResult<Self> {
        let values = Numbers::of(values)?;
        let n_cells = values.len().checked_div(n_genes).unwrap_or(0);
        let names = Names { name, cells: cell_names, genes: gene_names };
        let rows = DenseArray { values, n_genes };
        Ok(Self {
            inner: Arc::new(PlacedRows { inner: rows, names, first_cell, n_cells, n_genes }),
            first_cell,
            in_memory: true,
        })
    }

    /// A file of counts.
    #[staticmethod]
    #[pyo3(signature = (path, *, layer=None, raw=false, genome=None, feature_type=None, memory=None))]
    #[allow(clippy::too_many_arguments, reason = "what can be chosen of a file")]
    fn file(
        py: Python<'_>,
        path: PathBuf,
        layer: Option<String>,
        raw: bool,
        genome: Option<String>,
        feature_type: Option<String>,
        memory: Option<u64>,
    ) -> PyResult<Self> {
        let options = open_options(layer, raw, genome, feature_type, memory);
        let inner = py.detach(|| zheng17_io::open(&path, &options)).or_exception()?.source;
        Ok(Self { inner, first_cell: 0, in_memory: false })
    }

    /// Some of its cells, at their place in the whole.
    fn part(&self, start: usize, end: usize) -> PyResult<Self> {
        let n_cells = self.inner.shape().n_cells;
        if start < self.first_cell || start > end || end > n_cells {
            let complaint = format!("cells {start}..{end} of {n_cells} were asked for");
            return Err(crate::errors::exception(&Error::usage(complaint).at(self.inner.name())));
        }
        let inner = Arc::new(UpTo { inner: Arc::clone(&self.inner), end });
        Ok(Self { inner, first_cell: start, in_memory: self.in_memory })
    }

    /// The name of each cell that is there; its number where it has none.
    fn cell_names(&self) -> Vec<String> {
        let cells = self.first_cell..self.inner.shape().n_cells;
        cells.map(|cell| self.inner.cell_name(cell).unwrap_or_else(|| cell.to_string())).collect()
    }

    /// The name of each gene; its number where it has none.
    fn gene_names(&self) -> Vec<String> {
        let genes = 0..self.inner.shape().n_genes;
        genes.map(|gene| self.inner.gene_name(gene).unwrap_or_else(|| gene.to_string())).collect()
    }

    /// Cells that are there, and genes.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        let Shape { n_cells, n_genes } = self.inner.shape();
        (n_cells - self.first_cell, n_genes)
    }

    /// Stored entries, where known.
    #[getter]
    fn n_entries(&self) -> Option<u64> {
        self.inner.n_entries()
    }

    /// What it is called in messages.
    #[getter]
    fn name(&self) -> String {
        self.inner.name()
    }
}

/// What is chosen of a file.
pub(crate) fn open_options(
    layer: Option<String>,
    raw: bool,
    genome: Option<String>,
    feature_type: Option<String>,
    memory: Option<u64>,
) -> OpenOptions {
    let feature_types = match feature_type {
        None => FeatureTypes::GeneExpression,
        Some(name) if name == "all" => FeatureTypes::All,
        Some(name) => FeatureTypes::Named(name),
    };
    OpenOptions { layer, raw, genome, feature_types, memory }
}

/// Names for messages. Asked for only if something is wrong.
struct Names {
    name: String,
    cells: Option<Py<PyAny>>,
    genes: Option<Py<PyAny>>,
}

impl Names {
    fn get(names: Option<&Py<PyAny>>, at: usize) -> Option<String> {
        // A name that can't be had is not worth another error.
        Python::attach(|py| names?.bind(py).get_item(at).ok()?.str().ok().map(|name| printable(&name.to_string())))
    }
}

/// A name without characters that a terminal takes for commands.
fn printable(name: &str) -> String {
    let escaped = |character: char| {
        if character.is_control() { character.escape_default().to_string() } else { character.to_string() }
    };
    name.chars().map(escaped).collect()
}

/// Rows that can be appended to a chunk.
trait AppendRows: Send + Sync {
    /// Appends rows to a chunk that was reset.
    fn append(&self, rows: Range<usize>, out: &mut CsrBuffer) -> Result<()>;
    /// Stored entries, where known.
    fn n_entries(&self) -> Option<u64>;
}

/// Arrays as a source, perhaps of the later cells of a larger matrix.
struct PlacedRows<R> {
    inner: R,
    names: Names,
    first_cell: usize,
    n_cells: usize,
    n_genes: usize,
}

impl<R: AppendRows> ChunkSource for PlacedRows<R> {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.first_cell + self.n_cells, n_genes: self.n_genes }
    }
    fn n_entries(&self) -> Option<u64> {
        self.inner.n_entries()
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        out.reset(cells.start, self.n_genes, ValueKind::F32);
        // The cells before have nothing here.
        let missing = self.first_cell.clamp(cells.start, cells.end) - cells.start;
        out.indptr.extend(std::iter::repeat_n(0, missing));
        let rows = cells.start + missing..cells.end;
        if rows.is_empty() {
            return Ok(());
        }
        let rows = rows.start - self.first_cell..rows.end - self.first_cell;
        self.inner.append(rows, out).map_err(|error| error.at(&self.names.name))
    }
    fn cell_name(&self, cell: usize) -> Option<String> {
        Names::get(self.names.cells.as_ref(), cell)
    }
    fn gene_name(&self, gene: usize) -> Option<String> {
        Names::get(self.names.genes.as_ref(), gene)
    }
    fn name(&self) -> String {
        self.names.name.clone()
    }
}

/// The three arrays of scipy's compressed sparse rows.
struct CsrArrays {
    indptr: Positions,
    indices: Positions,
    data: Numbers,
}

impl CsrArrays {
    fn n_rows(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// Whether the arrays belong together.
    fn check(&self) -> Result<()> {
        let (n_indices, n_values) = (self.indices.len(), self.data.len());
        if n_indices != n_values {
            return Err(Error::input(format!("{n_indices} column indices for {n_values} values")));
        }
        if self.indptr.len() == 0 || self.indptr.get(0)? != 0 {
            return Err(Error::input("indptr doesn't start at 0"));
        }
        Ok(())
    }
}

impl AppendRows for CsrArrays {
    fn append(&self, rows: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        let pointers = (rows.start..=rows.end).map(|row| self.indptr.get(row)).collect::<Result<Vec<u64>>>()?;
        let (start, end) = (pointers[0], pointers[pointers.len() - 1]);
        check_row_pointers(rows.start, &pointers, start, end)?;
        if end > self.data.len() as u64 {
            let complaint = format!("row pointer {end} is beyond the {} entries", self.data.len());
            return Err(Error::input(complaint));
        }
        out.indptr.extend(pointers[1..].iter().map(|pointer| pointer - start));
        self.indices.append(start as usize..end as usize, &mut out.indices)?;
        self.data.append(start as usize..end as usize, &mut out.values);
        Ok(())
    }
    fn n_entries(&self) -> Option<u64> {
        Some(self.data.len() as u64)
    }
}

/// A dense matrix.
struct DenseArray {
    values: Numbers,
    n_genes: usize,
}

impl AppendRows for DenseArray {
    fn append(&self, rows: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        self.values.append_dense(rows, self.n_genes, out);
        Ok(())
    }
    fn n_entries(&self) -> Option<u64> {
        None
    }
}

/// The cells of a source up to one of them.
struct UpTo {
    inner: Arc<dyn ChunkSource>,
    end: usize,
}

impl ChunkSource for UpTo {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.end, ..self.inner.shape() }
    }
    fn n_entries(&self) -> Option<u64> {
        None
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        self.inner.read_cells(cells, out)
    }
    fn cell_name(&self, cell: usize) -> Option<String> {
        self.inner.cell_name(cell)
    }
    fn gene_name(&self, gene: usize) -> Option<String> {
        self.inner.gene_name(gene)
    }
    fn name(&self) -> String {
        self.inner.name()
    }
}
