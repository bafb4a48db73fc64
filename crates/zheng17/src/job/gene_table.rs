//! The gene table: one row per gene of the input, tab-separated, with what the recipe found out about it.

use std::io::{BufWriter, Write};

use zheng17_core::recipe::RecipeResult;
use zheng17_core::{Error, Result};
use zheng17_io::table::Texts;
use zheng17_io::write::TemporaryFile;

/// Columns of the table. Fields are empty where a gene has no such number: it was removed, or its score is undefined.
pub(super) const HEADER: [&str; 10] =
    ["name", "total", "kept", "mean", "variance", "dispersion", "bin", "score", "rank", "selected"];

/// Writes the table. `names` has one name for each gene of the input.
///
/// # Errors
/// [`ErrorKind::System`](zheng17_core::ErrorKind::System).
pub(super) fn write(file: &mut TemporaryFile, names: &Texts, result: &RecipeResult) -> Result<()> {
    let place = file.output().display().to_string();
    write_rows(&mut BufWriter::new(file), names, result).map_err(|error| Error::from(error).at(place))
}

fn write_rows(out: &mut impl Write, names: &Texts, result: &RecipeResult) -> std::io::Result<()> {
    writeln!(out, "{}", HEADER.join("\t"))?;
    let mut kept = result.kept_genes.iter().enumerate().peekable();
    let mut selected = result.selected.iter().peekable();
    for (gene, (name, total)) in names.iter().zip(&result.gene_totals).enumerate() {
        let name = name.replace(['\t', '\n', '\r'], " ");
        let is_selected = selected.next_if_eq(&&gene).is_some();
        let Some((at, _)) = kept.next_if(|(_, kept)| **kept == gene) else {
            writeln!(out, "{name}\t{total}\tfalse\t\t\t\t\t\t\tfalse")?;
            continue;
        };
        let score = if result.scores[at].is_nan() { String::new() } else { result.scores[at].to_string() };
        let rank = result.ranks[at].map(|rank| rank.to_string()).unwrap_or_default();
        writeln!(
            out,
            "{name}\t{total}\ttrue\t{}\t{}\t{}\t{}\t{score}\t{rank}\t{is_selected}",
            result.means[at], result.variances[at], result.dispersions[at], result.bins[at],
        )?;
    }
    out.flush()
}
