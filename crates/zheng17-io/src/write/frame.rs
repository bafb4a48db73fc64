//! Tables of cells and genes as AnnData's data frames, in the encodings that anndata 0.8 and later read.

use std::collections::BTreeSet;

use zheng17_core::error::{Error, Result};

use super::array::{Element, SharedSink, mark_dataset, stored_bytes};
use super::hdf5::{Attribute, DatasetId, DatasetSpec, Filters};
use super::names::Names;
use crate::table::{ColumnData, Numbers, Table, Texts, with_numbers};

/// Makes a group and says what it is, in AnnData's words.
pub(crate) fn create_encoded_group(sink: &SharedSink, path: &str, encoding: &str, version: &str) -> Result<()> {
    let mut sink = sink.lock();
    sink.create_group(path)?;
    sink.set_group_attribute(path, "encoding-type", Attribute::Text(encoding))?;
    sink.set_group_attribute(path, "encoding-version", Attribute::Text(version))
}

/// Writes a list of numbers or truth values.
pub(crate) fn write_array<T: Element>(sink: &SharedSink, path: &str, values: &[T]) -> Result<()> {
    let spec = DatasetSpec { stored: T::STORED, shape: vec![values.len()], chunk: None, filters: Filters::default() };
    let dataset = {
        let mut sink = sink.lock();
        let dataset = sink.create_dataset(path, &spec)?;
        if !values.is_empty() {
            sink.write_whole(dataset, &stored_bytes(values))?;
        }
        dataset
    };
    mark_dataset(sink, dataset, "array")
}

/// Writes a list of texts.
pub(crate) fn write_texts<'t>(
    sink: &SharedSink,
    path: &str,
    texts: impl ExactSizeIterator<Item = &'t str> + Clone,
) -> Result<()> {
    let dataset = create_texts(sink, path, &[texts.len()], texts)?;
    mark_dataset(sink, dataset, "string-array")
}

/// Writes texts without saying what they are; `shape` is empty for a single one.
pub(crate) fn create_texts<'t>(
    sink: &SharedSink,
    path: &str,
    shape: &[usize],
    texts: impl ExactSizeIterator<Item = &'t str> + Clone,
) -> Result<DatasetId> {
    if let Some(at) = texts.clone().position(|text| text.contains('\0')) {
        return Err(Error::input(format!("text {} holds a NUL character, which HDF5 can't store", at + 1)).at(path));
    }
    sink.lock().create_texts(path, shape, texts)
}

/// Writes a table as a data frame. Gives notes on names that had to change.
pub(crate) fn write_table(sink: &SharedSink, path: &str, table: &Table) -> Result<Vec<String>> {
    create_encoded_group(sink, path, "dataframe", "0.2.0")?;
    // The index may have a column's name in memory; in the file it is a column among others.
    let is_free = !table.columns.iter().any(|column| column.name == table.index_name);
    let index_name = match table.index_name.as_str() {
        "" | "." => "_index",
        name if name.contains(['/', '\0']) || !is_free => "_index",
        name => name,
    };
    let mut names = Names::with_taken([index_name, "_index"]);
    let mut order = Vec::with_capacity(table.columns.len());
    let mut notes = Vec::new();
    for column in &table.columns {
        let (name, note) = names.take(&column.name, &format!("column of {path}"));
        notes.extend(note);
        if column.data.len() != table.n_rows() {
            let message = format!("{} values for {} rows", column.data.len(), table.n_rows());
            return Err(Error::internal(message).at(format!("{path}/{name}")));
        }
        write_column(sink, &format!("{path}/{name}"), &column.data)?;
        order.push(name);
    }
    write_texts(sink, &format!("{path}/{index_name}"), table.index.iter())?;
    let order: Vec<&str> = order.iter().map(String::as_str).collect();
    let mut sink = sink.lock();
    sink.set_group_attribute(path, "_index", Attribute::Text(index_name))?;
    sink.set_group_attribute(path, "column-order", Attribute::Texts(&order))?;
    Ok(notes)
}

fn write_column(sink: &SharedSink, path: &str, data: &ColumnData) -> Result<()> {
    match data {
        ColumnData::Numbers(numbers) => with_numbers!(numbers, |v| write_array(sink, path, v)),
        ColumnData::Bools(values) => write_array(sink, path, values),
        ColumnData::Strings(texts) => write_texts(sink, path, texts.iter()),
        ColumnData::NullableStrings { values, mask } if mask.contains(&true) => {
            write_texts_with_gaps(sink, path, values, mask)
        }
        ColumnData::NullableStrings { values, .. } => write_texts(sink, path, values.iter()),
        // Floats have a value for what is missing, and AnnData has no masked floats.
        ColumnData::NullableNumbers { values: Numbers::F32(values), mask } => {
            let values: Vec<f32> = fill(values, mask, f32::NAN);
            write_array(sink, path, &values)
        }
        ColumnData::NullableNumbers { values: Numbers::F64(values), mask } => {
            let values: Vec<f64> = fill(values, mask, f64::NAN);
            write_array(sink, path, &values)
        }
        ColumnData::NullableNumbers { values, mask } => {
            create_encoded_group(sink, path, "nullable-integer", "0.1.0")?;
            with_numbers!(values, |v| write_array(sink, &format!("{path}/values"), v))?;
            write_array(sink, &format!("{path}/mask"), mask)
        }
        ColumnData::NullableBools { values, mask } => {
            create_encoded_group(sink, path, "nullable-boolean", "0.1.0")?;
            write_array(sink, &format!("{path}/values"), values)?;
            write_array(sink, &format!("{path}/mask"), mask)
        }
        ColumnData::Categorical { codes, categories, ordered } => {
            write_categorical(sink, path, codes, categories, *ordered)
        }
    }
}

fn fill<T: Copy>(values: &[T], mask: &[bool], missing: T) -> Vec<T> {
    values.iter().zip(mask).map(|(&value, &masked)| if masked { missing } else { value }).collect()
}

/// Texts, some of which are missing: AnnData before 0.12 has only categories for them.
fn write_texts_with_gaps(sink: &SharedSink, path: &str, texts: &Texts, mask: &[bool]) -> Result<()> {
    let rows = || texts.iter().zip(mask).map(|(text, &is_missing)| (!is_missing).then_some(text));
    let categories: Vec<&str> = rows().flatten().collect::<BTreeSet<&str>>().into_iter().collect();
    let code = |text| categories.binary_search(&text).map_or(-1, |at| at as i32);
    let codes: Vec<i32> = rows().map(|text| text.map_or(-1, code)).collect();
    write_categorical(sink, path, &codes, &ColumnData::Strings(categories.into()), false)
}

fn write_categorical(
    sink: &SharedSink,
    path: &str,
    codes: &[i32],
    categories: &ColumnData,
    ordered: bool,
) -> Result<()> {
    let n_categories = categories.len();
    if let Some(row) = codes.iter().position(|&code| code < -1 || code >= 0 && code as usize >= n_categories) {
        let message = format!("row {}: category {}, but there are only {n_categories}", row + 1, codes[row]);
        return Err(Error::input(message).at(path));
    }
    create_encoded_group(sink, path, "categorical", "0.2.0")?;
    sink.lock().set_group_attribute(path, "ordered", Attribute::Bool(ordered))?;
    // As pandas does, codes take no more bytes than they need.
    let codes_path = format!("{path}/codes");
    match n_categories {
        0..=127 => write_array(sink, &codes_path, &codes.iter().map(|&code| code as i8).collect::<Vec<_>>())?,
        128..=32_767 => write_array(sink, &codes_path, &codes.iter().map(|&code| code as i16).collect::<Vec<_>>())?,
        _ => write_array(sink, &codes_path, codes)?,
    }
    let path = format!("{path}/categories");
    match categories {
        ColumnData::Numbers(numbers) => with_numbers!(numbers, |v| write_array(sink, &path, v)),
        ColumnData::Bools(values) => write_array(sink, &path, values),
        ColumnData::Strings(texts) => write_texts(sink, &path, texts.iter()),
        ColumnData::NullableStrings { values, mask } if !mask.contains(&true) => {
            write_texts(sink, &path, values.iter())
        }
        ColumnData::NullableStrings { .. } => Err(Error::input("a category is missing").at(&path)),
        _ => Err(Error::input("categories must be texts, numbers or truth values").at(&path)),
    }
}
