//! Writes HDF5 files, as much of them as AnnData and 10x files need.
//!
//! Files have the oldest format version that HDF5 has, so that every reader of the last twenty years opens them. Bytes are only
//! ever added: datasets as they come, what describes them at the end, and the superblock last of all. Chunks arrive here
//! filtered already. Nothing here knows what the datasets mean. The terms are those of the HDF5 file format specification.

mod groups;
mod header;
mod heap;
mod index;
#[cfg(test)]
mod tests;
mod types;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use zheng17_core::error::{Error, Result, ResultExt};

use crate::table::{Numbers, with_numbers};
use crate::write::array::{Element, stored_bytes};
use groups::GroupIndex;
use header::Message;
use heap::{Reference, TextHeap};
use index::ChunkPlace;
pub(crate) use types::StoredType;
use types::{Dataspace, Datatype};

/// An address that means nowhere.
const NOWHERE: u64 = u64::MAX;
const SUPERBLOCK_BYTES: usize = 96;

/// The filters that the chunks of a dataset went through, in this order: shuffle, gzip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Filters {
    /// Bytes of all elements were sorted by their place in the element.
    pub(crate) shuffle: bool,
    /// Compressed with zlib's format, at this level.
    pub(crate) gzip: Option<u8>,
}

/// A dataset to be made.
#[derive(Debug, Clone)]
pub(crate) struct DatasetSpec {
    /// What the elements are: anything but texts of any length.
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

/// The values of one field of records.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Field<'a> {
    /// Elements of a type, as they are stored.
    Elements(StoredType, Vec<u8>),
    /// Texts of any length.
    Texts(&'a [String]),
}

/// A dataset of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatasetId(usize);

/// An attribute whose texts have their final place only when the file is complete.
struct HeldAttribute {
    name: String,
    datatype: Datatype,
    dataspace: Dataspace,
    values: HeldValues,
}

enum HeldValues {
    Bytes(Vec<u8>),
    Texts(Vec<Reference>),
}

/// Where the elements of a dataset are.
enum Layout {
    Nothing,
    /// Address and bytes.
    Contiguous(u64, u64),
    Chunked {
        chunk: Vec<usize>,
        filters: Filters,
        places: Vec<ChunkPlace>,
    },
}

struct Dataset {
    path: String,
    datatype: Datatype,
    dataspace: Dataspace,
    layout: Layout,
    attributes: Vec<HeldAttribute>,
}

/// An HDF5 file that is being written. Paths have no slash in front; the root group is the empty path. The parent of what is
/// made must exist.
pub(crate) struct Hdf5Output {
    file: Appender,
    /// What errors call the file.
    name: String,
    groups: BTreeMap<String, Vec<HeldAttribute>>,
    /// `None` where one was removed.
    datasets: Vec<Option<Dataset>>,
    dataset_paths: BTreeMap<String, DatasetId>,
    texts_of_attributes: TextHeap,
}

/// Adds bytes to the end of a file.
struct Appender {
    file: BufWriter<std::fs::File>,
    end: u64,
}

impl Appender {
    /// Adds a block and gives its address, which is a multiple of eight.
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<u64> {
        let padding = self.end.next_multiple_of(8) - self.end;
        self.file.write_all(&[0; 8][..padding as usize])?;
        self.file.write_all(bytes)?;
        let address = self.end + padding;
        self.end = address + bytes.len() as u64;
        Ok(address)
    }

    /// The address that the next block will have.
    fn next_address(&self) -> u64 {
        self.end.next_multiple_of(8)
    }
}

fn parent_and_name(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Hdf5Output {
    /// Starts a file at `path`, replacing what is there. `name` is what errors call it.
    pub(crate) fn create(path: &Path, name: String) -> Result<Self> {
        let open = || {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
            let mut file = Appender { file: BufWriter::with_capacity(1 << 20, file), end: 0 };
            file.append(&[0; SUPERBLOCK_BYTES])?;
            Ok(file)
        };
        let file = open().map_err(|error| failed(&name, error))?;
        Ok(Self {
            file,
            name,
            groups: BTreeMap::from([(String::new(), Vec::new())]),
            datasets: Vec::new(),
            dataset_paths: BTreeMap::new(),
            texts_of_attributes: TextHeap::default(),
        })
    }

    /// Makes a group.
    pub(crate) fn create_group(&mut self, path: &str) -> Result<()> {
        self.check_free(path)?;
        self.groups.insert(path.to_string(), Vec::new());
        Ok(())
    }

    fn check_free(&self, path: &str) -> Result<()> {
        let (parent, name) = parent_and_name(path);
        if name.is_empty() || name.contains('\0') {
            return Err(Error::internal("a group or dataset needs a name").at(path));
        }
        if !self.groups.contains_key(parent) {
            return Err(Error::internal("there is no group for it").at(path));
        }
        if self.groups.contains_key(path) || self.dataset_paths.contains_key(path) {
            return Err(Error::internal("the name is taken").at(path));
        }
        Ok(())
    }

    /// Makes a dataset whose elements come later.
    pub(crate) fn create_dataset(&mut self, path: &str, spec: &DatasetSpec) -> Result<DatasetId> {
        let layout = match &spec.chunk {
            None => Layout::Contiguous(NOWHERE, 0),
            Some(chunk) => Layout::Chunked { chunk: chunk.clone(), filters: spec.filters, places: Vec::new() },
        };
        let may_grow = spec.chunk.is_some();
        self.add(path, Datatype::Plain(spec.stored), Dataspace::sized(&spec.shape, may_grow), layout)
    }

    fn add(&mut self, path: &str, datatype: Datatype, dataspace: Dataspace, layout: Layout) -> Result<DatasetId> {
        self.check_free(path)?;
        let id = DatasetId(self.datasets.len());
        self.dataset_paths.insert(path.to_string(), id);
        let attributes = Vec::new();
        self.datasets.push(Some(Dataset { path: path.to_string(), datatype, dataspace, layout, attributes }));
        Ok(id)
    }

    /// Makes a dataset of texts of any length; `shape` is empty for a single one.
    pub(crate) fn create_texts<'t>(
        &mut self,
        path: &str,
        shape: &[usize],
        texts: impl ExactSizeIterator<Item = &'t str>,
    ) -> Result<DatasetId> {
        if shape.iter().product::<usize>() != texts.len() {
            return Err(Error::internal(format!("{} texts for shape {shape:?}", texts.len())).at(path));
        }
        let mut heap = TextHeap::default();
        let references = self.heap_texts(&mut heap, texts)?;
        let bytes: Vec<u8> = references.iter().flat_map(|reference| heap.encode(*reference)).collect();
        let layout = self.write_contiguous(&bytes)?;
        self.add(path, Datatype::Plain(StoredType::Text), Dataspace::sized(shape, false), layout)
    }

    fn heap_texts<'t>(&mut self, heap: &mut TextHeap, texts: impl Iterator<Item = &'t str>) -> Result<Vec<Reference>> {
        let add_all = || {
            let references = texts.map(|text| heap.add(text, &mut self.file)).collect::<std::io::Result<Vec<_>>>()?;
            heap.flush(&mut self.file)?;
            Ok(references)
        };
        add_all().map_err(|error| failed(&self.name, error))
    }

    /// Makes a list of records, or a single one where `length` is `None`.
    pub(crate) fn create_records(
        &mut self,
        path: &str,
        fields: &[(String, Field<'_>)],
        length: Option<usize>,
    ) -> Result<DatasetId> {
        let mut columns = Vec::new();
        let mut types = Vec::new();
        for (name, field) in fields {
            let (stored, bytes) = match field {
                Field::Elements(stored, bytes) => (*stored, bytes.clone()),
                Field::Texts(texts) => {
                    let mut heap = TextHeap::default();
                    let references = self.heap_texts(&mut heap, texts.iter().map(String::as_str))?;
                    (StoredType::Text, references.iter().flat_map(|reference| heap.encode(*reference)).collect())
                }
            };
            if bytes.len() != length.unwrap_or(1) * stored.size() {
                return Err(Error::internal(format!("field {name} has another length")).at(path));
            }
            types.push((name.clone(), stored));
            columns.push((stored.size(), bytes));
        }
        let records: Vec<u8> = (0..length.unwrap_or(1))
            .flat_map(|at| columns.iter().flat_map(move |(size, bytes)| &bytes[at * size..(at + 1) * size]))
            .copied()
            .collect();
        let datatype = Datatype::Record(types);
        if Message::datatype(&datatype).size() > header::LARGEST_MESSAGE {
            return Err(Error::unsupported(format!("records of {} fields", fields.len())).at(path));
        }
        let layout = self.write_contiguous(&records)?;
        let shape: Vec<usize> = length.into_iter().collect();
        self.add(path, datatype, Dataspace::sized(&shape, false), layout)
    }

    /// Makes a dataset that holds nothing, not even a size.
    pub(crate) fn create_nothing(&mut self, path: &str) -> Result<DatasetId> {
        self.add(path, Datatype::Plain(StoredType::Float { size: 4 }), Dataspace::Nothing, Layout::Nothing)
    }

    fn write_contiguous(&mut self, bytes: &[u8]) -> Result<Layout> {
        if bytes.is_empty() {
            return Ok(Layout::Contiguous(NOWHERE, 0));
        }
        let address = self.file.append(bytes).map_err(|error| failed(&self.name, error))?;
        Ok(Layout::Contiguous(address, bytes.len() as u64))
    }

    fn dataset(&mut self, id: DatasetId) -> Result<&mut Dataset> {
        self.datasets.get_mut(id.0).and_then(Option::as_mut).ok_or_else(|| Error::internal("no such dataset"))
    }

    /// Writes all elements of a dataset without chunks.
    pub(crate) fn write_whole(&mut self, id: DatasetId, bytes: &[u8]) -> Result<()> {
        let dataset = self.dataset(id)?;
        let expected = dataset.dataspace.n_elements() * dataset.datatype.size();
        if expected != bytes.len() || !matches!(dataset.layout, Layout::Contiguous(NOWHERE, 0)) {
            return Err(Error::internal(format!("{} bytes for {expected}", bytes.len())).at(&dataset.path));
        }
        let layout = self.write_contiguous(bytes)?;
        self.dataset(id)?.layout = layout;
        Ok(())
    }

    /// Adds the next chunk along the first axis, filtered already; without filters it has its full size.
    pub(crate) fn write_chunk(&mut self, id: DatasetId, stored: &[u8]) -> Result<()> {
        let size = u32::try_from(stored.len()).map_err(|_| Error::unsupported("a chunk of more than 4 GiB"))?;
        let address = self.file.append(stored).map_err(|error| failed(&self.name, error))?;
        let dataset = self.dataset(id)?;
        let Layout::Chunked { places, .. } = &mut dataset.layout else {
            return Err(Error::internal("the dataset has no chunks").at(&dataset.path));
        };
        places.push(ChunkPlace { address, size });
        Ok(())
    }

    /// Sets the size of a dataset that is written by chunks.
    pub(crate) fn set_shape(&mut self, id: DatasetId, shape: &[usize]) -> Result<()> {
        self.dataset(id)?.dataspace = Dataspace::sized(shape, true);
        Ok(())
    }

    /// Removes a group with all that is in it, or a dataset; nothing where there is none. Bytes in the file stay, unused.
    pub(crate) fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        let goes = |other: &String| *other == path || other.starts_with(&below);
        self.groups.retain(|group, _| !goes(group));
        let datasets = &mut self.datasets;
        self.dataset_paths.retain(|dataset, id| {
            if goes(dataset) {
                datasets[id.0] = None;
            }
            !goes(dataset)
        });
    }

    /// Sets an attribute of a group.
    pub(crate) fn set_group_attribute(&mut self, path: &str, name: &str, value: Attribute<'_>) -> Result<()> {
        let attribute = self.hold_attribute(path, name, value)?;
        let attributes = self.groups.get_mut(path).ok_or_else(|| Error::internal("no such group").at(path))?;
        attributes.push(attribute);
        Ok(())
    }

    /// Sets an attribute of a dataset.
    pub(crate) fn set_attribute(&mut self, id: DatasetId, name: &str, value: Attribute<'_>) -> Result<()> {
        let path = self.dataset(id)?.path.clone();
        let attribute = self.hold_attribute(&path, name, value)?;
        self.dataset(id)?.attributes.push(attribute);
        Ok(())
    }

    fn hold_attribute(&mut self, path: &str, name: &str, value: Attribute<'_>) -> Result<HeldAttribute> {
        let place = || format!("attribute {name} of {path}");
        let (stored, bytes, length) = match value {
            Attribute::Text(text) => return self.hold_texts(name, &[text], None).at(place),
            Attribute::Texts(texts) => return self.hold_texts(name, texts, Some(texts.len())).at(place),
            Attribute::Bool(flag) => (StoredType::Bool, vec![flag.into()], None),
            Attribute::Bools(flags) => (StoredType::Bool, stored_bytes(flags), Some(flags.len())),
            Attribute::Number(numbers) => {
                let (stored, mut bytes) = with_numbers!(numbers, |v| stored_elements(v));
                bytes.truncate(stored.size());
                (stored, bytes, None)
            }
            Attribute::Numbers(numbers) => {
                let (stored, bytes) = with_numbers!(numbers, |v| stored_elements(v));
                (stored, bytes, Some(numbers.len()))
            }
        };
        if bytes.len() != length.unwrap_or(1) * stored.size() {
            return Err(Error::internal("an attribute without a value").at(place()));
        }
        let attribute = HeldAttribute {
            name: name.to_string(),
            datatype: Datatype::Plain(stored),
            dataspace: Dataspace::of_list(length),
            values: HeldValues::Bytes(bytes),
        };
        attribute.check_room(stored.size()).at(place)?;
        Ok(attribute)
    }

    fn hold_texts(&mut self, name: &str, texts: &[&str], length: Option<usize>) -> Result<HeldAttribute> {
        let mut references = Vec::with_capacity(texts.len());
        for text in texts {
            let reference = self.texts_of_attributes.add(text, &mut self.file);
            references.push(reference.map_err(|error| failed(&self.name, error))?);
        }
        let attribute = HeldAttribute {
            name: name.to_string(),
            datatype: Datatype::Plain(StoredType::Text),
            dataspace: Dataspace::of_list(length),
            values: HeldValues::Texts(references),
        };
        attribute.check_room(StoredType::Text.size())?;
        Ok(attribute)
    }

    /// Writes what describes the datasets, and the superblock. The file reaches the disk only when somebody asks for that.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.write_structure().map_err(|error| failed(&self.name, error))
    }

    fn write_structure(&mut self) -> std::io::Result<()> {
        let mut texts = std::mem::take(&mut self.texts_of_attributes);
        texts.flush(&mut self.file)?;
        // For each group what is in it, by name.
        let mut members: BTreeMap<String, Vec<(String, GroupMember)>> = BTreeMap::new();
        for dataset in std::mem::take(&mut self.datasets).into_iter().flatten() {
            let header = self.write_dataset(&dataset, &texts)?;
            let (parent, name) = parent_and_name(&dataset.path);
            members
                .entry(parent.to_string())
                .or_default()
                .push((name.to_string(), GroupMember { header, index: None }));
        }
        // Groups sort behind those that they are in, so backwards every group comes before its parent.
        let mut root = None;
        for (path, attributes) in std::mem::take(&mut self.groups).into_iter().rev() {
            let mut inside = members.remove(&path).unwrap_or_default();
            inside.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
            let index = groups::write(&mut self.file, &inside)?;
            let mut messages = vec![Message::symbol_table(index)];
            messages.extend(attributes.iter().map(|attribute| attribute.message(&texts)));
            let header = self.file.append(&header::encode(&messages))?;
            let member = GroupMember { header, index: Some(index) };
            if path.is_empty() {
                root = Some(member);
            } else {
                let (parent, name) = parent_and_name(&path);
                members.entry(parent.to_string()).or_default().push((name.to_string(), member));
            }
        }
        let Some(root) = root else { return Ok(()) };
        let superblock = header::superblock(self.file.end, &root);
        self.file.file.seek(SeekFrom::Start(0))?;
        self.file.file.write_all(&superblock)?;
        self.file.file.flush()
    }

    fn write_dataset(&mut self, dataset: &Dataset, texts: &TextHeap) -> std::io::Result<u64> {
        let mut messages = vec![
            Message::dataspace(&dataset.dataspace),
            Message::datatype(&dataset.datatype),
            Message::fill_value(&dataset.datatype, matches!(dataset.layout, Layout::Chunked { .. })),
        ];
        match &dataset.layout {
            Layout::Nothing => messages.push(Message::contiguous(NOWHERE, 0)),
            Layout::Contiguous(address, bytes) => messages.push(Message::contiguous(*address, *bytes)),
            Layout::Chunked { chunk, filters, places } => {
                let element_size = dataset.datatype.size();
                let index = index::write_chunk_index(&mut self.file, places, chunk, element_size)?;
                messages.push(Message::chunked(index, chunk, element_size));
                messages.extend(Message::filters(*filters, element_size));
            }
        }
        messages.extend(dataset.attributes.iter().map(|attribute| attribute.message(texts)));
        self.file.append(&header::encode(&messages))
    }
}

/// Something in a group: where its header is, and for groups where their index is.
struct GroupMember {
    header: u64,
    index: Option<GroupIndex>,
}

impl HeldAttribute {
    fn message(&self, texts: &TextHeap) -> Message {
        let bytes = match &self.values {
            HeldValues::Bytes(bytes) => bytes.clone(),
            HeldValues::Texts(references) => references.iter().flat_map(|at| texts.encode(*at)).collect(),
        };
        Message::attribute(&self.name, &self.datatype, &self.dataspace, &bytes)
    }

    /// Refuses what an attribute has no room for.
    fn check_room(&self, element_size: usize) -> Result<()> {
        let n_values = self.dataspace.n_elements();
        let head = Message::attribute(&self.name, &self.datatype, &self.dataspace, &[]).size();
        let room = header::LARGEST_MESSAGE.saturating_sub(head) / element_size;
        if n_values > room {
            return Err(Error::unsupported(format!("{n_values} values; an HDF5 attribute has room for {room}")));
        }
        Ok(())
    }
}

fn stored_elements<T: Element>(values: &[T]) -> (StoredType, Vec<u8>) {
    (T::STORED, stored_bytes(values))
}

fn failed(name: &str, error: std::io::Error) -> Error {
    Error::system(format!("can't write {name}")).with_source(error)
}
