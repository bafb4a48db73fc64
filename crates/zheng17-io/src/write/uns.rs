//! The tree that becomes AnnData's `uns`.

use zheng17_core::error::{Error, Result};

use super::array::{Element, SharedSink, mark_dataset, stored_bytes};
use super::frame::{create_encoded_group, write_array, write_texts};
use super::hdf5::{DatasetId, DatasetSpec, Filters, StoredType};
use super::names::Names;

/// A value in `uns`.
#[derive(Debug, Clone, PartialEq)]
pub enum UnsValue {
    /// Values by name, in this order.
    Dict(Vec<(String, UnsValue)>),
    /// A text.
    String(String),
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A list of texts.
    Strings(Vec<String>),
    /// A list of truth values.
    Bools(Vec<bool>),
    /// A list of whole numbers.
    Integers(Vec<i64>),
    /// A list of numbers.
    Floats(Vec<f64>),
}

impl UnsValue {
    /// A dictionary of names and values.
    pub fn dict<N: Into<String>>(entries: impl IntoIterator<Item = (N, UnsValue)>) -> Self {
        Self::Dict(entries.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),* $(,)?) => {
        $(impl From<$type> for UnsValue {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}

from! {
    String => String, &str => String, bool => Bool, i64 => Integer, u32 => Integer, f64 => Float,
    Vec<String> => Strings, Vec<bool> => Bools, Vec<i64> => Integers, Vec<f64> => Floats,
}

/// Writes a value at a path. Gives notes on names that had to change.
pub(crate) fn write_uns(sink: &SharedSink, path: &str, value: &UnsValue) -> Result<Vec<String>> {
    match value {
        UnsValue::Dict(entries) => {
            create_encoded_group(sink, path, "dict", "0.1.0")?;
            let mut names = Names::default();
            let mut notes = Vec::new();
            for (wanted, value) in entries {
                let (name, note) = names.take(wanted, &format!("key of {path}"));
                notes.extend(note);
                notes.extend(write_uns(sink, &format!("{path}/{name}"), value)?);
            }
            return Ok(notes);
        }
        UnsValue::String(text) => write_text(sink, path, text),
        UnsValue::Bool(value) => write_scalar(sink, path, *value),
        UnsValue::Integer(value) => write_scalar(sink, path, *value),
        UnsValue::Float(value) => write_scalar(sink, path, *value),
        UnsValue::Strings(texts) => write_texts(sink, path, &texts.iter().map(String::as_str).collect::<Vec<_>>()),
        UnsValue::Bools(values) => write_array(sink, path, values),
        UnsValue::Integers(values) => write_array(sink, path, values),
        UnsValue::Floats(values) => write_array(sink, path, values),
    }
    .map(|()| Vec::new())
}

fn write_scalar<T: Element>(sink: &SharedSink, path: &str, value: T) -> Result<()> {
    let dataset = create_single(sink, path, T::STORED, &stored_bytes(&[value]))?;
    mark_dataset(sink, dataset, "numeric-scalar")
}

fn write_text(sink: &SharedSink, path: &str, text: &str) -> Result<()> {
    let dataset = create_text(sink, path, text)?;
    mark_dataset(sink, dataset, "string")
}

/// Writes a single text without saying what it is. It has a fixed length in the file, which every reader takes as a text.
pub(crate) fn create_text(sink: &SharedSink, path: &str, text: &str) -> Result<DatasetId> {
    if text.contains('\0') {
        return Err(Error::input("the text holds a NUL character, which HDF5 can't store").at(path));
    }
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len().max(1), 0);
    create_single(sink, path, StoredType::FixedText { size: bytes.len() as u32, utf8: true }, &bytes)
}

fn create_single(sink: &SharedSink, path: &str, stored: StoredType, bytes: &[u8]) -> Result<DatasetId> {
    let spec = DatasetSpec { stored, shape: Vec::new(), chunk: None, filters: Filters::default() };
    let mut sink = sink.lock();
    let dataset = sink.create_dataset(path, &spec)?;
    sink.write_whole(dataset, bytes)?;
    Ok(dataset)
}
