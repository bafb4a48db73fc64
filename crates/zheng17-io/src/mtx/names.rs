//! The lists of cells and features that lie beside a matrix: tab-separated, without a header line.

use std::path::Path;

use zheng17_core::{Error, Result};

use super::lines::Lines;
use crate::features::GENE_EXPRESSION;
use crate::table::Texts;

/// The features of a matrix, in its order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) ids: Texts,
    pub(super) names: Texts,
    pub(super) types: Texts,
}

/// Names of cells: the first column.
pub(super) fn read_barcodes(path: &Path) -> Result<Texts> {
    let mut barcodes = Texts::default();
    for_each_row(path, |columns| {
        barcodes.extend(columns.next().or(Some("")));
    })?;
    Ok(barcodes)
}

/// Features. Without a second column the id is the name too; without a third the type is `Gene Expression`. Further columns,
/// such as positions, say nothing of the counts.
pub(super) fn read_features(path: &Path) -> Result<Features> {
    let mut features = Features::default();
    for_each_row(path, |columns| {
        let id = columns.next().unwrap_or_default();
        features.ids.extend([id]);
        features.names.extend([columns.next().filter(|name| !name.is_empty()).unwrap_or(id)]);
        features.types.extend([columns.next().filter(|kind| !kind.is_empty()).unwrap_or(GENE_EXPRESSION)]);
    })?;
    Ok(features)
}

/// Rows of a list; blank lines only at the end.
fn for_each_row(path: &Path, mut f: impl FnMut(&mut dyn Iterator<Item = &str>)) -> Result<()> {
    let mut lines = Lines::open(path)?;
    let mut blank = None;
    loop {
        let Some(line) = lines.next_line()? else { return Ok(()) };
        let text = std::str::from_utf8(line).map(str::to_owned);
        if line.trim_ascii().is_empty() {
            blank.get_or_insert(lines.line_number());
            continue;
        }
        if let Some(blank) = blank {
            return Err(Error::input("blank line").at(format_args!("line {blank}")).at(path.display()));
        }
        let Ok(text) = text else { return Err(lines.here(Error::input("not Unicode (UTF-8) text"))) };
        f(&mut text.split('\t').map(str::trim));
    }
}
