//! What several tests of reading need: all cells of a source, and a dataset as text.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use zheng17_core::matrix::{ValueKind, ValuesRef};
use zheng17_core::{ChunkSource, CsrBuffer, Result};
use zheng17_io::table::{ColumnData, Numbers, Table};
use zheng17_io::{Dataset, OpenOptions, open};

/// Reads all cells, so many at once.
pub(crate) fn read(source: &dyn ChunkSource, chunk_rows: usize) -> Result<CsrBuffer> {
    let shape = source.shape();
    let mut whole = CsrBuffer::new(shape.n_genes, ValueKind::F32);
    let mut chunk = CsrBuffer::new(shape.n_genes, ValueKind::F32);
    for start in (0..shape.n_cells).step_by(chunk_rows) {
        source.read_cells(start..(start + chunk_rows).min(shape.n_cells), &mut chunk)?;
        whole.append(chunk.view());
    }
    Ok(whole)
}

/// Opens a file and reads it as it is, without the check of counts.
pub(crate) fn open_and_read(path: &Path, options: &OpenOptions) -> Result<(Dataset, CsrBuffer)> {
    let dataset = open(path, options)?;
    let whole = read(dataset.source.as_ref(), 17)?;
    Ok((dataset, whole))
}

/// Whether an error says that a file is newer than the system's libhdf5, where the program reads through it.
pub(crate) fn is_newer_than_libhdf5(error: &str) -> bool {
    cfg!(feature = "libhdf5") && error.contains("newer than libhdf5")
}

/// Runs a script of `tests/python`; its folder is where it runs.
pub(crate) fn run_python(python: &Path, script: &str, arguments: &[&Path]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python");
    let script: PathBuf = folder.join(script);
    let mut command = Command::new(python);
    let output = command.args(["-B", "-W", "ignore"]).arg(script).args(arguments).output().expect("python starts");
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A dataset as `tests/python/dump.py` writes it: cells as sorted sums without zeros, frames with all their columns.
pub(crate) fn dump(dataset: &Dataset, whole: &CsrBuffer) -> String {
    let mut out = String::new();
    dump_matrix(whole, &mut out);
    dump_frame("obs", &dataset.obs, &mut out);
    dump_frame("var", &dataset.var, &mut out);
    out
}

fn dump_matrix(whole: &CsrBuffer, out: &mut String) {
    let view = whole.view();
    let _ = writeln!(out, "shape {} {}", view.n_cells(), view.n_genes());
    for row in 0..view.n_cells() {
        let mut entries: Vec<(u32, f64)> = match view.row_values(row) {
            ValuesRef::F32(values) => view.row_indices(row).iter().zip(values).map(|(&g, &x)| (g, x.into())).collect(),
            ValuesRef::F64(values) => view.row_indices(row).iter().copied().zip(values.iter().copied()).collect(),
        };
        entries.sort_by_key(|entry| entry.0);
        let _ = write!(out, "row {row}:");
        for entries in entries.chunk_by(|a, b| a.0 == b.0) {
            let sum: f64 = entries.iter().map(|entry| entry.1).sum();
            if sum != 0.0 {
                let _ = write!(out, " {}={}", entries[0].0, bits(sum));
            }
        }
        out.push('\n');
    }
}

fn dump_frame(name: &str, frame: &Table, out: &mut String) {
    let _ = write!(out, "{name} names:");
    for label in frame.index.iter() {
        let _ = write!(out, " {}", quoted(Some(label)));
    }
    out.push('\n');
    for column in &frame.columns {
        let _ = writeln!(out, "{name} {} {}", quoted(Some(&column.name)), column_text(&column.data));
    }
}

/// The bits of a number, without the zeros at the end.
fn bits(value: f64) -> String {
    let digits = format!("{:016x}", value.to_bits());
    match digits.trim_end_matches('0') {
        "" => "0".to_owned(),
        digits => digits.to_owned(),
    }
}

/// As JSON writes texts, for the characters that occur here.
fn quoted(text: Option<&str>) -> String {
    text.map_or_else(|| "NA".to_owned(), |text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

fn column_text(column: &ColumnData) -> String {
    let spaced = |words: Vec<String>| words.iter().fold(String::new(), |text, word| text + " " + word);
    let flags = |flags: &[bool]| flags.iter().map(ToString::to_string).collect::<Vec<_>>();
    let masked = |mut words: Vec<String>, mask: &[bool]| {
        for (word, _) in words.iter_mut().zip(mask).filter(|(_, missing)| **missing) {
            "NA".clone_into(word);
        }
        spaced(words)
    };
    match column {
        ColumnData::Numbers(numbers) => {
            let (kind, words) = number_words(numbers);
            format!("{kind}:{}", spaced(words))
        }
        ColumnData::Bools(values) => format!("bool:{}", spaced(flags(values))),
        ColumnData::Strings(texts) => {
            format!("text:{}", spaced(texts.iter().map(|text| quoted(Some(text))).collect()))
        }
        ColumnData::NullableStrings { values, mask } => {
            format!("text:{}", masked(values.iter().map(|text| quoted(Some(text))).collect(), mask))
        }
        ColumnData::NullableNumbers { values, mask } => {
            let (kind, words) = number_words(values);
            format!("nullable {kind}:{}", masked(words, mask))
        }
        ColumnData::NullableBools { values, mask } => format!("nullable bool:{}", masked(flags(values), mask)),
        ColumnData::Categorical { codes, categories, ordered } => {
            let codes = spaced(codes.iter().map(ToString::to_string).collect());
            format!("categorical ordered={ordered}:{codes}; {}", column_text(categories))
        }
    }
}

fn number_words(numbers: &Numbers) -> (&'static str, Vec<String>) {
    fn all<T: ToString>(values: &[T]) -> Vec<String> {
        values.iter().map(ToString::to_string).collect()
    }
    match numbers {
        Numbers::I8(v) => ("int8", all(v)),
        Numbers::I16(v) => ("int16", all(v)),
        Numbers::I32(v) => ("int32", all(v)),
        Numbers::I64(v) => ("int64", all(v)),
        Numbers::U8(v) => ("uint8", all(v)),
        Numbers::U16(v) => ("uint16", all(v)),
        Numbers::U32(v) => ("uint32", all(v)),
        Numbers::U64(v) => ("uint64", all(v)),
        Numbers::F32(v) => ("float32", v.iter().map(|&x| bits(x.into())).collect()),
        Numbers::F64(v) => ("float64", v.iter().map(|&x| bits(x)).collect()),
    }
}

/// Where two texts first differ, short enough to read.
pub(crate) fn first_difference(found: &str, expected: &str) -> Option<String> {
    if found == expected {
        return None;
    }
    let cut = |line: Option<&str>| line.map_or_else(|| "nothing".to_owned(), |line| line.chars().take(300).collect());
    let mut pairs = (found.lines().map(Some).chain(std::iter::repeat(None)))
        .zip(expected.lines().map(Some).chain(std::iter::repeat(None)));
    let (found, expected) = pairs.find(|(found, expected)| found != expected)?;
    Some(format!("found    {}\nexpected {}", cut(found), cut(expected)))
}
