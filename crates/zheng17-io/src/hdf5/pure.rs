//! HDF5 through the crate `hdf5-reader`, which needs no C library. The only file that names it.
//!
//! It finds objects, attributes, chunks and texts in the heap; chunks are read, kept and decoded here, so that a range costs
//! what it holds. It is laxer than libhdf5, so the length of the file is checked against what the superblock says.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hdf5_reader::attribute_api::Attribute as StoredAttribute;
use hdf5_reader::error::Error as ReaderError;
use hdf5_reader::group::Group;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::datatype::{Datatype, StringPadding, StringSize, VarLenKind};
use hdf5_reader::messages::filter_pipeline::FilterDescription;
use hdf5_reader::messages::layout::{ChunkIndexing, DataLayout};
use hdf5_reader::messages::link::LinkTarget;
use hdf5_reader::{ByteOrder, Dataset, FileStorage, FilterRegistry, Hdf5File as Reader, Storage as _, StorageBuffer};
use zheng17_core::error::ResultExt as _;
use zheng17_core::{Error, Result};

use super::chunks::{Chunks, StoredChunk};
use super::elements::{Element, Field};
use super::filters::{self, Filter};
use super::{Array, Attribute, DatasetInfo, Hdf5Dataset, Hdf5File, NamedAttribute, NodeKind};

/// An address that means "nowhere", in files with 8-byte addresses and fewer.
fn is_nowhere(address: u64, offset_size: u8) -> bool {
    hdf5_reader::io::Cursor::is_undefined_offset(address, offset_size)
}

/// The reader's error without the paths that it adds; whoever asked names the place.
fn from_reader(mut error: ReaderError) -> Error {
    while let ReaderError::Context { source, .. } = error {
        error = *source;
    }
    let what = "the HDF5 structure can't be read";
    match error {
        ReaderError::Io(cause) => Error::system(what).with_source(cause),
        other => Error::input(what).with_source(other),
    }
}

/// Whether nothing stands at the path that was asked for; so it is with links that lead nowhere.
fn is_missing(mut error: &ReaderError) -> bool {
    while let ReaderError::Context { source, .. } = error {
        error = source;
    }
    matches!(error, ReaderError::GroupNotFound(_) | ReaderError::DatasetNotFound(_))
}

pub(super) struct PureFile {
    storage: Arc<FileStorage>,
    reader: Reader,
}

impl PureFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let storage = Arc::new(FileStorage::open(path).map_err(from_reader)?);
        let length = storage.len();
        let reader = Reader::from_storage(storage.clone()).map_err(from_reader)?;
        let end = reader.superblock().eof_address;
        if !is_nowhere(end, reader.superblock().offset_size) && length < end {
            return Err(Error::input(format!("truncated: {length} of {end} bytes")));
        }
        Ok(Self { storage, reader })
    }

    fn group(&self, path: &str) -> Result<Group> {
        self.reader.group(path).map_err(from_reader).at(|| place(path))
    }

    fn stored_attributes(&self, path: &str) -> Result<Vec<StoredAttribute>> {
        match self.kind(path)? {
            Some(NodeKind::Group) => self.group(path)?.attributes().map_err(from_reader),
            Some(NodeKind::Dataset) => Ok(self.reader.dataset(path).map_err(from_reader)?.attributes()),
            None => Err(Error::input("there is no such group or dataset")),
        }
    }

    fn decode_attribute(&self, attribute: StoredAttribute) -> Result<Array> {
        if let Some(texts) = attribute.decoded_strings {
            return Ok(Array::Strings(texts));
        }
        let element = element(&attribute.datatype, self.reader.superblock().offset_size);
        let count = attribute.shape.iter().try_fold(1_u64, |product, &length| product.checked_mul(length));
        let bytes = count.and_then(|count| count.checked_mul(element.size() as u64));
        let raw = match bytes {
            Some(bytes) if bytes <= attribute.raw_data.len() as u64 => &attribute.raw_data[..bytes as usize],
            _ => return Err(Error::input(format!("attribute {:?} is shorter than it should be", attribute.name))),
        };
        element.decode(raw, &|_| Err(Error::input("text without a place in the file's heap")))
    }

    /// Whether a path is a link to another file. Groups of so many children that their links stand outside the header are
    /// not looked through.
    fn links_elsewhere(&self, path: &str) -> bool {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let header = self.reader.group(parent).and_then(|group| self.reader.get_or_parse_header(group.address()));
        header.is_ok_and(|header| {
            header.messages.iter().any(|message| match message {
                HdfMessage::Link(link) => link.name == name && matches!(link.target, LinkTarget::External { .. }),
                _ => false,
            })
        })
    }
}

fn place(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

fn link_elsewhere() -> Error {
    Error::unsupported("it is a link to another file")
}

impl Hdf5File for PureFile {
    fn children(&self, group: &str) -> Result<Vec<String>> {
        let (mut names, datasets) = self.group(group)?.member_names().map_err(from_reader).at(|| place(group))?;
        names.extend(datasets);
        names.sort_unstable();
        Ok(names)
    }

    fn group_address(&self, group: &str) -> Result<u64> {
        Ok(self.group(group)?.address())
    }

    fn kind(&self, path: &str) -> Result<Option<NodeKind>> {
        if path.is_empty() {
            return Ok(Some(NodeKind::Group));
        }
        match self.reader.group(path) {
            Ok(_) => return Ok(Some(NodeKind::Group)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(from_reader(error).at(path)),
        }
        match self.reader.dataset(path) {
            Ok(_) => Ok(Some(NodeKind::Dataset)),
            Err(error) if is_missing(&error) && self.links_elsewhere(path) => Err(link_elsewhere().at(path)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(from_reader(error).at(path)),
        }
    }

    fn attribute(&self, path: &str, name: &str) -> Result<Option<Attribute>> {
        let read = || {
            let found = self.stored_attributes(path)?.into_iter().find(|attribute| attribute.name == name);
            found.map(|attribute| Ok(Attribute { values: self.decode_attribute(attribute)? })).transpose()
        };
        read().at(|| place(path))
    }

    fn attributes(&self, path: &str) -> Result<Vec<NamedAttribute>> {
        let read = || {
            let decode = |attribute: StoredAttribute| {
                Ok(NamedAttribute {
                    name: attribute.name.clone(),
                    shape: attribute.shape.clone(),
                    values: self.decode_attribute(attribute)?,
                })
            };
            self.stored_attributes(path)?.into_iter().map(decode).collect::<Result<Vec<_>>>()
        };
        read().at(|| place(path))
    }

    fn dataset(&self, path: &str) -> Result<Arc<dyn Hdf5Dataset>> {
        let open = || {
            let dataset = self.reader.dataset(path).map_err(|error| match error {
                error if is_missing(&error) && self.links_elsewhere(path) => link_elsewhere(),
                error if is_missing(&error) => Error::input("there is no such dataset"),
                error => from_reader(error),
            })?;
            PureDataset::open(self, dataset, path)
        };
        Ok(Arc::new(open().at(|| path)?))
    }
}

enum Place {
    /// In the header itself.
    Compact(Vec<u8>),
    Contiguous(u64),
    Chunked(Chunks),
    /// Nothing was written: the fill value everywhere.
    Unwritten(Vec<u8>),
}

/// A dataset keeps the file open, but nothing that was parsed, unless its texts stand in the file's heap.
struct PureDataset {
    info: DatasetInfo,
    storage: Arc<FileStorage>,
    /// Where the addresses of the file count from.
    base: u64,
    heap: Option<Dataset>,
    element: Element,
    row_bytes: u64,
    place: Place,
    filters: Vec<FilterDescription>,
    other_filters: FilterRegistry,
}

impl PureDataset {
    fn open(file: &PureFile, dataset: Dataset, path: &str) -> Result<Self> {
        let reader = &file.reader;
        let superblock = reader.superblock();
        let header = reader.get_or_parse_header(dataset.address()).map_err(from_reader)?;
        let mut layout = None;
        let mut filters = Vec::new();
        for message in &header.messages {
            match message {
                HdfMessage::DataLayout(found) => layout = Some(&found.layout),
                HdfMessage::FilterPipeline(found) => filters.clone_from(&found.filters),
                HdfMessage::ExternalFiles(_) => {
                    return Err(Error::unsupported("its values are in another file"));
                }
                _ => {}
            }
        }
        let element = element(dataset.dtype(), superblock.offset_size);
        let element_size = element.size();
        if element_size == 0 {
            return Err(Error::input("elements of no bytes"));
        }
        let shape = dataset.shape().to_vec();
        let n_elements = dataset.num_elements().map_err(from_reader)?;
        let n_bytes = n_elements
            .checked_mul(element_size as u64)
            .ok_or_else(|| Error::input("more bytes than a file can have"))?;
        let fill = match dataset.fill_value().and_then(|fill| fill.value.clone()) {
            Some(value) if value.len() == element_size => value,
            _ => vec![0; element_size],
        };
        let mut chunk_shape = None;
        let place = match layout.ok_or_else(|| Error::input("dataset without a layout"))? {
            DataLayout::Compact { data } if data.len() as u64 >= n_bytes => Place::Compact(data.clone()),
            DataLayout::Contiguous { address, .. } if is_nowhere(*address, superblock.offset_size) => {
                Place::Unwritten(fill)
            }
            DataLayout::Contiguous { size: 0, .. } => Place::Unwritten(fill),
            DataLayout::Contiguous { address, size } if *size >= n_bytes => Place::Contiguous(*address),
            DataLayout::Compact { .. } | DataLayout::Contiguous { .. } => {
                return Err(Error::input(format!("fewer bytes are stored than its {n_elements} elements need")));
            }
            DataLayout::Chunked { address, dims, chunk_indexing, .. } => {
                // Old layouts list the element size behind the chunk's dimensions.
                let dims = dims.get(..shape.len()).ok_or_else(|| Error::input("chunks with too few dimensions"))?;
                let sizes: Vec<u64> = dims.iter().map(|&length| u64::from(length)).collect();
                let found = if is_nowhere(*address, superblock.offset_size) || dims.contains(&0) {
                    Vec::new()
                } else {
                    find_chunks(reader, &dataset, *address, dims, chunk_indexing.as_ref(), element_size)
                        .map_err(from_reader)?
                };
                let chunks = Chunks::new(&shape, &sizes, element_size, fill, found)?;
                chunk_shape = Some(sizes);
                Place::Chunked(chunks)
            }
        };
        let info = DatasetInfo {
            path: path.to_owned(),
            shape,
            type_name: element.name(),
            element_size,
            chunk_shape,
            filters: filters.iter().map(|filter| filters::name(filter.id)).collect(),
        };
        Ok(Self {
            storage: file.storage.clone(),
            base: superblock.base_address,
            heap: element.is_in_heap().then_some(dataset),
            row_bytes: n_bytes / info.n_rows().max(1),
            info,
            element,
            place,
            filters,
            other_filters: FilterRegistry::new(),
        })
    }

    fn bytes(&self, rows: Range<u64>) -> Result<StorageBuffer> {
        let range = rows.start * self.row_bytes..rows.end * self.row_bytes;
        let owned = match &self.place {
            Place::Compact(data) => data[range.start as usize..range.end as usize].to_vec(),
            Place::Contiguous(address) => {
                return self.fetch(address.saturating_add(range.start), range.end - range.start);
            }
            Place::Unwritten(fill) => {
                let count = (range.end - range.start) / fill.len().max(1) as u64;
                if count > 1 << 24 {
                    return Err(Error::input(format!("its {count} elements were never written")));
                }
                fill.repeat(count as usize)
            }
            Place::Chunked(chunks) => chunks.read(rows, &|chunk| self.decode_chunk(chunks, chunk))?,
        };
        Ok(StorageBuffer::from_vec(owned))
    }

    fn fetch(&self, address: u64, length: u64) -> Result<StorageBuffer> {
        self.storage.read_range(address.saturating_add(self.base), length as usize).map_err(from_reader)
    }

    fn decode_chunk(&self, chunks: &Chunks, chunk: &StoredChunk) -> Result<Vec<u8>> {
        let expected = chunks.chunk_bytes()?;
        let size = if chunk.size == 0 { expected as u64 } else { chunk.size };
        let stored = self.fetch(chunk.address, size)?;
        // The index of chunks has a checksum only in some layouts, and then the library does not look at it everywhere.
        if self.filters.len() < 32 && chunk.filter_mask >> self.filters.len() != 0 {
            return Err(Error::input("it leaves out filters that there are not"));
        }
        let mut undone: Option<Vec<u8>> = None;
        for (at, description) in self.filters.iter().enumerate().rev() {
            if at < 32 && chunk.filter_mask >> at & 1 == 1 {
                continue;
            }
            // What an earlier filter made may be a little larger than the chunk: a checksum, data that did not compress.
            let limit = if at == 0 { expected } else { expected + expected / 8 + 4096 };
            let filter = Filter { id: description.id, parameters: description.client_data.clone() };
            let bytes = undone.as_deref().unwrap_or(&stored);
            undone = Some(if filters::is_known(filter.id) {
                filters::undo(&filter, bytes, self.element.size(), limit)?
            } else {
                self.other_filters.apply_with_limit(description, bytes, self.element.size(), Some(limit)).map_err(
                    |error| match error {
                        ReaderError::UnsupportedFilter(_) => {
                            Error::unsupported(format!("{} can't be read by this program", filters::name(filter.id)))
                        }
                        error => from_reader(error),
                    },
                )?
            });
        }
        Ok(undone.unwrap_or_else(|| stored.to_vec()))
    }
}

impl Hdf5Dataset for PureDataset {
    fn info(&self) -> &DatasetInfo {
        &self.info
    }

    fn read(&self, rows: Range<u64>) -> Result<Array> {
        let read = || {
            if rows.start > rows.end || rows.end > self.info.n_rows() {
                return Err(Error::internal(format!(
                    "rows {}..{} of {} were asked for",
                    rows.start,
                    rows.end,
                    self.info.n_rows()
                )));
            }
            let raw = self.bytes(rows.clone())?;
            self.element.decode(&raw, &|reference| match &self.heap {
                Some(dataset) => dataset.resolve_vlen_reference_bytes(reference, 1).map_err(from_reader),
                None => Err(Error::internal("a text in the heap of a dataset without one")),
            })
        };
        read().at(|| &self.info.path)
    }

    fn check_written(&self) -> Result<()> {
        match &self.place {
            Place::Compact(_) | Place::Contiguous(_) => Ok(()),
            Place::Unwritten(_) if self.info.shape.contains(&0) => Ok(()),
            Place::Unwritten(_) => Err(Error::input("its values were never written")),
            Place::Chunked(chunks) => chunks.check_written(),
        }
        .at(|| &self.info.path)
    }
}

fn find_chunks(
    reader: &Reader,
    dataset: &Dataset,
    address: u64,
    dims: &[u32],
    indexing: Option<&ChunkIndexing>,
    element_size: usize,
) -> Result<Vec<(Vec<u64>, StoredChunk)>, ReaderError> {
    let storage = reader.storage();
    let (offset_size, length_size) = (reader.superblock().offset_size, reader.superblock().length_size);
    let shape = dataset.shape();
    let n_dims = shape.len();
    let found = match indexing {
        None => {
            let n_dims_32 = Some(n_dims as u32);
            let leaves = hdf5_reader::btree_v1::collect_btree_v1_leaves_storage(
                storage,
                address,
                offset_size,
                length_size,
                n_dims_32,
                dims,
                None,
            )?;
            let mut chunks = Vec::with_capacity(leaves.len());
            for (key, address) in leaves {
                let hdf5_reader::btree_v1::BTreeV1Key::RawData { chunk_size, filter_mask, mut offsets } = key else {
                    return Err(ReaderError::InvalidData("the index of chunks holds something else".to_owned()));
                };
                offsets.truncate(n_dims);
                chunks.push((offsets, StoredChunk { address, size: u64::from(chunk_size), filter_mask }));
            }
            return if chunks.iter().all(|chunk| chunk.0.len() == n_dims) {
                Ok(chunks)
            } else {
                Err(ReaderError::InvalidData("the index of chunks has too few dimensions".to_owned()))
            };
        }
        Some(ChunkIndexing::SingleChunk { filtered_size, filters }) => {
            vec![hdf5_reader::chunk_index::single_chunk_entry(address, *filtered_size, *filters, n_dims)]
        }
        Some(ChunkIndexing::Implicit) => hdf5_reader::chunk_index::collect_implicit_chunk_entries(
            address,
            shape,
            dims,
            element_size,
            None,
            storage.len(),
        )?,
        Some(ChunkIndexing::FixedArray { .. }) => hdf5_reader::fixed_array::collect_fixed_array_chunk_entries_storage(
            storage,
            address,
            offset_size,
            length_size,
            shape,
            dims,
            None,
        )?,
        Some(ChunkIndexing::ExtensibleArray { .. }) => {
            hdf5_reader::extensible_array::collect_extensible_array_chunk_entries_storage(
                storage,
                address,
                offset_size,
                length_size,
                shape,
                dataset.max_dims(),
                dims,
                None,
            )?
        }
        Some(ChunkIndexing::BTreeV2) => hdf5_reader::chunk_index::collect_v2_chunk_entries_storage(
            storage,
            address,
            offset_size,
            length_size,
            n_dims as u32,
            dims,
            None,
        )?,
    };
    Ok(found
        .into_iter()
        .filter(|chunk| chunk.offsets.len() == n_dims)
        .map(|chunk| {
            (chunk.offsets, StoredChunk { address: chunk.address, size: chunk.size, filter_mask: chunk.filter_mask })
        })
        .collect())
}

fn element(datatype: &Datatype, offset_size: u8) -> Element {
    let big_endian = |order: &ByteOrder| *order == ByteOrder::BigEndian;
    let reference_size = 4 + usize::from(offset_size) + 4;
    match datatype {
        Datatype::FixedPoint { size, signed, byte_order } => {
            Element::Integer { size: usize::from(*size), signed: *signed, big_endian: big_endian(byte_order) }
        }
        Datatype::FloatingPoint { size, byte_order } => {
            Element::Float { size: usize::from(*size), big_endian: big_endian(byte_order) }
        }
        Datatype::String { size: StringSize::Fixed(size), padding, .. } => {
            Element::FixedText { size: *size as usize, spaces: *padding == StringPadding::SpacePad }
        }
        Datatype::String { size: StringSize::Variable, .. } | Datatype::VarLen { kind: VarLenKind::String, .. } => {
            Element::VariableText { size: reference_size }
        }
        Datatype::Enum { base, members } => {
            let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
            match element(base, offset_size) {
                Element::Integer { size: 1, .. } if names.len() == 2 && names.contains(&"TRUE") => Element::Bool,
                base => base,
            }
        }
        Datatype::Bitfield { size: 1, .. } => Element::Bool,
        Datatype::Compound { size, fields } => Element::Record {
            size: *size as usize,
            fields: fields
                .iter()
                .map(|field| Field {
                    name: field.name.clone(),
                    offset: field.byte_offset as usize,
                    element: element(&field.datatype, offset_size),
                })
                .collect(),
        },
        Datatype::Array { base, dims } => {
            let count = dims.iter().try_fold(1_usize, |product, &length| product.checked_mul(length as usize));
            let size = count.and_then(|count| count.checked_mul(element(base, offset_size).size()));
            // A size that overflows is beyond any record, which is then refused.
            Element::Other { size: size.unwrap_or(usize::MAX / 2), name: "nested arrays".to_owned() }
        }
        Datatype::VarLen { .. } => Element::Other { size: reference_size, name: "lists of any length".to_owned() },
        Datatype::Reference { size, .. } => Element::Other { size: usize::from(*size), name: "references".to_owned() },
        Datatype::Opaque { size, .. } => Element::Other { size: *size as usize, name: "opaque bytes".to_owned() },
        Datatype::Bitfield { size, .. } => Element::Other { size: usize::from(*size), name: "bit fields".to_owned() },
    }
}
