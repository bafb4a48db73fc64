//! The features of 10x files, in HDF5 or text: tables of them, and which of them count as genes.

use zheng17_core::{Error, Result};

use crate::dataset::FeatureTypes;
use crate::table::{ColumnData, Table};

/// What the index of a table is called where the file has no name for it, as in AnnData.
pub(crate) const INDEX: &str = "_index";
/// The type of features that the recipe wants; Cell Ranger 2 knew no other.
pub(crate) const GENE_EXPRESSION: &str = "Gene Expression";
/// The column of types, as scanpy calls it.
const TYPES: &str = "feature_types";

/// The types of features in order of appearance, with their numbers.
pub(crate) fn types_of(features: &Table) -> Vec<(String, usize)> {
    distinct(features, TYPES)
}

/// Keeps the positions of wanted features. A note says what was left out.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage), listing the types there are, if no feature of the whole table is
/// wanted.
pub(crate) fn keep_types(
    features: &Table,
    wanted: &FeatureTypes,
    kept: &mut Vec<usize>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let types = types_of(features);
    let wanted = match wanted {
        FeatureTypes::All => return Ok(()),
        FeatureTypes::GeneExpression if types.is_empty() => return Ok(()),
        FeatureTypes::GeneExpression => GENE_EXPRESSION,
        FeatureTypes::Named(wanted) => wanted,
    };
    let has_it = rows_with(features, TYPES, wanted);
    if has_it.is_empty() {
        let types: Vec<String> = types.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        return Err(Error::usage(match types.as_slice() {
            [] => format!("features of type {wanted:?} were asked for, but this file has no types"),
            types => {
                format!("there are no features of type {wanted:?}; choose with --feature-type: {}", types.join(", "))
            }
        }));
    }
    let before = kept.clone();
    kept.retain(|row| has_it.binary_search(row).is_ok());
    if kept.len() < before.len() {
        let others: Vec<String> = types_of(&features.select(&before))
            .into_iter()
            .filter(|(name, _)| name != wanted)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        notes.push(format!(
            "{} of {} features are not {wanted} and were left out ({}).",
            before.len() - kept.len(),
            before.len(),
            others.join(", ")
        ));
    }
    Ok(())
}

/// The distinct texts of a column and how often each stands there, in order of appearance.
pub(crate) fn distinct(table: &Table, column: &str) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    if let Some(ColumnData::Strings(texts)) = table.column(column) {
        for text in texts.iter() {
            match found.iter_mut().find(|(name, _)| name == text) {
                Some((_, count)) => *count += 1,
                None => found.push((text.to_owned(), 1)),
            }
        }
    }
    found
}

/// The rows that have this text in a column.
pub(crate) fn rows_with(table: &Table, column: &str, wanted: &str) -> Vec<usize> {
    match table.column(column) {
        Some(ColumnData::Strings(texts)) => {
            texts.iter().enumerate().filter(|(_, text)| *text == wanted).map(|(row, _)| row).collect()
        }
        _ => Vec::new(),
    }
}
