//! Arrays that grow row by row: elements are collected into chunks, filtered and handed to the file.
//!
//! An array that fits one chunk is stored without chunks. This module must not know what arrays mean.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libdeflater::{CompressionLvl, Compressor};
use zheng17_core::error::{Error, Result, ResultExt};
use zheng17_core::matrix::CsrView;

use super::hdf5::{Attribute, DatasetId, DatasetSpec, Filters, Hdf5Output, StoredType};

/// How arrays are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all: fastest, and every reader can map the file.
    #[default]
    None,
    /// gzip at this level, 1 (fast) to 9 (small), behind a shuffle of the bytes.
    Gzip(u8),
}

impl Compression {
    fn filters(self, stored: StoredType) -> Filters {
        match self {
            Self::None => Filters::default(),
            Self::Gzip(level) => {
                let is_wide_number = stored.size() > 1 && !matches!(stored, StoredType::FixedText { .. });
                Filters { shuffle: is_wide_number, gzip: Some(level) }
            }
        }
    }

    /// The compressor for this level.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for a level that gzip lacks.
    fn compressor(self) -> Result<Option<Compressor>> {
        let Self::Gzip(level) = self else {
            return Ok(None);
        };
        // HDF5 records the level and knows 0 to 9.
        let level = CompressionLvl::new(level.into()).ok().filter(|_| (1..=9).contains(&level));
        let level = level.ok_or_else(|| Error::usage("gzip levels go from 1 to 9"))?;
        Ok(Some(Compressor::new(level)))
    }

    /// Checks the level.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for a level that gzip lacks.
    pub(crate) fn check(self) -> Result<()> {
        self.compressor().map(|_| ())
    }
}

/// The file that several arrays grow in.
#[derive(Clone)]
pub(crate) struct SharedSink(Arc<Mutex<Hdf5Output>>);

impl SharedSink {
    pub(crate) fn new(output: Hdf5Output) -> Self {
        Self(Arc::new(Mutex::new(output)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Hdf5Output> {
        // Whoever panicked with the file in hand took the writer along; the output is never finished after that.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number or truth value with a stored form.
pub(crate) trait Element: Copy {
    /// The stored form.
    const STORED: StoredType;
    /// Adds the stored bytes of values.
    fn append(values: &[Self], bytes: &mut Vec<u8>);
}

macro_rules! element {
    ($type:ty, $stored:expr) => {
        impl Element for $type {
            const STORED: StoredType = $stored;
            fn append(values: &[Self], bytes: &mut Vec<u8>) {
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
        }
    };
}

element!(i8, StoredType::Integer { size: 1, signed: true });
element!(i16, StoredType::Integer { size: 2, signed: true });
element!(i32, StoredType::Integer { size: 4, signed: true });
element!(i64, StoredType::Integer { size: 8, signed: true });
element!(u8, StoredType::Integer { size: 1, signed: false });
element!(u16, StoredType::Integer { size: 2, signed: false });
element!(u32, StoredType::Integer { size: 4, signed: false });
element!(u64, StoredType::Integer { size: 8, signed: false });
element!(f32, StoredType::Float { size: 4 });
element!(f64, StoredType::Float { size: 8 });

impl Element for bool {
    const STORED: StoredType = StoredType::Bool;
    fn append(values: &[Self], bytes: &mut Vec<u8>) {
        bytes.extend(values.iter().map(|&value| u8::from(value)));
    }
}

/// The stored bytes of values.
pub(crate) fn stored_bytes<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    T::append(values, &mut bytes);
    bytes
}

/// What an array will be.
#[derive(Debug, Clone)]
pub(crate) struct ArraySpec {
    /// The dataset's path.
    pub(crate) path: String,
    /// What the elements are.
    pub(crate) stored: StoredType,
    /// The size of one row: empty for a list of numbers, the number of columns for a matrix.
    pub(crate) row: Vec<usize>,
    /// How many rows make a chunk.
    pub(crate) rows_per_chunk: usize,
    /// How chunks are compressed.
    pub(crate) compression: Compression,
    /// Whether an array that fits one chunk is still stored as one.
    pub(crate) always_chunked: bool,
}

/// An array that grows.
pub(crate) struct ArrayWriter {
    sink: SharedSink,
    spec: ArraySpec,
    compressor: Option<Compressor>,
    /// Stored bytes of rows that are not in the file yet; at most one chunk.
    waiting: Vec<u8>,
    shuffled: Vec<u8>,
    compressed: Vec<u8>,
    dataset: Option<DatasetId>,
    n_chunks: usize,
}

impl ArrayWriter {
    pub(crate) fn new(sink: SharedSink, spec: ArraySpec) -> Result<Self> {
        let compressor = spec.compression.compressor()?;
        Ok(Self {
            sink,
            spec,
            compressor,
            waiting: Vec::new(),
            shuffled: Vec::new(),
            compressed: Vec::new(),
            dataset: None,
            n_chunks: 0,
        })
    }

    /// What the elements are.
    pub(crate) fn stored(&self) -> StoredType {
        self.spec.stored
    }

    /// Elements that make a row.
    fn row_elements(&self) -> usize {
        self.spec.row.iter().product()
    }

    fn row_bytes(&self) -> usize {
        self.row_elements() * self.spec.stored.size()
    }

    fn chunk_bytes(&self) -> usize {
        self.row_bytes() * self.spec.rows_per_chunk
    }

    /// Adds elements, row by row; a row may arrive in parts.
    pub(crate) fn push<T: Element>(&mut self, values: &[T]) -> Result<()> {
        if T::STORED != self.spec.stored {
            return Err(Error::internal("elements of another type than the array's").at(&self.spec.path));
        }
        self.push_converted(values, T::append)
    }

    /// Adds elements that `append` turns into stored bytes.
    pub(crate) fn push_converted<T>(&mut self, mut values: &[T], append: impl Fn(&[T], &mut Vec<u8>)) -> Result<()> {
        let (size, full) = (self.spec.stored.size(), self.chunk_bytes());
        if full == 0 {
            return Ok(());
        }
        while !values.is_empty() {
            let (now, later) = values.split_at(values.len().min((full - self.waiting.len()) / size));
            append(now, &mut self.waiting);
            values = later;
            if self.waiting.len() == full && !values.is_empty() {
                self.write_chunk()?;
            }
        }
        Ok(())
    }

    fn spec_of_dataset(&self, n_rows: usize, chunked: bool) -> DatasetSpec {
        let sized = |first: usize| [&[first], self.spec.row.as_slice()].concat();
        let filters = if chunked { self.spec.compression.filters(self.spec.stored) } else { Filters::default() };
        DatasetSpec {
            stored: self.spec.stored,
            shape: sized(n_rows),
            chunk: chunked.then(|| sized(self.spec.rows_per_chunk)),
            filters,
        }
    }

    /// Writes the waiting rows as a chunk, filled up with zeros.
    fn write_chunk(&mut self) -> Result<()> {
        let dataset = match self.dataset {
            Some(dataset) => dataset,
            None => self.sink.lock().create_dataset(&self.spec.path, &self.spec_of_dataset(0, true))?,
        };
        self.dataset = Some(dataset);
        self.waiting.resize(self.chunk_bytes(), 0);
        let filters = self.spec.compression.filters(self.spec.stored);
        let mut stored = &self.waiting;
        if filters.shuffle {
            shuffle(stored, self.spec.stored.size(), &mut self.shuffled);
            stored = &self.shuffled;
        }
        if let Some(compressor) = &mut self.compressor {
            self.compressed.resize(compressor.zlib_compress_bound(stored.len()), 0);
            let length = compressor
                .zlib_compress(stored, &mut self.compressed)
                .map_err(|error| Error::internal("can't compress a chunk").with_source(error).at(&self.spec.path))?;
            self.compressed.truncate(length);
            stored = &self.compressed;
        }
        self.sink.lock().write_chunk(dataset, stored)?;
        self.n_chunks += 1;
        self.waiting.clear();
        Ok(())
    }

    /// Ends the array at `n_rows` rows, which must be those that were pushed.
    pub(crate) fn finish(mut self, n_rows: usize) -> Result<DatasetId> {
        let waiting_rows = self.waiting.len().checked_div(self.row_bytes());
        let rows = waiting_rows.map_or(n_rows, |waiting| self.n_chunks * self.spec.rows_per_chunk + waiting);
        if rows != n_rows || waiting_rows.is_some_and(|rows| rows * self.row_bytes() != self.waiting.len()) {
            return Err(
                Error::internal(format!("{rows} rows were written, but {n_rows} were announced")).at(&self.spec.path)
            );
        }
        if self.dataset.is_none() && !self.spec.always_chunked {
            let spec = self.spec_of_dataset(n_rows, false);
            let mut sink = self.sink.lock();
            let dataset = sink.create_dataset(&self.spec.path, &spec)?;
            if !self.waiting.is_empty() {
                sink.write_whole(dataset, &self.waiting)?;
            }
            return Ok(dataset);
        }
        if !self.waiting.is_empty() || self.dataset.is_none() {
            self.write_chunk()?;
        }
        let dataset = self.dataset.ok_or_else(|| Error::internal("no chunk was written"))?;
        let shape = self.spec_of_dataset(n_rows, true).shape;
        self.sink.lock().set_shape(dataset, &shape).at(|| &self.spec.path)?;
        Ok(dataset)
    }

    /// Ends the array and says what it is, in AnnData's words.
    pub(crate) fn finish_encoded(self, n_rows: usize, encoding: &str) -> Result<()> {
        let sink = self.sink.clone();
        let dataset = self.finish(n_rows)?;
        mark_dataset(&sink, dataset, encoding)
    }
}

/// Adds the row pointers of a chunk behind `n_entries` entries, in 64 bits or 32, and gives the new number of entries.
pub(crate) fn push_row_ends(indptr: &mut ArrayWriter, rows: CsrView<'_>, n_entries: u64, wide: bool) -> Result<u64> {
    // Row pointers of a view may start anywhere.
    let start = rows.indptr().first().copied().unwrap_or(0);
    let ends = rows.indptr().get(1..).unwrap_or_default();
    indptr.push_converted(ends, |ends, bytes| {
        let size = if wide { 8 } else { 4 };
        bytes.extend(ends.iter().flat_map(|&end| (end - start + n_entries).to_le_bytes().into_iter().take(size)));
    })?;
    Ok(n_entries + rows.n_entries() as u64)
}

/// Says what a dataset is, in AnnData's words; all of its dataset encodings have one version.
pub(crate) fn mark_dataset(sink: &SharedSink, dataset: DatasetId, encoding: &str) -> Result<()> {
    let mut sink = sink.lock();
    sink.set_attribute(dataset, "encoding-type", Attribute::Text(encoding))?;
    sink.set_attribute(dataset, "encoding-version", Attribute::Text("0.2.0"))
}

/// Sorts bytes by their place in the element: all first bytes, all second bytes, and so on.
fn shuffle(bytes: &[u8], size: usize, out: &mut Vec<u8>) {
    out.clear();
    for place in 0..size {
        out.extend(bytes.iter().skip(place).step_by(size));
    }
}
