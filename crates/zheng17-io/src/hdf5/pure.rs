//! HDF5 through the crate `hdf5-reader`, which needs no C library. Only this file and `chunk_index` name it.
//!
//! It finds objects, attributes, chunks and texts in the heap; chunks are read by position, kept and decoded by this crate, so
//! that a range costs what it holds. It is laxer than libhdf5, so the length of the file is checked against what the superblock says.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use hdf5_reader::attribute_api::Attribute as StoredAttribute;
use hdf5_reader::error::Error as ReaderError;
use hdf5_reader::group::Group;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::datatype::{Datatype, StringPadding, StringSize, VarLenKind};
use hdf5_reader::messages::filter_pipeline::FilterDescription;
use hdf5_reader::messages::layout::DataLayout;
use hdf5_reader::messages::link::LinkTarget;
use hdf5_reader::{ByteOrder, Dataset, FileStorage, FilterRegistry, Hdf5File as Reader};
use zheng17_core::error::ResultExt as _;
use zheng17_core::{Error, Result, Values};

use super::chunk_index::find_chunks;
use super::chunks::{ChunkPart, Chunks, StoredChunk};
use super::elements::{Element, Field};
use super::filters::{self, Filter};
use super::kept::{KEPT_BYTES, KeptChunks};
use super::numbers::{self, StoredNumbers};
use super::pipeline::{Pipeline, Scratch, ScratchPool};
use super::{Array, Attribute, DatasetInfo, Hdf5Dataset, Hdf5File, NamedAttribute, NodeKind, pieces};

/// Elements of a dataset without chunks or filters that are read at once.
const PLAIN_PIECE: u64 = 1 << 16;

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
    bytes: Arc<FileBytes>,
    reader: Reader,
}

/// The bytes of a file by their positions.
struct FileBytes {
    file: File,
    length: u64,
    /// Where the addresses of the file count from.
    base: u64,
}

impl FileBytes {
    /// Replaces what `out` holds by the bytes at an address.
    fn read(&self, address: u64, length: u64, out: &mut Vec<u8>) -> Result<()> {
        let start = address.saturating_add(self.base);
        let available = self.length.saturating_sub(start);
        if length > available {
            return Err(from_reader(ReaderError::UnexpectedEof { offset: start, needed: length, available }));
        }
        out.resize(length as usize, 0);
        self.file.read_exact_at(out, start).map_err(|error| from_reader(ReaderError::Io(error)))
    }
}

impl PureFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let io = |error| from_reader(ReaderError::Io(error));
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let storage = FileStorage::from_file(file.try_clone().map_err(io)?).map_err(from_reader)?;
        let reader = Reader::from_storage(Arc::new(storage)).map_err(from_reader)?;
        let end = reader.superblock().eof_address;
        if !is_nowhere(end, reader.superblock().offset_size) && length < end {
            return Err(Error::input(format!("truncated: {length} of {end} bytes")));
        }
        let base = reader.superblock().base_address;
        Ok(Self { bytes: Arc::new(FileBytes { file, length, base }), reader })
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
    file: Arc<FileBytes>,
    heap: Option<Dataset>,
    element: Element,
    row_bytes: u64,
    place: Place,
    pipeline: Pipeline,
    other_filters: FilterRegistry,
    scratch: ScratchPool,
    /// Chunks of numbers of which a part was wanted. A shuffle as in [`Pipeline::is_shuffled_first`] is left.
    kept: KeptChunks,
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
            file: file.bytes.clone(),
            heap: element.is_in_heap().then_some(dataset),
            row_bytes: n_bytes / info.n_rows().max(1),
            info,
            element,
            place,
            pipeline: Pipeline::new(
                filters.into_iter().map(|filter| Filter { id: filter.id, parameters: filter.client_data }).collect(),
                element_size,
            ),
            other_filters: FilterRegistry::new(),
            scratch: ScratchPool::default(),
            kept: KeptChunks::default(),
        })
    }

    fn bytes(&self, rows: Range<u64>) -> Result<Vec<u8>> {
        let range = rows.start * self.row_bytes..rows.end * self.row_bytes;
        Ok(match &self.place {
            Place::Compact(data) => data[range.start as usize..range.end as usize].to_vec(),
            Place::Contiguous(address) => {
                let mut bytes = Vec::new();
                self.file.read(address.saturating_add(range.start), range.end - range.start, &mut bytes)?;
                bytes
            }
            Place::Unwritten(fill) => {
                let count = (range.end - range.start) / fill.len().max(1) as u64;
                if count > 1 << 24 {
                    return Err(Error::input(format!("its {count} elements were never written")));
                }
                fill.repeat(count as usize)
            }
            Place::Chunked(chunks) => chunks.read(rows, &|chunk| {
                self.scratch.with(|scratch| {
                    self.decode(chunks, chunk, false, scratch)?;
                    Ok(std::mem::take(&mut scratch.undone))
                })
            })?,
        })
    }

    /// Reads a chunk and undoes its filters, but with `leave_planes` not a shuffle that was applied first.
    fn decode(&self, chunks: &Chunks, chunk: &StoredChunk, leave_planes: bool, scratch: &mut Scratch) -> Result<()> {
        let expected = chunks.chunk_bytes()?;
        let size = if chunk.size == 0 { expected as u64 } else { chunk.size };
        self.file.read(chunk.address, size, &mut scratch.stored)?;
        self.pipeline.undo(chunk.filter_mask, expected, leave_planes, scratch, &|filter, bytes, limit| {
            let description = FilterDescription { id: filter.id, name: None, client_data: filter.parameters.clone() };
            self.other_filters.apply_with_limit(&description, bytes, self.element.size(), Some(limit)).map_err(
                |error| match error {
                    ReaderError::UnsupportedFilter(_) => {
                        Error::unsupported(format!("{} can't be read by this program", filters::name(filter.id)))
                    }
                    error => from_reader(error),
                },
            )
        })
    }

    /// Visits consecutive numbers as they are stored, each piece with the position of its first. `None` where the piece can't
    /// be had so.
    fn visit_numbers(&self, rows: Range<u64>, visit: &mut VisitNumbers<'_>) -> Result<()> {
        let n_rows = self.info.n_rows();
        if rows.start > rows.end || rows.end > n_rows {
            return visit(rows, None);
        }
        match &self.place {
            Place::Contiguous(address) if self.info.shape.len() == 1 => {
                let first = address.saturating_add(rows.start * self.row_bytes);
                self.scratch.with(|scratch| self.visit_plain(first, rows, scratch, visit))
            }
            Place::Chunked(chunks) => match chunks.parts(rows.clone()) {
                Some(mut parts) => parts.try_for_each(|part| self.visit_part(chunks, part, visit)),
                None => visit(rows, None),
            },
            _ => visit(rows, None),
        }
    }

    /// Visits numbers that stand in the file as they are, the first at an address.
    fn visit_plain(
        &self,
        first: u64,
        rows: Range<u64>,
        scratch: &mut Scratch,
        visit: &mut VisitNumbers<'_>,
    ) -> Result<()> {
        let size = self.element.size() as u64;
        for piece in pieces(rows.clone(), PLAIN_PIECE) {
            let n = piece.end - piece.start;
            let address = first.saturating_add((piece.start - rows.start) * size);
            self.file.read(address, n * size, &mut scratch.stored)?;
            visit(piece, Some(StoredNumbers { bytes: &scratch.stored, shuffled: false, wanted: 0..n as usize }))?;
        }
        Ok(())
    }

    /// Visits the numbers of a part of a chunk. Chunks that are wanted whole are decoded in scratch memory and not kept.
    fn visit_part(&self, chunks: &Chunks, part: ChunkPart<'_>, visit: &mut VisitNumbers<'_>) -> Result<()> {
        let Some(place) = part.place else { return visit(part.rows, None) };
        let mask = place.filter_mask;
        let size = chunks.chunk_bytes()?;
        if self.pipeline.is_plain(mask) && [0, size as u64].contains(&place.size) {
            let first = place.address.saturating_add((part.within.start * self.element.size()) as u64);
            return self.scratch.with(|scratch| self.visit_plain(first, part.rows, scratch, visit));
        }
        let shuffled = self.pipeline.is_shuffled_first(mask);
        let decode = |scratch: &mut Scratch| {
            let decoded = self.decode(chunks, place, true, scratch);
            chunks.checked(part.wanted.chunk, decoded.map(|()| &scratch.undone)).map(|_| ())
        };
        let is_whole = part.wanted.elements == part.wanted.of && size <= KEPT_BYTES;
        let kept = match self.kept.get(part.wanted) {
            None if is_whole => None,
            None => Some(self.kept.get_or_decode(part.wanted, size, || {
                self.scratch.with(|scratch| {
                    decode(scratch)?;
                    Ok(std::mem::take(&mut scratch.undone))
                })
            })?),
            kept => kept,
        };
        let mut visit_bytes = |bytes: &[u8]| {
            visit(part.rows.clone(), Some(StoredNumbers { bytes, shuffled, wanted: part.within.clone() }))
        };
        match kept {
            Some(bytes) => visit_bytes(&bytes),
            None => self.scratch.with(|scratch| {
                decode(scratch)?;
                visit_bytes(&scratch.undone)
            }),
        }
    }
}

/// Takes a piece of numbers: their positions, and what is stored.
type VisitNumbers<'a> = dyn FnMut(Range<u64>, Option<StoredNumbers<'_>>) -> Result<()> + 'a;

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

    fn append_indices(&self, rows: Range<u64>, out: &mut Vec<u32>) -> Result<()> {
        self.visit_numbers(rows, &mut |rows, stored| match stored {
            Some(stored) => numbers::append_indices(&stored, &self.element, rows.start, out),
            None => super::append_indices(self, rows, out),
        })
        .at(|| &self.info.path)
    }

    fn append_values(&self, rows: Range<u64>, out: &mut Values) -> Result<()> {
        self.visit_numbers(rows, &mut |rows, stored| match stored {
            Some(stored) => numbers::append_values(&stored, &self.element, out),
            None => super::append_values(self, rows, out),
        })
        .at(|| &self.info.path)
    }

    fn keep_up_to(&self, bytes: usize) -> bool {
        if let Place::Chunked(chunks) = &self.place {
            chunks.keep_up_to(bytes);
        }
        true
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
