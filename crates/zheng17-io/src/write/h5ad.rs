//! AnnData files: a matrix, tables of cells and genes, and what was computed about them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zheng17_core::error::{Error, Result};
use zheng17_core::matrix::{CsrView, ValueKind, ValuesRef};

use super::array::{ArraySpec, ArrayWriter, Compression, Element, SharedSink, push_row_ends};
use super::frame::{create_encoded_group, write_table};
use super::hdf5::{Attribute, Hdf5Output};
use super::names::Names;
use super::temporary::TemporaryFile;
use super::uns::{UnsValue, write_uns};
use crate::table::{Numbers, Table};

/// Bytes that a chunk of a dense matrix should have.
const DENSE_CHUNK_BYTES: usize = 1 << 20;
/// Entries that a chunk of a sparse matrix has.
const SPARSE_CHUNK_ENTRIES: usize = 1 << 16;

/// How an output is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct CreateOptions<'a> {
    /// Replace an existing file.
    pub force: bool,
    /// Files that the output must not be.
    pub inputs: &'a [PathBuf],
    /// How matrices are compressed.
    pub compression: Compression,
}

/// Where a matrix belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// `X`: cells × genes.
    X,
    /// `layers[name]`: cells × genes.
    Layer(&'a str),
    /// `obsm[name]`: cells × anything.
    Obsm(&'a str),
    /// `varm[name]`: genes × anything.
    Varm(&'a str),
}

/// What a matrix was given as, to be compared with the tables.
#[derive(Debug)]
struct Extent {
    path: String,
    rows_are_cells: bool,
    columns_are_genes: bool,
    n_rows: Arc<AtomicUsize>,
    n_columns: usize,
}

/// Rows of a matrix that is not complete.
const UNFINISHED: usize = usize::MAX;

/// Writes an h5ad file.
///
/// Matrices grow row by row, several at a time if wanted, in bounded memory; tables come whole. Parts may come in any order.
/// The file has its name only after [`H5adWriter::finish`]; dropped before that, nothing of it stays.
///
/// ```
/// use zheng17_core::matrix::{ValueKind, ValuesRef};
/// use zheng17_io::table::Table;
/// use zheng17_io::write::{CreateOptions, H5adWriter, Place, UnsValue};
///
/// # fn main() -> zheng17_core::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("zheng17-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let output = folder.join("out.h5ad");
/// let mut writer = H5adWriter::create(&output, &CreateOptions::default())?;
/// writer.write_obs(&Table::from_index("_index", vec!["cell 1", "cell 2"].into()))?;
/// writer.write_var(&Table::from_index("_index", vec!["gene"].into()))?;
/// let mut x = writer.dense(Place::X, 2, 1, ValueKind::F32)?;
/// x.push(ValuesRef::F32(&[0.5, -0.5]))?;
/// x.finish()?;
/// writer.write_uns("zheng17", &UnsValue::dict([("version", "exact".into())]))?;
/// let notes = writer.finish()?;
/// assert!(notes.is_empty());
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(())
/// # }
/// ```
pub struct H5adWriter {
    // The file is closed before its name goes.
    pub(super) sink: SharedSink,
    temporary: TemporaryFile,
    pub(super) compression: Compression,
    n_cells: Option<usize>,
    n_genes: Option<usize>,
    extents: Vec<Extent>,
    pub(super) layers: Names,
    pub(super) obsm: Names,
    pub(super) varm: Names,
    pub(super) uns: Names,
    notes: Vec<String>,
}

impl H5adWriter {
    /// Starts a file under a temporary name in the output's folder.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if the output is an input, exists without `force`, or has no
    /// folder; [`ErrorKind::System`](zheng17_core::ErrorKind::System) if the folder can't be written to.
    pub fn create(path: &Path, options: &CreateOptions<'_>) -> Result<Self> {
        options.compression.check()?;
        let temporary = TemporaryFile::create(path, options.inputs, options.force)?;
        let sink = SharedSink::new(Hdf5Output::create(temporary.path(), path.display().to_string())?);
        let writer = Self {
            sink,
            temporary,
            compression: options.compression,
            n_cells: None,
            n_genes: None,
            extents: Vec::new(),
            layers: Names::default(),
            obsm: Names::default(),
            varm: Names::default(),
            uns: Names::default(),
            notes: Vec::new(),
        };
        writer.start()?;
        Ok(writer)
    }

    fn start(&self) -> Result<()> {
        {
            let mut sink = self.sink.lock();
            sink.set_group_attribute("", "encoding-type", Attribute::Text("anndata"))?;
            sink.set_group_attribute("", "encoding-version", Attribute::Text("0.1.0"))?;
        }
        for group in ["layers", "obsm", "obsp", "uns", "varm", "varp"] {
            create_encoded_group(&self.sink, group, "dict", "0.1.0")?;
        }
        Ok(())
    }

    /// Writes what is known of cells: once.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](zheng17_core::ErrorKind::Input) for values that the format can't hold;
    /// [`ErrorKind::System`](zheng17_core::ErrorKind::System).
    pub fn write_obs(&mut self, obs: &Table) -> Result<()> {
        self.notes.extend(write_table(&self.sink, "obs", obs)?);
        self.n_cells = Some(obs.n_rows());
        Ok(())
    }

    /// Writes what is known of genes: once.
    ///
    /// # Errors
    /// As [`H5adWriter::write_obs`].
    pub fn write_var(&mut self, var: &Table) -> Result<()> {
        self.notes.extend(write_table(&self.sink, "var", var)?);
        self.n_genes = Some(var.n_rows());
        Ok(())
    }

    /// Writes `uns[key]`.
    ///
    /// # Errors
    /// As [`H5adWriter::write_obs`].
    pub fn write_uns(&mut self, key: &str, value: &UnsValue) -> Result<()> {
        let (name, note) = self.uns.take(key, "key of uns");
        self.notes.extend(note);
        self.notes.extend(write_uns(&self.sink, &format!("uns/{name}"), value)?);
        Ok(())
    }

    /// Starts a dense matrix of a known size and number type.
    ///
    /// # Errors
    /// [`ErrorKind::System`](zheng17_core::ErrorKind::System).
    pub fn dense(&mut self, place: Place<'_>, n_rows: usize, n_columns: usize, kind: ValueKind) -> Result<DenseWriter> {
        let (path, done) = self.place(place, n_columns);
        let (stored, size) = match kind {
            ValueKind::F32 => (f32::STORED, size_of::<f32>()),
            ValueKind::F64 => (f64::STORED, size_of::<f64>()),
        };
        let rows_per_chunk = (DENSE_CHUNK_BYTES / (n_columns * size).max(1)).clamp(1, n_rows.max(1));
        let array = ArrayWriter::new(
            self.sink.clone(),
            ArraySpec {
                path,
                stored,
                row: vec![n_columns],
                rows_per_chunk,
                compression: self.compression,
                always_chunked: false,
            },
        )?;
        Ok(DenseWriter { array, kind, n_rows, done })
    }

    /// Starts a sparse matrix by rows, with 32-bit floats as values.
    ///
    /// `most_entries` is a number of entries that will not be exceeded, however rough. Row pointers and column indices get one
    /// type, 32 bits where that is enough: scipy and scanpy fail on two different ones.
    ///
    /// # Errors
    /// [`ErrorKind::System`](zheng17_core::ErrorKind::System).
    pub fn csr(&mut self, place: Place<'_>, n_columns: usize, most_entries: u64) -> Result<CsrWriter> {
        let (path, done) = self.place(place, n_columns);
        create_encoded_group(&self.sink, &path, "csr_matrix", "0.1.0")?;
        let wide = i32::try_from(n_columns).is_err() || i32::try_from(most_entries).is_err();
        let index = if wide { i64::STORED } else { i32::STORED };
        let part = |name: &str, stored| {
            ArrayWriter::new(
                self.sink.clone(),
                ArraySpec {
                    path: format!("{path}/{name}"),
                    stored,
                    row: Vec::new(),
                    rows_per_chunk: SPARSE_CHUNK_ENTRIES,
                    compression: self.compression,
                    always_chunked: false,
                },
            )
        };
        let data = part("data", f32::STORED)?;
        let indices = part("indices", index)?;
        let mut indptr = part("indptr", index)?;
        if wide {
            indptr.push(&[0_i64])?;
        } else {
            indptr.push(&[0_i32])?;
        }
        Ok(CsrWriter {
            sink: self.sink.clone(),
            path,
            n_columns,
            wide,
            most_entries,
            n_rows: 0,
            n_entries: 0,
            data,
            indices,
            indptr,
            done,
        })
    }

    /// The path for a matrix, and where it reports its number of rows when it is complete.
    fn place(&mut self, place: Place<'_>, n_columns: usize) -> (String, Arc<AtomicUsize>) {
        let (names, group, name) = match place {
            Place::X => (None, "X", ""),
            Place::Layer(name) => (Some(&mut self.layers), "layers", name),
            Place::Obsm(name) => (Some(&mut self.obsm), "obsm", name),
            Place::Varm(name) => (Some(&mut self.varm), "varm", name),
        };
        let path = match names {
            None => group.to_string(),
            Some(names) => {
                let (name, note) = names.take(name, &format!("key of {group}"));
                self.notes.extend(note);
                format!("{group}/{name}")
            }
        };
        let n_rows = Arc::new(AtomicUsize::new(UNFINISHED));
        self.extents.push(Extent {
            path: path.clone(),
            rows_are_cells: !matches!(place, Place::Varm(_)),
            columns_are_genes: matches!(place, Place::X | Place::Layer(_)),
            n_rows: n_rows.clone(),
            n_columns,
        });
        (path, n_rows)
    }

    /// Completes the file, brings it to the disk and gives it its name. Gives notes that a user should read.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](zheng17_core::ErrorKind::Internal) if a table is missing, a matrix is not complete, or sizes
    /// disagree; what [`TemporaryFile::finish`] returns. No output is left then.
    pub fn finish(self) -> Result<Vec<String>> {
        let Self { sink, temporary, n_cells, n_genes, extents, notes, .. } = self;
        let (Some(n_cells), Some(n_genes)) = (n_cells, n_genes) else {
            return Err(Error::internal("obs and var must be written"));
        };
        for Extent { path, rows_are_cells, columns_are_genes, n_rows, n_columns } in extents {
            let n_rows = n_rows.load(Ordering::Relaxed);
            if n_rows == UNFINISHED {
                return Err(Error::internal("the matrix is not complete").at(path));
            }
            let rows = if rows_are_cells { n_cells } else { n_genes };
            let columns = if columns_are_genes { n_genes } else { n_columns };
            if (n_rows, n_columns) != (rows, columns) {
                let message = format!("{n_rows} × {n_columns}, but the tables ask for {rows} × {columns}");
                return Err(Error::internal(message).at(path));
            }
        }
        sink.lock().close()?;
        temporary.finish()?;
        Ok(notes)
    }
}

/// A dense matrix that grows. See [`H5adWriter::dense`].
pub struct DenseWriter {
    array: ArrayWriter,
    kind: ValueKind,
    n_rows: usize,
    done: Arc<AtomicUsize>,
}

impl DenseWriter {
    /// Adds values in row-major order; values of the other kind are converted to the matrix's.
    ///
    /// # Errors
    /// [`ErrorKind::System`](zheng17_core::ErrorKind::System).
    pub fn push(&mut self, values: ValuesRef<'_>) -> Result<()> {
        match (self.kind, values) {
            (ValueKind::F32, values) => push_as_f32(&mut self.array, values),
            (ValueKind::F64, ValuesRef::F64(values)) => self.array.push(values),
            (ValueKind::F64, ValuesRef::F32(values)) => self.array.push_converted(values, |values, bytes| {
                bytes.extend(values.iter().flat_map(|&value| f64::from(value).to_le_bytes()));
            }),
        }
    }

    /// Ends the matrix.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](zheng17_core::ErrorKind::Internal) if rows are missing or too many;
    /// [`ErrorKind::System`](zheng17_core::ErrorKind::System).
    pub fn finish(self) -> Result<()> {
        self.array.finish_encoded(self.n_rows, "array")?;
        self.done.store(self.n_rows, Ordering::Relaxed);
        Ok(())
    }
}

fn push_as_f32(array: &mut ArrayWriter, values: ValuesRef<'_>) -> Result<()> {
    match values {
        ValuesRef::F32(values) => array.push(values),
        ValuesRef::F64(values) => array.push_converted(values, |values, bytes| {
            bytes.extend(values.iter().flat_map(|&value| (value as f32).to_le_bytes()));
        }),
    }
}

/// A sparse matrix that grows. See [`H5adWriter::csr`].
pub struct CsrWriter {
    sink: SharedSink,
    path: String,
    n_columns: usize,
    wide: bool,
    most_entries: u64,
    n_rows: usize,
    n_entries: u64,
    data: ArrayWriter,
    indices: ArrayWriter,
    indptr: ArrayWriter,
    done: Arc<AtomicUsize>,
}

impl CsrWriter {
    /// Adds rows behind those already there. Columns within a row may come in any order.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](zheng17_core::ErrorKind::Internal) if the chunk has another number of columns;
    /// [`ErrorKind::System`](zheng17_core::ErrorKind::System).
    pub fn push(&mut self, rows: CsrView<'_>) -> Result<()> {
        if rows.n_genes() != self.n_columns {
            let message = format!("a chunk of {} columns for a matrix of {}", rows.n_genes(), self.n_columns);
            return Err(Error::internal(message).at(&self.path));
        }
        if self.n_entries + rows.n_entries() as u64 > self.most_entries {
            return Err(Error::internal(format!("more than {} entries", self.most_entries)).at(&self.path));
        }
        push_as_f32(&mut self.data, rows.values())?;
        if self.wide {
            self.indices.push_converted(rows.indices(), |indices, bytes| {
                bytes.extend(indices.iter().flat_map(|&index| i64::from(index).to_le_bytes()));
            })?;
        } else {
            // Columns below 2^31 have the same bits as signed numbers.
            self.indices.push_converted(rows.indices(), u32::append)?;
        }
        self.n_entries = push_row_ends(&mut self.indptr, rows, self.n_entries, self.wide)?;
        self.n_rows += rows.n_cells();
        Ok(())
    }

    /// Ends the matrix.
    ///
    /// # Errors
    /// [`ErrorKind::System`](zheng17_core::ErrorKind::System).
    pub fn finish(self) -> Result<()> {
        let n_entries = usize::try_from(self.n_entries).map_err(|_| Error::internal("too many entries"))?;
        self.data.finish(n_entries)?;
        self.indices.finish(n_entries)?;
        self.indptr.finish(self.n_rows + 1)?;
        let shape = Numbers::I64(vec![self.n_rows as i64, self.n_columns as i64]);
        self.sink.lock().set_group_attribute(&self.path, "shape", Attribute::Numbers(&shape))?;
        self.done.store(self.n_rows, Ordering::Relaxed);
        Ok(())
    }
}
