//! 10x HDF5 files as Cell Ranger 3 and later write them: genes × cells by columns, which is cells × genes by rows.

use std::path::Path;

use zheng17_core::error::{Error, Result};
use zheng17_core::matrix::{CsrView, ValuesRef};
use zheng17_core::with_values;

use super::array::{ArraySpec, ArrayWriter, Compression, Element, SharedSink, push_row_ends};
use super::h5ad::CreateOptions;
use super::hdf5::{Attribute, Hdf5Output, StoredType};
use super::temporary::TemporaryFile;
use crate::table::Numbers;

/// Cell Ranger's chunks and compression.
const CHUNK_ENTRIES: usize = 80_000;
const COMPRESSION: Compression = Compression::Gzip(4);

/// What a 10x file says of its genes and of itself. All lists have one text per gene.
#[derive(Debug, Clone, Copy)]
pub struct TenxFeatures<'a> {
    /// Identifiers, such as `ENSG00000243485`.
    pub ids: &'a [String],
    /// Names, such as `MIR1302-2HG`. They may repeat.
    pub names: &'a [String],
    /// What was counted, such as `Gene Expression`.
    pub feature_types: &'a [String],
    /// Genomes, such as `GRCh38`.
    pub genomes: &'a [String],
    /// The name of the library that all cells come from.
    pub library: &'a str,
    /// How the library was made.
    pub chemistry: &'a str,
}

/// Writes a 10x HDF5 file, cell by cell, in bounded memory. It has its name only after [`TenxWriter::finish`].
///
/// The format sets the compression: gzip, level 4.
pub struct TenxWriter {
    // The file is closed before its name goes.
    sink: SharedSink,
    temporary: TemporaryFile,
    n_cells: usize,
    n_genes: usize,
    cells_written: usize,
    n_entries: u64,
    data: ArrayWriter,
    indices: ArrayWriter,
    indptr: ArrayWriter,
}

impl TenxWriter {
    /// Starts a file for so many cells as there are barcodes. `options.compression` has no meaning here.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if the output is an input, exists without `force`, or has no
    /// folder; [`ErrorKind::System`](zheng17_core::ErrorKind::System) if the folder can't be written to.
    pub fn create(
        path: &Path,
        options: &CreateOptions<'_>,
        barcodes: &[String],
        features: &TenxFeatures<'_>,
    ) -> Result<Self> {
        let n_genes = features.ids.len();
        let lists = [features.names, features.feature_types, features.genomes];
        if lists.iter().any(|list| list.len() != n_genes) {
            return Err(Error::internal("the lists of features differ in length"));
        }
        if i32::try_from(n_genes).is_err() || i32::try_from(barcodes.len()).is_err() {
            return Err(Error::unsupported("10x files have at most 2147483647 cells and genes").at(path.display()));
        }
        let temporary = TemporaryFile::create(path, options.inputs, options.force)?;
        let sink = SharedSink::new(Hdf5Output::create(temporary.path(), path.display().to_string())?);
        let part = |name: &str, stored| {
            let path = format!("matrix/{name}");
            ArrayWriter::new(sink.clone(), numbers_spec(path, stored))
        };
        let mut indptr = part("indptr", i64::STORED)?;
        indptr.push(&[0_i64])?;
        let (data, indices) = (part("data", i32::STORED)?, part("indices", i64::STORED)?);
        write_head(&sink, barcodes, features)?;
        Ok(Self {
            sink,
            temporary,
            n_cells: barcodes.len(),
            n_genes,
            cells_written: 0,
            n_entries: 0,
            data,
            indices,
            indptr,
        })
    }

    /// Adds cells behind those already there.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](zheng17_core::ErrorKind::Input), naming the first cell with a value that is no count;
    /// [`ErrorKind::Internal`](zheng17_core::ErrorKind::Internal) if the chunk has another number of genes;
    /// [`ErrorKind::System`](zheng17_core::ErrorKind::System).
    pub fn push(&mut self, cells: CsrView<'_>) -> Result<()> {
        if cells.n_genes() != self.n_genes {
            let message = format!("a chunk of {} genes for a matrix of {}", cells.n_genes(), self.n_genes);
            return Err(Error::internal(message));
        }
        let counts = cells.values();
        if !are_counts(counts) {
            let cell = (0..cells.n_cells()).find(|&cell| !are_counts(cells.row_values(cell))).unwrap_or(0);
            let message = format!("cell {}: 10x files hold whole counts below 2^31 only", self.cells_written + cell);
            return Err(Error::input(message));
        }
        with_values!(counts, |counts| self.data.push_converted(counts, |counts, bytes| {
            bytes.extend(counts.iter().flat_map(|&count| (count as i32).to_le_bytes()));
        }))?;
        self.indices.push_converted(cells.indices(), |genes, bytes| {
            bytes.extend(genes.iter().flat_map(|&gene| i64::from(gene).to_le_bytes()));
        })?;
        self.n_entries = push_row_ends(&mut self.indptr, cells, self.n_entries, true)?;
        self.cells_written += cells.n_cells();
        Ok(())
    }

    /// Completes the file, brings it to the disk and gives it its name.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](zheng17_core::ErrorKind::Internal) if cells are missing or too many; what
    /// [`TemporaryFile::finish`] returns. No output is left then.
    pub fn finish(self) -> Result<()> {
        let n_entries = usize::try_from(self.n_entries).map_err(|_| Error::internal("too many entries"))?;
        self.data.finish(n_entries)?;
        self.indices.finish(n_entries)?;
        self.indptr.finish(self.n_cells + 1)?;
        let mut shape = ArrayWriter::new(self.sink.clone(), numbers_spec("matrix/shape".to_string(), i32::STORED))?;
        shape.push(&[self.n_genes as i32, self.n_cells as i32])?;
        shape.finish(2)?;
        self.sink.lock().close()?;
        self.temporary.finish()
    }
}

/// Whether all values fit the format's 32-bit counts.
fn are_counts(values: ValuesRef<'_>) -> bool {
    match values {
        ValuesRef::F32(v) => v.iter().all(|&x| (0.0..2_147_483_648.0).contains(&x) && x.fract() == 0.0),
        ValuesRef::F64(v) => v.iter().all(|&x| (0.0..2_147_483_648.0).contains(&x) && x.fract() == 0.0),
    }
}

fn numbers_spec(path: String, stored: StoredType) -> ArraySpec {
    ArraySpec {
        path,
        stored,
        row: Vec::new(),
        rows_per_chunk: CHUNK_ENTRIES,
        compression: COMPRESSION,
        always_chunked: true,
    }
}

fn write_head(sink: &SharedSink, barcodes: &[String], features: &TenxFeatures<'_>) -> Result<()> {
    {
        let mut sink = sink.lock();
        sink.set_group_attribute("", "chemistry_description", Attribute::Text(features.chemistry))?;
        sink.set_group_attribute("", "filetype", Attribute::Text("matrix"))?;
        sink.set_group_attribute("", "library_ids", Attribute::Texts(&[features.library]))?;
        sink.set_group_attribute("", "original_gem_groups", Attribute::Numbers(&Numbers::I64(vec![1])))?;
        sink.set_group_attribute("", "version", Attribute::Number(&Numbers::I64(vec![2])))?;
        sink.create_group("matrix")?;
        sink.create_group("matrix/features")?;
    }
    write_fixed_texts(sink, "matrix/barcodes", barcodes)?;
    write_fixed_texts(sink, "matrix/features/_all_tag_keys", &["genome".to_string()])?;
    write_fixed_texts(sink, "matrix/features/feature_type", features.feature_types)?;
    write_fixed_texts(sink, "matrix/features/genome", features.genomes)?;
    write_fixed_texts(sink, "matrix/features/id", features.ids)?;
    write_fixed_texts(sink, "matrix/features/name", features.names)
}

/// Writes texts, all filled up to the length of the longest.
fn write_fixed_texts(sink: &SharedSink, path: &str, texts: &[String]) -> Result<()> {
    if let Some(at) = texts.iter().position(|text| text.contains('\0')) {
        return Err(Error::input(format!("text {} holds a NUL character, which HDF5 can't store", at + 1)).at(path));
    }
    let width = texts.iter().map(String::len).max().unwrap_or(0).max(1);
    let stored = StoredType::FixedText { size: width as u32, utf8: !texts.iter().all(|text| text.is_ascii()) };
    let spec = ArraySpec {
        path: path.to_string(),
        stored,
        row: Vec::new(),
        rows_per_chunk: CHUNK_ENTRIES / width.min(CHUNK_ENTRIES),
        compression: COMPRESSION,
        always_chunked: false,
    };
    let mut array = ArrayWriter::new(sink.clone(), spec)?;
    array.push_converted(texts, |texts, bytes| {
        for text in texts {
            bytes.extend(text.bytes().chain(std::iter::repeat(0)).take(width));
        }
    })?;
    array.finish(texts.len()).map(|_| ())
}
