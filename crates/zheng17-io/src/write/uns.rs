//! The tree that becomes AnnData's `uns`.

use zheng17_core::error::Result;

use super::array::{Element, SharedSink, mark_dataset, stored_bytes};
use super::frame::{create_encoded_group, create_texts, write_array, write_texts};
use super::hdf5::{DatasetSpec, Filters};
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
        UnsValue::Strings(texts) => write_texts(sink, path, texts.iter().map(String::as_str)),
        UnsValue::Bools(values) => write_array(sink, path, values),
        UnsValue::Integers(values) => write_array(sink, path, values),
        UnsValue::Floats(values) => write_array(sink, path, values),
    }
    .map(|()| Vec::new())
}

fn write_scalar<T: Element>(sink: &SharedSink, path: &str, value: T) -> Result<()> {
    let spec = DatasetSpec { stored: T::STORED, shape: Vec::new(), chunk: None, filters: Filters::default() };
    let dataset = {
        let mut sink = sink.lock();
        let dataset = sink.create_dataset(path, &spec)?;
        sink.write_whole(dataset, &stored_bytes(&[value]))?;
        dataset
    };
    mark_dataset(sink, dataset, "numeric-scalar")
}

fn write_text(sink: &SharedSink, path: &str, text: &str) -> Result<()> {
    let dataset = create_texts(sink, path, &[], std::iter::once(text))?;
    mark_dataset(sink, dataset, "string")
}
