//! Data frames of AnnData files of all ages: groups of columns since 0.7, compound datasets before.

use std::collections::HashSet;

use zheng17_core::error::ResultExt as _;
use zheng17_core::exact::MOST_CELLS;
use zheng17_core::{Error, ErrorKind, Result};

use crate::hdf5::{Array, Attribute, Hdf5File, NodeKind, read_all, read_texts, text_attribute};
use crate::table::{ColumnData, Numbers, Table, Texts};

/// Reads the frame at `path` (`obs`, `var`, `raw/var`), which must have `n_rows` rows.
///
/// # Behavior
/// - A column that can't be read is left out, with a note that names it and says why.
/// - A frame without an index gets positions as names, with a note.
pub(crate) fn read_frame(file: &dyn Hdf5File, path: &str, n_rows: usize, notes: &mut Vec<String>) -> Result<Table> {
    match file.kind(path)? {
        Some(NodeKind::Group) => read_group(file, path, n_rows, notes),
        Some(NodeKind::Dataset) => read_compound(file, path, n_rows, notes),
        None => Err(Error::input("the file has no such data frame").at(path)),
    }
}

fn read_group(file: &dyn Hdf5File, path: &str, n_rows: usize, notes: &mut Vec<String>) -> Result<Table> {
    match text_attribute(file, path, "encoding-type")?.as_deref() {
        None | Some("dataframe") => {}
        Some(other) => return Err(unknown_encoding(other).at(path)),
    }
    let index_name = text_attribute(file, path, "_index")?.unwrap_or_else(|| "_index".to_owned());
    let index_path = format!("{path}/{index_name}");
    let index = if file.kind(&index_path)?.is_some() {
        let index = names_of(read_column(file, &index_path)?).at(|| &index_path)?;
        check_length(index.len(), n_rows).at(|| &index_path)?;
        index
    } else if n_rows > MOST_CELLS {
        // The number stands in a header, and no list of names speaks for it.
        return Err(Error::input(format!("there is no index for {n_rows} rows")).at(&index_path));
    } else {
        notes.push(format!("{path} has no index {index_name:?}; its rows are named by position."));
        (0..n_rows).map(|row| row.to_string()).collect()
    };
    let mut table = Table::from_index(index_name, index);
    for name in column_names(file, path, &table.index_name)? {
        let column_path = format!("{path}/{name}");
        let column = read_column(file, &column_path).and_then(|column| {
            check_length(column.len(), n_rows).at(|| &column_path)?;
            Ok(column)
        });
        keep_or_note(&mut table, name, column, notes)?;
    }
    Ok(table)
}

/// The columns in their order; files without that order give them by name.
fn column_names(file: &dyn Hdf5File, path: &str, index_name: &str) -> Result<Vec<String>> {
    match file.attribute(path, "column-order")? {
        Some(Attribute { values: Array::Strings(names) }) => Ok(names),
        // A frame without columns has an empty list, which has no type.
        Some(_) => Ok(Vec::new()),
        None => {
            let is_column = |name: &String| name != index_name && name != "__categories";
            Ok(file.children(path)?.into_iter().filter(is_column).collect())
        }
    }
}

fn keep_or_note(table: &mut Table, name: String, column: Result<ColumnData>, notes: &mut Vec<String>) -> Result<()> {
    match column {
        Ok(column) => table.set(name, column),
        Err(error) if matches!(error.kind(), ErrorKind::Input | ErrorKind::Unsupported) => {
            notes.push(format!("A column was left out: {error}."));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn check_length(found: usize, n_rows: usize) -> Result<()> {
    if found == n_rows { Ok(()) } else { Err(Error::input(format!("{found} values, but there are {n_rows} rows"))) }
}

fn unknown_encoding(encoding: &str) -> Error {
    Error::unsupported(format!("unknown encoding {encoding:?}"))
}

/// Texts for an index. Numbers become texts; missing ones are the text "nan", as pandas has it.
fn names_of(column: ColumnData) -> Result<Texts> {
    Ok(match column {
        ColumnData::Strings(texts) => texts,
        ColumnData::NullableStrings { values, mask } => {
            values.iter().zip(mask).map(|(text, is_missing)| if is_missing { "nan" } else { text }).collect()
        }
        ColumnData::Numbers(numbers) => number_texts(&numbers).into(),
        ColumnData::Categorical { codes, categories, .. } => {
            let names = names_of(*categories)?;
            let name = |&code: &i32| usize::try_from(code).ok().and_then(|code| names.get(code));
            codes.iter().map(|code| name(code).unwrap_or("nan")).collect()
        }
        _ => return Err(Error::input("an index must hold texts")),
    })
}

fn number_texts(numbers: &Numbers) -> Vec<String> {
    fn all<T: ToString>(values: &[T]) -> Vec<String> {
        values.iter().map(ToString::to_string).collect()
    }
    match numbers {
        Numbers::I8(v) => all(v),
        Numbers::I16(v) => all(v),
        Numbers::I32(v) => all(v),
        Numbers::I64(v) => all(v),
        Numbers::U8(v) => all(v),
        Numbers::U16(v) => all(v),
        Numbers::U32(v) => all(v),
        Numbers::U64(v) => all(v),
        Numbers::F32(v) => all(v),
        Numbers::F64(v) => all(v),
    }
}

/// One column. Errors name it.
fn read_column(file: &dyn Hdf5File, path: &str) -> Result<ColumnData> {
    let encoding = |of: &str| text_attribute(file, of, "encoding-type");
    match file.kind(path)? {
        None => Err(Error::input("the column is listed but missing").at(path)),
        Some(NodeKind::Dataset) => match encoding(path)?.as_deref() {
            // Until 0.7 a categorical column had its codes here and a reference to its categories.
            None | Some("array" | "string-array") => match file.attribute(path, "categories")? {
                Some(_) => read_referred_categorical(file, path),
                None => read_plain(file, path),
            },
            Some(other) => Err(unknown_encoding(other).at(path)),
        },
        Some(NodeKind::Group) => match encoding(path)?.as_deref() {
            Some("categorical") => {
                let ordered = is_ordered(file, path)?;
                read_categorical(file, &format!("{path}/codes"), &format!("{path}/categories"), ordered)
            }
            Some("nullable-integer" | "nullable-boolean" | "nullable-string-array" | "nullable-float") => {
                read_nullable(file, path)
            }
            Some(other) => Err(unknown_encoding(other).at(path)),
            None => Err(Error::unsupported("a group of unknown encoding").at(path)),
        },
    }
}

fn read_plain(file: &dyn Hdf5File, path: &str) -> Result<ColumnData> {
    let dataset = file.dataset(path)?;
    let info = dataset.info();
    let n_dimensions = info.shape.len();
    if n_dimensions != 1 {
        return Err(Error::unsupported(format!("number of dimensions: {n_dimensions} instead of 1")).at(path));
    }
    if info.type_name == "str" {
        return Ok(ColumnData::Strings(read_texts(file, path)?));
    }
    column_of(read_all(file, path)?).at(|| path)
}

fn column_of(values: Array) -> Result<ColumnData> {
    Ok(match values {
        Array::Numbers(numbers) => ColumnData::Numbers(numbers),
        Array::Bools(flags) => ColumnData::Bools(flags),
        Array::Strings(texts) => ColumnData::Strings(texts.into()),
        other => return Err(Error::unsupported(format!("a column of {}", other.describe()))),
    })
}

fn read_nullable(file: &dyn Hdf5File, path: &str) -> Result<ColumnData> {
    let mask_path = format!("{path}/mask");
    let Array::Bools(mask) = read_all(file, &mask_path)? else {
        return Err(Error::input("the mask must hold truth values").at(mask_path));
    };
    let values = read_all(file, &format!("{path}/values"))?;
    let column = match values {
        Array::Numbers(values) => ColumnData::NullableNumbers { values, mask: mask.clone() },
        Array::Bools(values) => ColumnData::NullableBools { values, mask: mask.clone() },
        Array::Strings(texts) => ColumnData::NullableStrings { values: texts.into(), mask: mask.clone() },
        other => return Err(Error::unsupported(format!("a column of {}", other.describe())).at(path)),
    };
    if column.len() == mask.len() {
        Ok(column)
    } else {
        Err(Error::input(format!("{} values with a mask of {}", column.len(), mask.len())).at(path))
    }
}

fn is_ordered(file: &dyn Hdf5File, path: &str) -> Result<bool> {
    Ok(match file.attribute(path, "ordered")? {
        Some(Attribute { values: Array::Bools(flags) }) => flags.first() == Some(&true),
        Some(Attribute { values: Array::Numbers(numbers) }) => {
            number_texts(&numbers).first().is_some_and(|text| text != "0")
        }
        _ => false,
    })
}

/// anndata 0.7: codes at the column, categories in `__categories` beside it, under the column's name.
fn read_referred_categorical(file: &dyn Hdf5File, path: &str) -> Result<ColumnData> {
    let (frame, name) = path.rsplit_once('/').unwrap_or(("", path));
    let categories = format!("{frame}/__categories/{name}");
    if file.kind(&categories)?.is_none() {
        return Err(Error::input(format!("its categories {categories} are missing")).at(path));
    }
    let ordered = is_ordered(file, &categories)?;
    read_categorical(file, path, &categories, ordered)
}

fn read_categorical(file: &dyn Hdf5File, codes: &str, categories: &str, ordered: bool) -> Result<ColumnData> {
    // Such a group may hold itself.
    if text_attribute(file, categories, "encoding-type")?.as_deref() == Some("categorical")
        || file.attribute(categories, "categories")?.is_some()
    {
        return Err(Error::unsupported("categories that are categorical themselves").at(categories));
    }
    let category_values = read_column(file, categories)?;
    categorical(read_all(file, codes)?, category_values, ordered).at(|| codes)
}

fn categorical(codes: Array, categories: ColumnData, ordered: bool) -> Result<ColumnData> {
    match &categories {
        ColumnData::Numbers(_) | ColumnData::Bools(_) | ColumnData::Strings(_) => {}
        ColumnData::NullableStrings { mask, .. } if !mask.contains(&true) => {}
        _ => return Err(Error::unsupported("categories that are missing or no plain values")),
    }
    if let Some(repeated) = repeated_category(&categories) {
        return Err(Error::input(format!("category {repeated:?} is there more than once")));
    }
    let codes = signed_codes(codes)?;
    let n = categories.len();
    let wrong = |code: i64| code < -1 || code >= n as i64;
    if let Some(row) = codes.iter().position(|&code| wrong(code)) {
        return Err(Error::input(format!("row {row} has code {}, but there are {n} categories", codes[row])));
    }
    let codes = codes.into_iter().map(i32::try_from);
    let codes = codes.collect::<Result<_, _>>().map_err(|_| Error::unsupported("more than 2^31 categories"))?;
    Ok(ColumnData::Categorical { codes, categories: Box::new(categories), ordered })
}

/// The first category that an earlier one equals: pandas refuses such a column.
fn repeated_category(categories: &ColumnData) -> Option<String> {
    let texts = match categories {
        ColumnData::Strings(texts) | ColumnData::NullableStrings { values: texts, .. } => {
            texts.iter().map(str::to_owned).collect()
        }
        ColumnData::Numbers(numbers) => number_texts(numbers),
        ColumnData::Bools(flags) => flags.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    let mut seen = HashSet::with_capacity(texts.len());
    texts.iter().find(|text| !seen.insert(text.as_str())).cloned()
}

fn signed_codes(codes: Array) -> Result<Vec<i64>> {
    fn all<T: Copy + Into<i64>>(values: &[T]) -> Vec<i64> {
        values.iter().map(|&value| value.into()).collect()
    }
    Ok(match codes {
        Array::Numbers(Numbers::I8(v)) => all(&v),
        Array::Numbers(Numbers::I16(v)) => all(&v),
        Array::Numbers(Numbers::I32(v)) => all(&v),
        Array::Numbers(Numbers::I64(v)) => v,
        Array::Numbers(Numbers::U8(v)) => all(&v),
        Array::Numbers(Numbers::U16(v)) => all(&v),
        Array::Numbers(Numbers::U32(v)) => all(&v),
        // Codes above 2^63 are out of range either way.
        Array::Numbers(Numbers::U64(v)) => v.iter().map(|&code| i64::try_from(code).unwrap_or(i64::MAX)).collect(),
        other => return Err(Error::input(format!("codes must be whole numbers, but these are {}", other.describe()))),
    })
}

/// anndata ≤ 0.6: one compound dataset, its first field the index, categories in `uns/NAME_categories`.
fn read_compound(file: &dyn Hdf5File, path: &str, n_rows: usize, notes: &mut Vec<String>) -> Result<Table> {
    let Array::Records(columns) = read_all(file, path)? else {
        return Err(Error::input("a data frame must be a group or hold records").at(path));
    };
    let mut columns = columns.into_iter();
    let Some((index_name, index)) = columns.next() else {
        return Err(Error::input("records without fields").at(path));
    };
    let index = column_of(index).and_then(names_of).at(|| path)?;
    check_length(index.len(), n_rows).at(|| path)?;
    let mut table = Table::from_index(index_name, index);
    for (name, values) in columns {
        let categories = format!("uns/{name}_categories");
        let column_path = format!("{path}/{name}");
        let column = if matches!(values, Array::Numbers(_)) && file.kind(&categories)? == Some(NodeKind::Dataset) {
            read_all(file, &categories)
                .and_then(column_of)
                .and_then(|categories| categorical(values, categories, false))
        } else {
            column_of(values)
        };
        keep_or_note(&mut table, name, column.at(|| &column_path), notes)?;
    }
    Ok(table)
}
