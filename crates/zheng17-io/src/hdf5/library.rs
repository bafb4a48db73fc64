//! HDF5 through the system's libhdf5, for those who trust only it. The only file that names `zheng17-libhdf5`.
//!
//! The library reads everything, one call at a time; filters that it lacks are undone by this crate's own code.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use zheng17_core::error::ResultExt as _;
use zheng17_core::{Error, Result};
use zheng17_libhdf5::{Dataset, File, Kind, Other, Type, Values};

use super::elements::{Element, Field};
use super::filters::{self, Filter};
use super::{Array, Attribute, DatasetInfo, Hdf5Dataset, Hdf5File, NamedAttribute, NodeKind};

/// A filter of this crate, by its number.
struct Ours<const NUMBER: u16>;

impl<const NUMBER: u16> zheng17_libhdf5::Filter for Ours<NUMBER> {
    const NUMBER: u16 = NUMBER;

    fn undo(parameters: &[u32], stored: &[u8], limit: usize) -> Option<Vec<u8>> {
        let filter = Filter { id: NUMBER, parameters: parameters.to_vec() };
        // The library says only that a filter failed. The size of an element matters to none of these.
        filters::undo(&filter, stored, 1, limit).ok()
    }
}

pub(super) struct LibraryFile(File);

impl LibraryFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        zheng17_libhdf5::register::<Ours<{ filters::LZF }>>()?;
        zheng17_libhdf5::register::<Ours<{ filters::BLOSC }>>()?;
        zheng17_libhdf5::register::<Ours<{ filters::LZ4 }>>()?;
        zheng17_libhdf5::register::<Ours<{ filters::ZSTD }>>()?;
        Ok(Self(File::open(path)?))
    }

    fn named_attribute(&self, path: &str, name: &str) -> Result<Option<NamedAttribute>> {
        let Some(attribute) = self.0.attribute(path, name)? else { return Ok(None) };
        let values = decode(&element(&attribute.element), &attribute.values)?;
        Ok(Some(NamedAttribute { name: name.to_owned(), shape: attribute.shape, values }))
    }
}

fn place(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

impl Hdf5File for LibraryFile {
    fn children(&self, group: &str) -> Result<Vec<String>> {
        self.0.children(group).at(|| place(group))
    }

    fn group_address(&self, group: &str) -> Result<u64> {
        self.0.address(group).at(|| place(group))
    }

    fn kind(&self, path: &str) -> Result<Option<NodeKind>> {
        let kind = self.0.kind(path).at(|| place(path))?;
        Ok(kind.map(|kind| match kind {
            Kind::Group => NodeKind::Group,
            Kind::Dataset => NodeKind::Dataset,
        }))
    }

    fn attribute(&self, path: &str, name: &str) -> Result<Option<Attribute>> {
        let found = self.named_attribute(path, name).at(|| place(path))?;
        Ok(found.map(|attribute| Attribute { values: attribute.values }))
    }

    fn attributes(&self, path: &str) -> Result<Vec<NamedAttribute>> {
        let read = || {
            let names = self.0.attribute_names(path)?;
            names.iter().filter_map(|name| self.named_attribute(path, name).transpose()).collect::<Result<Vec<_>>>()
        };
        read().at(|| place(path))
    }

    fn dataset(&self, path: &str) -> Result<Arc<dyn Hdf5Dataset>> {
        let dataset = self.0.dataset(path).at(|| path)?;
        if let Some(chunk_shape) = dataset.chunk_shape()
            && !(1..=2).contains(&chunk_shape.len())
        {
            // The library could; but what a file holds must not depend on how this program was built.
            let n = chunk_shape.len();
            let error = Error::unsupported(format!("{n} dimensions in chunks of {n}; at most 2 can be read"));
            return Err(error.at(path));
        }
        let element = element(dataset.element());
        let info = DatasetInfo {
            path: path.to_owned(),
            shape: dataset.shape().to_vec(),
            type_name: element.name(),
            element_size: element.size(),
            chunk_shape: dataset.chunk_shape().map(<[u64]>::to_vec),
            filters: dataset.filters().iter().map(|&number| filters::name(number)).collect(),
        };
        Ok(Arc::new(LibraryDataset { dataset, element, info }))
    }
}

struct LibraryDataset {
    dataset: Dataset,
    element: Element,
    info: DatasetInfo,
}

impl Hdf5Dataset for LibraryDataset {
    fn info(&self) -> &DatasetInfo {
        &self.info
    }

    fn read(&self, rows: Range<u64>) -> Result<Array> {
        let read = || match self.dataset.read(rows) {
            Ok(values) => decode(&self.element, &values),
            Err(error) => {
                let mut numbers = self.dataset.filters().iter();
                match numbers.find(|&&number| !zheng17_libhdf5::is_available(number)) {
                    Some(&number) => {
                        Err(Error::unsupported(format!("{} can't be read by this program", filters::name(number))))
                    }
                    None => Err(error),
                }
            }
        };
        read().at(|| &self.info.path)
    }

    fn check_written(&self) -> Result<()> {
        let check = || {
            if self.info.shape.contains(&0) {
                return Ok(());
            }
            let Some(chunk_shape) = &self.info.chunk_shape else {
                let is_written = self.dataset.is_written();
                return if is_written { Ok(()) } else { Err(Error::input("its values were never written")) };
            };
            let lengths = self.info.shape.iter().zip(chunk_shape);
            let n_chunks = lengths.map(|(&length, &chunk)| length.div_ceil(chunk)).fold(1_u64, u64::saturating_mul);
            match n_chunks.saturating_sub(self.dataset.n_written_chunks()) {
                0 => Ok(()),
                missing => Err(Error::input(format!("{missing} of {n_chunks} chunks were never written"))),
            }
        };
        check().at(|| &self.info.path)
    }
}

fn decode(element: &Element, values: &Values) -> Result<Array> {
    element.decode(&values.bytes, &|position| {
        let position = position.first_chunk().map(|bytes| usize::from_ne_bytes(*bytes));
        let text = position.and_then(|position| values.texts.get(position));
        text.cloned().ok_or_else(|| Error::internal("a text that was not read"))
    })
}

fn element(described: &Type) -> Element {
    match described {
        Type::Integer { size, signed, big_endian } => {
            Element::Integer { size: *size, signed: *signed, big_endian: *big_endian }
        }
        Type::Float { size, big_endian } => Element::Float { size: *size, big_endian: *big_endian },
        Type::FixedText { size, padded_with_spaces } => Element::FixedText { size: *size, spaces: *padded_with_spaces },
        Type::VariableText => Element::VariableText { size: described.size() },
        Type::Enumeration { base, names } => match element(base) {
            Element::Integer { size: 1, .. } if names.len() == 2 && names.iter().any(|name| name == "TRUE") => {
                Element::Bool
            }
            base => base,
        },
        Type::Record { size, fields } => {
            let fields = fields.iter().map(|field| Field {
                name: field.name.clone(),
                offset: field.offset,
                element: element(&field.element),
            });
            Element::Record { size: *size, fields: fields.collect() }
        }
        Type::Bits { size: 1 } => Element::Bool,
        Type::Bits { size } => Element::Other { size: *size, name: "bit fields".to_owned() },
        Type::Other { size, kind } => {
            let name = match kind {
                Other::NestedArray => "nested arrays",
                Other::List => "lists of any length",
                Other::Reference => "references",
                Other::Opaque => "opaque bytes",
                Other::Unknown => "values of an unknown type",
            };
            Element::Other { size: *size, name: name.to_owned() }
        }
    }
}
