//! What this crate needs of HDF5: two small traits, for a file and for a dataset, and the values they give.
//!
//! Readers of formats know only these. `pure` implements them without a C library, and `library`, with the feature `libhdf5`,
//! through the system's libhdf5; one of them is built. Nothing here knows what an AnnData or 10x file is. Errors name the object within the file; whoever opened the file adds the file's name.

mod blosc;
#[cfg(not(feature = "libhdf5"))]
mod chunk_index;
#[cfg(not(feature = "libhdf5"))]
mod chunks;
mod elements;
mod filters;
#[cfg(not(feature = "libhdf5"))]
mod kept;
#[cfg(feature = "libhdf5")]
mod library;
#[cfg(not(feature = "libhdf5"))]
mod numbers;
#[cfg(not(feature = "libhdf5"))]
mod pipeline;
#[cfg(not(feature = "libhdf5"))]
mod pure;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use zheng17_core::error::ResultExt as _;
use zheng17_core::{Error, Result, Values};

use crate::table::{Numbers, Texts};
use crate::values::{positions_as_u32, smallest};

/// An open HDF5 file. Paths have no leading slash; the root group is the empty path.
pub(crate) trait Hdf5File: Send + Sync {
    /// Names of the groups and datasets in a group.
    fn children(&self, group: &str) -> Result<Vec<String>>;

    /// Where a group stands in the file, whatever path leads to it.
    fn group_address(&self, group: &str) -> Result<u64>;

    /// What stands at a path, if anything.
    fn kind(&self, path: &str) -> Result<Option<NodeKind>>;

    /// An attribute of a group or dataset, if it has it.
    fn attribute(&self, path: &str, name: &str) -> Result<Option<Attribute>>;

    /// All attributes of a group or dataset.
    fn attributes(&self, path: &str) -> Result<Vec<NamedAttribute>>;

    /// Opens a dataset.
    fn dataset(&self, path: &str) -> Result<Arc<dyn Hdf5Dataset>>;
}

/// An open dataset.
pub(crate) trait Hdf5Dataset: Send + Sync {
    /// Where it is and how it is stored.
    fn info(&self) -> &DatasetInfo;

    /// Reads consecutive rows: elements of a dataset with one dimension, rows of one with more. Values come in row-major order.
    /// A scalar has one row.
    ///
    /// # Behavior
    /// - Ranges that move forward decode each stored chunk about once, whatever their lengths.
    fn read(&self, rows: Range<u64>) -> Result<Array>;

    /// Appends consecutive elements of a dataset with one dimension as indices. On an error `out` may have grown.
    ///
    /// # Behavior
    /// - As [`Hdf5Dataset::read`]; several threads decode at the same time.
    fn append_indices(&self, rows: Range<u64>, out: &mut Vec<u32>) -> Result<()> {
        append_indices(self, rows, out)
    }

    /// Appends consecutive elements of a dataset with one dimension as values of the smallest kind that holds all of them
    /// exactly. On an error `out` may have grown.
    ///
    /// # Behavior
    /// - As [`Hdf5Dataset::append_indices`].
    fn append_values(&self, rows: Range<u64>, out: &mut Values) -> Result<()> {
        append_values(self, rows, out)
    }

    /// Asks for up to so many bytes of decoded chunks to be kept for the next [`Hdf5Dataset::read`]; says whether they will be.
    fn keep_up_to(&self, _bytes: usize) -> bool {
        false
    }

    /// An error if some of its values were never written, so that reading gives the fill value. Headers may claim any size;
    /// whoever collects what was read asks this first.
    fn check_written(&self) -> Result<()>;
}

/// Elements that are read at once where everything goes through an [`Array`]: bounds what a read holds besides its result.
const PIECE: u64 = 1 << 18;

/// A range cut into pieces of at most `length`.
pub(crate) fn pieces(range: Range<u64>, length: u64) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    (range.start..end).step_by(length as usize).map(move |start| start..end.min(start + length))
}

/// [`Hdf5Dataset::append_indices`] for every type and layout.
fn append_indices<D: Hdf5Dataset + ?Sized>(dataset: &D, rows: Range<u64>, out: &mut Vec<u32>) -> Result<()> {
    for piece in pieces(rows, PIECE) {
        let start = piece.start;
        out.extend(positions_as_u32(dataset.read(piece)?, start).at(|| &dataset.info().path)?);
    }
    Ok(())
}

/// [`Hdf5Dataset::append_values`] for every type and layout.
fn append_values<D: Hdf5Dataset + ?Sized>(dataset: &D, rows: Range<u64>, out: &mut Values) -> Result<()> {
    for piece in pieces(rows, PIECE) {
        out.extend(smallest(dataset.read(piece)?).at(|| &dataset.info().path)?.as_ref());
    }
    Ok(())
}

/// Opens a file that has the HDF5 signature.
pub(crate) fn open(path: &Path) -> Result<Arc<dyn Hdf5File>> {
    #[cfg(not(feature = "libhdf5"))]
    let file = pure::PureFile::open(path)?;
    #[cfg(feature = "libhdf5")]
    let file = library::LibraryFile::open(path)?;
    Ok(Arc::new(file))
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Group,
    Dataset,
}

/// Where a dataset is and how it is stored.
#[derive(Debug, Clone)]
pub(crate) struct DatasetInfo {
    pub(crate) path: String,
    /// Empty for a scalar.
    pub(crate) shape: Vec<u64>,
    /// The type of an element as numpy names it: `float32`, `bool`, `str`.
    pub(crate) type_name: String,
    /// Bytes of one element.
    pub(crate) element_size: usize,
    pub(crate) chunk_shape: Option<Vec<u64>>,
    /// Names of the filters in the order in which they were applied.
    pub(crate) filters: Vec<String>,
}

impl DatasetInfo {
    /// Number of rows: the first dimension, or 1 for a scalar.
    pub(crate) fn n_rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Bytes of one chunk once its filters are undone.
    pub(crate) fn chunk_bytes(&self) -> Option<u64> {
        let elements = self.chunk_shape.as_ref()?.iter().product::<u64>();
        Some(elements.saturating_mul(self.element_size as u64))
    }

    /// Filters, as in `gzip + shuffle`; empty for none.
    pub(crate) fn compression(&self) -> String {
        self.filters.join(" + ")
    }
}

/// Values of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attribute {
    pub(crate) values: Array,
}

/// An attribute with everything that a copy needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedAttribute {
    pub(crate) name: String,
    /// Empty for a single value.
    pub(crate) shape: Vec<u64>,
    pub(crate) values: Array,
}

/// Values as they were stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Array {
    Numbers(Numbers),
    Bools(Vec<bool>),
    Strings(Vec<String>),
    /// Columns of a compound type, in their order.
    Records(Vec<(String, Array)>),
    /// Something that no reader here needs, by the name of its type: references, nested arrays.
    Other(String),
}

impl Array {
    /// What it holds, for messages.
    pub(crate) fn describe(&self) -> &str {
        match self {
            Self::Numbers(Numbers::F32(_) | Numbers::F64(_)) => "real numbers",
            Self::Numbers(_) => "whole numbers",
            Self::Bools(_) => "truth values",
            Self::Strings(_) => "texts",
            Self::Records(_) => "records",
            Self::Other(name) => name,
        }
    }

    /// The texts.
    pub(crate) fn into_strings(self) -> Result<Vec<String>> {
        match self {
            Self::Strings(strings) => Ok(strings),
            other => Err(Error::input(format!("texts are expected here, but these are {}", other.describe()))),
        }
    }

    /// Numbers that must be whole and not negative.
    pub(crate) fn into_positions(self) -> Result<Vec<u64>> {
        let mut positions = Vec::new();
        self.append_positions(0, &mut positions)?;
        Ok(positions)
    }

    /// Appends numbers that must be whole and not negative. `first` is the position of the first, for messages.
    fn append_positions(self, first: u64, out: &mut Vec<u64>) -> Result<()> {
        fn whole<T: Copy + TryInto<u64>>(values: &[T], first: u64, out: &mut Vec<u64>) -> Result<()> {
            for (at, &value) in values.iter().enumerate() {
                let negative = |_| Error::input(format!("element {} is negative", first + at as u64));
                out.push(value.try_into().map_err(negative)?);
            }
            Ok(())
        }
        match self {
            Self::Numbers(Numbers::I8(v)) => whole(&v, first, out),
            Self::Numbers(Numbers::I16(v)) => whole(&v, first, out),
            Self::Numbers(Numbers::I32(v)) => whole(&v, first, out),
            Self::Numbers(Numbers::I64(v)) => whole(&v, first, out),
            Self::Numbers(Numbers::U8(v)) => whole(&v, first, out),
            Self::Numbers(Numbers::U16(v)) => whole(&v, first, out),
            Self::Numbers(Numbers::U32(v)) => whole(&v, first, out),
            Self::Numbers(Numbers::U64(v)) => whole(&v, first, out),
            other => Err(Error::input(format!("whole numbers are expected here, but these are {}", other.describe()))),
        }
    }
}

/// Reads a dataset whole.
pub(crate) fn read_all(file: &dyn Hdf5File, path: &str) -> Result<Array> {
    let dataset = file.dataset(path)?;
    let rows = dataset.info().n_rows();
    dataset.read(0..rows)
}

/// Reads a list of texts whole.
pub(crate) fn read_texts(file: &dyn Hdf5File, path: &str) -> Result<Texts> {
    let dataset = file.dataset(path)?;
    let mut texts = Texts::default();
    // A piece at a time, so that no second form of all of them is held.
    for piece in pieces(0..dataset.info().n_rows(), PIECE / 4) {
        texts.extend(dataset.read(piece)?.into_strings().at(|| path)?);
    }
    Ok(texts)
}

/// Reads a list of numbers whole that must be whole and not negative, such as row pointers.
pub(crate) fn read_positions(dataset: &dyn Hdf5Dataset) -> Result<Vec<u64>> {
    let mut positions = Vec::new();
    for piece in pieces(0..dataset.info().n_rows(), PIECE) {
        let start = piece.start;
        dataset.read(piece)?.append_positions(start, &mut positions).at(|| &dataset.info().path)?;
    }
    positions.shrink_to_fit();
    Ok(positions)
}

/// A text attribute, if it is there and is one text.
pub(crate) fn text_attribute(file: &dyn Hdf5File, path: &str, name: &str) -> Result<Option<String>> {
    Ok(match file.attribute(path, name)? {
        Some(Attribute { values: Array::Strings(mut texts) }) if texts.len() == 1 => texts.pop(),
        _ => None,
    })
}

/// Whether there is a dataset at this path.
pub(crate) fn has_dataset(file: &dyn Hdf5File, path: &str) -> Result<bool> {
    Ok(file.kind(path)? == Some(NodeKind::Dataset))
}
