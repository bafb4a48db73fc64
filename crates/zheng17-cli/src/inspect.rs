//! `zheng17 inspect`: what a file holds, and what a sample of its cells looks like.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use zheng17_core::matrix::ValueKind;
use zheng17_core::{ChunkSource, CsrBuffer, Result, Shape};
use zheng17_io::dataset::Dataset;
use zheng17_io::table::{ColumnData, Table};

use crate::arguments::InspectArguments;
use crate::terminal::{count, grouped, say};

/// Cells looked at in files that have more, in blocks spread evenly over the file.
const SAMPLE_CELLS: usize = 2000;
const SAMPLE_BLOCKS: usize = 10;
/// Logarithms of counts don't get larger; counts of a whole sample usually do.
const LARGEST_LOG: f64 = 30.0;

/// Shows what a file holds.
///
/// # Errors
/// Those of opening and reading the file, and of writing to standard output.
pub(crate) fn inspect(arguments: &InspectArguments) -> Result<()> {
    let dataset = zheng17_io::open(&arguments.file, &arguments.matrix.options())?;
    let sample = Sample::read(&dataset.source)?;
    if arguments.json { say(&format!("{:#}\n", as_json(&dataset, &sample))) } else { say(&as_text(&dataset, &sample)) }
}

/// What a sample of cells looks like.
#[derive(Debug, Default, PartialEq)]
struct Sample {
    n_cells: usize,
    /// Entries that are not 0.
    n_entries: u64,
    fractional: u64,
    negative: u64,
    not_finite: u64,
    largest: f64,
    /// Medians over cells.
    genes_per_cell: f64,
    total_per_cell: f64,
}

impl Sample {
    fn read(source: &Arc<dyn ChunkSource>) -> Result<Self> {
        let Shape { n_cells, n_genes } = source.shape();
        let mut sample = Self { largest: f64::NEG_INFINITY, ..Self::default() };
        let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
        let (mut genes, mut totals) = (Vec::new(), Vec::new());
        let (blocks, block) =
            if n_cells <= SAMPLE_CELLS { (1, n_cells) } else { (SAMPLE_BLOCKS, SAMPLE_CELLS / SAMPLE_BLOCKS) };
        for at in 0..blocks {
            let start = at * n_cells / blocks;
            source.read_cells(start..start + block, &mut buffer)?;
            let view = buffer.view();
            for cell in 0..view.n_cells() {
                let values = view.row_values(cell);
                let present = (0..values.len()).map(|at| values.get(at)).filter(|&value| value != 0.0);
                let (mut n, mut total) = (0_u64, 0.0);
                for value in present {
                    n += 1;
                    total += value;
                    sample.add(value);
                }
                sample.n_entries += n;
                genes.push(n as f64);
                totals.push(total);
            }
        }
        sample.n_cells = genes.len();
        sample.genes_per_cell = median(&mut genes);
        sample.total_per_cell = median(&mut totals);
        Ok(sample)
    }

    fn add(&mut self, value: f64) {
        if !value.is_finite() {
            self.not_finite += 1;
            return;
        }
        self.fractional += u64::from(value.fract() != 0.0);
        self.negative += u64::from(value < 0.0);
        self.largest = self.largest.max(value);
    }

    fn looks_like_counts(&self) -> bool {
        self.n_entries > 0 && self.fractional + self.negative + self.not_finite == 0
    }

    /// In words, for a person.
    fn verdict(&self) -> String {
        if self.n_entries == 0 {
            return "no value but 0".to_owned();
        }
        if self.not_finite > 0 {
            return format!("not counts: {} values are not finite numbers", grouped(self.not_finite));
        }
        if self.negative > 0 {
            return format!("not counts: {} values are negative; scaled already?", grouped(self.negative));
        }
        if self.fractional > 0 {
            let logged = if self.largest < LARGEST_LOG { ": logarithmised already?" } else { "" };
            let share = 100.0 * self.fractional as f64 / self.n_entries as f64;
            return format!("not counts, {share:.0} % have a fraction, the largest is {:.4}{logged}", self.largest);
        }
        format!("counts: integers up to {}", self.largest)
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

fn as_text(dataset: &Dataset, sample: &Sample) -> String {
    let Shape { n_cells, n_genes } = dataset.source.shape();
    let matrix = &dataset.matrix;
    let mut text = format!("{}\n", dataset.path.display());
    let mut line = |what: &str, value: String| {
        // Writing to a string can't fail.
        let _ = writeln!(text, "  {what:<14} {value}");
    };
    line("format", dataset.format.to_string());
    line("size", format!("{} cells × {} genes", count(n_cells), count(n_genes)));
    line("matrix", format!("{}, {}", matrix.location, matrix.layout));
    let indices = matrix.index_type.as_ref().map(|kind| format!(", {kind} indices")).unwrap_or_default();
    let compression = if matrix.compression.is_empty() { "none" } else { &matrix.compression };
    line("stored as", format!("{} values{indices}; compression: {compression}", matrix.value_type));
    if let Some(entries) = dataset.source.n_entries() {
        let size = (n_cells as f64 * n_genes as f64).max(1.0);
        line("entries", format!("{} ({:.2} % of all)", grouped(entries), 100.0 * entries as f64 / size));
    }
    line("values", sample.verdict());
    line("a cell", format!("{} genes, total {} (medians)", shown(sample.genes_per_cell), shown(sample.total_per_cell)));
    if sample.n_cells < n_cells {
        line("", format!("(values and medians from {} cells spread over the file)", count(sample.n_cells)));
    }
    for (what, table) in [("of cells", &dataset.obs), ("of genes", &dataset.var)] {
        let columns: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        if !columns.is_empty() {
            line(what, columns.join(", "));
        }
    }
    let choices = &dataset.choices;
    if !choices.layers.is_empty() {
        line("--layer", choices.layers.join(", "));
    }
    if choices.raw {
        line("--raw", "there is a raw matrix".to_owned());
    }
    if !choices.genomes.is_empty() {
        line("--genome", choices.genomes.join(", "));
    }
    if !choices.feature_types.is_empty() {
        let types = choices.feature_types.iter().map(|(kind, n)| format!("{kind} ({})", count(*n)));
        line("--feature-type", types.collect::<Vec<_>>().join(", "));
    }
    if dataset.logged {
        line("note", "The file says that the matrix was logarithmised.".to_owned());
    }
    for note in &dataset.notes {
        line("note", note.clone());
    }
    text
}

fn shown(number: f64) -> String {
    if number.fract() == 0.0 && (0.0..1e15).contains(&number) { grouped(number as u64) } else { format!("{number:.2}") }
}

fn as_json(dataset: &Dataset, sample: &Sample) -> Value {
    let Shape { n_cells, n_genes } = dataset.source.shape();
    let matrix = &dataset.matrix;
    let finite = |number: f64| number.is_finite().then_some(number);
    json!({
        "path": dataset.path.display().to_string(),
        "format": dataset.format.to_string(),
        "n_cells": n_cells,
        "n_genes": n_genes,
        "n_entries": dataset.source.n_entries(),
        "matrix": {
            "location": matrix.location,
            "layout": matrix.layout.to_string(),
            "value_type": matrix.value_type,
            "index_type": matrix.index_type,
            "compression": matrix.compression,
        },
        "sample": {
            "n_cells": sample.n_cells,
            "n_entries": sample.n_entries,
            "looks_like_counts": sample.looks_like_counts(),
            "n_fractional": sample.fractional,
            "n_negative": sample.negative,
            "n_not_finite": sample.not_finite,
            "largest": finite(sample.largest),
            "median_genes_per_cell": sample.genes_per_cell,
            "median_total_per_cell": finite(sample.total_per_cell),
        },
        "logged": dataset.logged,
        "obs": columns(&dataset.obs),
        "var": columns(&dataset.var),
        "choices": {
            "layers": dataset.choices.layers,
            "raw": dataset.choices.raw,
            "genomes": dataset.choices.genomes,
            "feature_types": dataset.choices.feature_types.iter()
                .map(|(kind, n)| json!({"name": kind, "n_features": n})).collect::<Vec<_>>(),
        },
        "notes": dataset.notes,
    })
}

fn columns(table: &Table) -> Vec<Value> {
    let kind = |data: &ColumnData| match data {
        ColumnData::Numbers(_) | ColumnData::NullableNumbers { .. } => "numbers",
        ColumnData::Bools(_) | ColumnData::NullableBools { .. } => "truth values",
        ColumnData::Strings(_) | ColumnData::NullableStrings { .. } => "texts",
        ColumnData::Categorical { .. } => "categories",
    };
    table.columns.iter().map(|column| json!({"name": column.name, "type": kind(&column.data)})).collect()
}
