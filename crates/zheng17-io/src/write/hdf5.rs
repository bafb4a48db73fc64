//! The only file that knows the library HDF5 files are written with, behind the small trait [`Hdf5Sink`].
//!
//! Files have the oldest format version that HDF5 has, so that every reader of the last twenty years opens them. Chunks arrive
//! here filtered already. This module must not know what the datasets mean.

use std::collections::HashMap;
use std::path::Path;

use rust_hdf5::format::messages::datatype::{CompoundMember, EnumMember};
use rust_hdf5::{DatatypeMessage, Filter, FilterPipeline, H5Dataset, H5File, H5Group, HBool, Hdf5Error, LibverBound};
use zheng17_core::error::{Error, Result, ResultExt};

use crate::table::{Numbers, with_numbers};

/// The HDF5 numbers of the two filters in use.
const GZIP_FILTER: u16 = 1;
const SHUFFLE_FILTER: u16 = 2;

/// How an element is stored. All numbers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredType {
    /// An integer of so many bytes.
    Integer { size: u8, signed: bool },
    /// An IEEE float of 2, 4 or 8 bytes.
    Float { size: u8 },
    /// One byte, 0 or 1, as h5py stores truth values.
    Bool,
    /// A text of so many bytes, filled up with NULs.
    FixedText { size: u32, utf8: bool },
}

impl StoredType {
    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Integer { size, .. } | Self::Float { size } => size.into(),
            Self::Bool => 1,
            Self::FixedText { size, .. } => size as usize,
        }
    }

    fn message(self) -> DatatypeMessage {
        match self {
            Self::Integer { size, signed } => integer_message(size, signed),
            Self::Float { size: 2 } => DatatypeMessage::f16_type(),
            Self::Float { size: 4 } => DatatypeMessage::f32_type(),
            Self::Float { .. } => DatatypeMessage::f64_type(),
            Self::Bool => DatatypeMessage::Enum {
                base: Box::new(DatatypeMessage::i8_type()),
                members: vec![
                    EnumMember { name: "FALSE".to_string(), value: vec![0] },
                    EnumMember { name: "TRUE".to_string(), value: vec![1] },
                ],
            },
            Self::FixedText { size, utf8 } => DatatypeMessage::FixedString { size, padding: 1, charset: utf8.into() },
        }
    }
}

fn integer_message(size: u8, signed: bool) -> DatatypeMessage {
    DatatypeMessage::FixedPoint {
        size: size.into(),
        byte_order: rust_hdf5::ByteOrder::LittleEndian,
        signed,
        bit_offset: 0,
        bit_precision: u16::from(size) * 8,
    }
}

/// The filters that the chunks of a dataset went through, in this order: shuffle, gzip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Filters {
    /// Bytes of all elements were sorted by their place in the element.
    pub(crate) shuffle: bool,
    /// Compressed with zlib's format, at this level.
    pub(crate) gzip: Option<u8>,
}

impl Filters {
    /// Whether there is none.
    pub(crate) fn is_empty(self) -> bool {
        !self.shuffle && self.gzip.is_none()
    }
}

/// A dataset to be made.
#[derive(Debug, Clone)]
pub(crate) struct DatasetSpec {
    /// What the elements are.
    pub(crate) stored: StoredType,
    /// Its size so far; no number for a scalar.
    pub(crate) shape: Vec<usize>,
    /// The size of its chunks, for a dataset that is written by chunks and may grow along its first axis.
    pub(crate) chunk: Option<Vec<usize>>,
    /// What was done to the chunks.
    pub(crate) filters: Filters,
}

/// The value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Attribute<'a> {
    /// A text.
    Text(&'a str),
    /// A list of texts.
    Texts(&'a [&'a str]),
    /// A truth value.
    Bool(bool),
    /// A list of truth values.
    Bools(&'a [bool]),
    /// The first of these numbers, alone.
    Number(&'a Numbers),
    /// A list of numbers.
    Numbers(&'a Numbers),
}

/// Bytes that an attribute may have: 65535 less what describes it.
const ATTRIBUTE_ROOM: usize = 65_000;
/// Bytes of a text in an attribute: where it is in the file's heap.
const TEXT_PLACE: usize = 16;

impl Attribute<'_> {
    /// Refuses what an attribute has no room for. The library would find it only when the file is closed.
    fn check_room(&self) -> Result<()> {
        let (n_values, size) = match self {
            Self::Text(_) | Self::Bool(_) | Self::Number(_) => (1, TEXT_PLACE),
            Self::Texts(texts) => (texts.len(), TEXT_PLACE),
            Self::Bools(flags) => (flags.len(), 1),
            Self::Numbers(numbers) => (numbers.len(), size_of::<f64>()),
        };
        if n_values * size > ATTRIBUTE_ROOM {
            let message = format!("{n_values} values; an HDF5 attribute has room for {}", ATTRIBUTE_ROOM / size);
            return Err(Error::unsupported(message));
        }
        Ok(())
    }
}

/// A dataset of a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatasetId(usize);

/// What the writers need of an HDF5 library. Paths have no slash in front; the root group is the empty path. The parent of
/// what is made must exist.
pub(crate) trait Hdf5Sink: Send {
    /// Makes a group.
    fn create_group(&mut self, path: &str) -> Result<()>;
    /// Sets an attribute of a group.
    fn set_group_attribute(&mut self, path: &str, name: &str, value: Attribute<'_>) -> Result<()>;
    /// Makes a dataset whose elements come later.
    fn create_dataset(&mut self, path: &str, spec: &DatasetSpec) -> Result<DatasetId>;
    /// Makes a dataset of texts of any length, one-dimensional.
    fn create_texts(&mut self, path: &str, texts: &[&str]) -> Result<DatasetId>;
    /// Makes a list of records, or a single one where `length` is `None`, from the bytes of each: its fields in this order,
    /// without gaps.
    fn create_records(
        &mut self,
        path: &str,
        fields: &[(String, StoredType)],
        length: Option<usize>,
        bytes: &[u8],
    ) -> Result<DatasetId>;
    /// Makes a dataset that holds nothing, not even a size.
    fn create_nothing(&mut self, path: &str) -> Result<DatasetId>;
    /// Removes a group with all that is in it, or a dataset; nothing where there is none.
    fn remove(&mut self, path: &str) -> Result<()>;
    /// Sets an attribute of a dataset.
    fn set_attribute(&mut self, dataset: DatasetId, name: &str, value: Attribute<'_>) -> Result<()>;
    /// Writes all elements of a dataset without chunks.
    fn write_whole(&mut self, dataset: DatasetId, bytes: &[u8]) -> Result<()>;
    /// Writes the chunk of this number, filtered already; without filters it has its full size. Only the first axis may be
    /// divided into chunks.
    fn write_chunk(&mut self, dataset: DatasetId, number: usize, stored: &[u8]) -> Result<()>;
    /// Sets the size of a dataset that is written by chunks.
    fn set_shape(&mut self, dataset: DatasetId, shape: &[usize]) -> Result<()>;
    /// Completes the file. It reaches the disk only when somebody asks for that.
    fn close(&mut self) -> Result<()>;
}

/// [`Hdf5Sink`] by the crate rust-hdf5.
pub(crate) struct RustHdf5Sink {
    /// What errors call the file.
    output: String,
    /// `None` once closed.
    file: Option<H5File>,
    groups: HashMap<String, H5Group>,
    datasets: Vec<OpenDataset>,
}

struct OpenDataset {
    handle: H5Dataset,
    path: String,
    filtered: bool,
}

impl RustHdf5Sink {
    /// Makes an empty file, replacing what is there. The caller holds the lock on it. `output` is what errors call it.
    pub(crate) fn create(path: &Path, output: String) -> Result<Self> {
        let mut sink = Self { output, file: None, groups: HashMap::new(), datasets: Vec::new() };
        let options = H5File::options().no_locking().libver(LibverBound::Earliest);
        let file = options.create(path).map_err(sink.failed())?;
        sink.groups.insert(String::new(), file.root_group());
        sink.file = Some(file);
        Ok(sink)
    }

    fn failed(&self) -> impl Fn(Hdf5Error) -> Error + '_ {
        |error| Error::system(format!("can't write {}", self.output)).with_source(error)
    }

    /// The group that holds `path`, and the last part of it.
    fn parent<'a>(&self, path: &'a str) -> Result<(&H5Group, &'a str)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let group = self.groups.get(parent).ok_or_else(|| Error::internal(format!("no group {parent}")).at(path))?;
        Ok((group, name))
    }

    fn add(&mut self, handle: H5Dataset, path: &str, filtered: bool) -> DatasetId {
        self.datasets.push(OpenDataset { handle, path: path.to_string(), filtered });
        DatasetId(self.datasets.len() - 1)
    }

    fn dataset(&self, id: DatasetId) -> Result<&OpenDataset> {
        self.datasets.get(id.0).ok_or_else(|| Error::internal("no such dataset"))
    }
}

fn stored_flags(flags: &[bool]) -> Vec<HBool> {
    flags.iter().map(|&flag| HBool::from(flag)).collect()
}

impl Hdf5Sink for RustHdf5Sink {
    fn create_group(&mut self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        let group = parent.create_group(name).map_err(self.failed()).at(|| path)?;
        self.groups.insert(path.to_string(), group);
        Ok(())
    }

    fn set_group_attribute(&mut self, path: &str, name: &str, value: Attribute<'_>) -> Result<()> {
        let place = || format!("attribute {name} of {path}");
        value.check_room().at(place)?;
        let group = self.groups.get(path).ok_or_else(|| Error::internal(format!("no group {path}")))?;
        match value {
            Attribute::Text(text) => group.set_attr_string(name, text),
            Attribute::Texts([]) => group.set_attr_array_numeric::<f64>(name, &[]),
            Attribute::Texts(texts) => group.set_attr_string_array(name, texts),
            Attribute::Bool(value) => group.set_attr_typed(name, StoredType::Bool.message(), vec![value.into()]),
            Attribute::Bools(values) => group.set_attr_array_numeric(name, &stored_flags(values)),
            Attribute::Number(numbers) => with_numbers!(numbers, |v| match v.first() {
                Some(value) => group.set_attr_numeric(name, value),
                None => Ok(()),
            }),
            Attribute::Numbers(numbers) => with_numbers!(numbers, |v| group.set_attr_array_numeric(name, v)),
        }
        .map_err(self.failed())
        .at(place)
    }

    fn create_dataset(&mut self, path: &str, spec: &DatasetSpec) -> Result<DatasetId> {
        let (parent, name) = self.parent(path)?;
        let mut builder = parent.new_dataset::<u8>().datatype(spec.stored.message()).shape(&spec.shape);
        if let Some(chunk) = &spec.chunk {
            let mut most: Vec<Option<usize>> = spec.shape.iter().map(|&n| Some(n)).collect();
            if let Some(first) = most.first_mut() {
                *first = None;
            }
            builder = builder.chunk(chunk).max_shape(&most);
        }
        if !spec.filters.is_empty() {
            let mut filters = Vec::new();
            if spec.filters.shuffle {
                filters.push(Filter { id: SHUFFLE_FILTER, flags: 1, cd_values: vec![spec.stored.size() as u32] });
            }
            if let Some(level) = spec.filters.gzip {
                filters.push(Filter { id: GZIP_FILTER, flags: 1, cd_values: vec![level.into()] });
            }
            builder = builder.filter_pipeline(FilterPipeline { filters });
        }
        let handle = builder.create(name).map_err(self.failed()).at(|| path)?;
        Ok(self.add(handle, path, !spec.filters.is_empty()))
    }

    fn create_texts(&mut self, path: &str, texts: &[&str]) -> Result<DatasetId> {
        let (parent, name) = self.parent(path)?;
        let handle = if texts.is_empty() {
            // The library would give no texts a place in the file, which libhdf5 takes for damage.
            let texts_of_any_length = DatatypeMessage::VarLenString { padding: 0, charset: 1 };
            parent.new_dataset::<u8>().datatype(texts_of_any_length).shape([0]).create(name)
        } else {
            parent.write_vlen_strings(name, texts)
        }
        .map_err(self.failed())
        .at(|| path)?;
        Ok(self.add(handle, path, false))
    }

    fn create_records(
        &mut self,
        path: &str,
        fields: &[(String, StoredType)],
        length: Option<usize>,
        bytes: &[u8],
    ) -> Result<DatasetId> {
        let mut size = 0;
        let mut members = Vec::new();
        for (name, stored) in fields {
            members.push(CompoundMember { name: name.clone(), offset: size, datatype: stored.message() });
            size += stored.size() as u32;
        }
        let shape: Vec<usize> = length.into_iter().collect();
        let (parent, name) = self.parent(path)?;
        let records = DatatypeMessage::Compound { size, members };
        let handle = parent
            .new_dataset::<u8>()
            .datatype(records)
            .shape(shape)
            .create(name)
            .map_err(self.failed())
            .at(|| path)?;
        if !bytes.is_empty() {
            handle.write_raw_bytes(bytes).map_err(self.failed()).at(|| path)?;
        }
        Ok(self.add(handle, path, false))
    }

    fn create_nothing(&mut self, path: &str) -> Result<DatasetId> {
        let (parent, name) = self.parent(path)?;
        let handle = parent.new_dataset::<f32>().null().create(name).map_err(self.failed()).at(|| path)?;
        Ok(self.add(handle, path, false))
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.groups.remove(path).is_some() {
            let below = format!("{path}/");
            self.groups.retain(|group, _| !group.starts_with(&below));
            file.delete_group(path)
        } else if self.datasets.iter().any(|dataset| dataset.path == path) {
            file.delete_dataset(path)
        } else {
            Ok(())
        }
        .map_err(self.failed())
        .at(|| path)
    }

    fn set_attribute(&mut self, dataset: DatasetId, name: &str, value: Attribute<'_>) -> Result<()> {
        let OpenDataset { handle, path, .. } = self.dataset(dataset)?;
        let place = || format!("attribute {name} of {path}");
        value.check_room().at(place)?;
        match value {
            Attribute::Text(text) => {
                handle.new_attr::<rust_hdf5::VarLenUnicode>().shape(()).create(name).and_then(|a| a.write_string(text))
            }
            Attribute::Texts([]) => {
                handle.new_attr::<f64>().shape([0]).create(name).and_then(|a| a.write_array::<f64>(&[]))
            }
            Attribute::Texts(texts) => handle
                .new_attr::<rust_hdf5::VarLenUnicode>()
                .shape([texts.len()])
                .create(name)
                .and_then(|a| a.write_string_array(texts)),
            Attribute::Bool(value) => handle.set_attr_typed(name, StoredType::Bool.message(), vec![value.into()]),
            Attribute::Bools(values) => {
                let values = stored_flags(values);
                handle.new_attr::<HBool>().shape([values.len()]).create(name).and_then(|a| a.write_array(&values))
            }
            Attribute::Number(numbers) => with_numbers!(numbers, |v| match v.first() {
                Some(value) => handle.new_attr::<u8>().shape(()).create(name).and_then(|a| a.write_numeric(value)),
                None => Ok(()),
            }),
            Attribute::Numbers(numbers) => with_numbers!(numbers, |v| handle
                .new_attr::<u8>()
                .shape([v.len()])
                .create(name)
                .and_then(|a| a.write_array(v))),
        }
        .map_err(self.failed())
        .at(place)
    }

    fn write_whole(&mut self, dataset: DatasetId, bytes: &[u8]) -> Result<()> {
        let OpenDataset { handle, path, .. } = self.dataset(dataset)?;
        handle.write_raw_bytes(bytes).map_err(self.failed()).at(|| path)
    }

    fn write_chunk(&mut self, dataset: DatasetId, number: usize, stored: &[u8]) -> Result<()> {
        let OpenDataset { handle, path, filtered } = self.dataset(dataset)?;
        if *filtered { handle.write_chunk_raw(number, stored, 0) } else { handle.write_chunk(number, stored) }
            .map_err(self.failed())
            .at(|| path)
    }

    fn set_shape(&mut self, dataset: DatasetId, shape: &[usize]) -> Result<()> {
        let OpenDataset { handle, path, .. } = self.dataset(dataset)?;
        handle.set_extent(shape).map_err(self.failed()).at(|| path)
    }

    fn close(&mut self) -> Result<()> {
        self.datasets.clear();
        self.groups.clear();
        match self.file.take() {
            Some(file) => file.close_no_sync().map_err(self.failed()),
            None => Ok(()),
        }
    }
}

impl Drop for RustHdf5Sink {
    fn drop(&mut self) {
        // A file dropped open would be completed, brought to the disk and, failing that, complained about on the terminal.
        // Nobody wants the file any more: an error has its own message.
        let _ = self.close();
    }
}
