//! `cargo xtask bench`: how fast it is and how much memory it takes, beside scanpy, with inputs of its own making.
//!
//! Each section measures one thing and leaves JSON; [`tables`] makes Markdown of it, and [`page`] puts that into
//! `docs/performance.md`. Inputs stay in `target/bench` for the next time.

mod child;
mod machine;
mod page;
mod sections;
mod tables;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

/// What to measure.
#[derive(Args)]
pub(crate) struct BenchArguments {
    /// 20,000 cells only, fewer repetitions: some minutes instead of half an hour
    #[arg(long)]
    quick: bool,
    /// Only these sections; results of others stay as they were
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Section>,
    /// Only the Python package: the same as --only python
    #[arg(long, conflicts_with = "only")]
    python: bool,
    /// Also write all results here, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure nothing: put the tables of what was measured last, without --quick, into docs/performance.md
    #[arg(long, conflicts_with_all = ["quick", "only", "python"])]
    fill: bool,
}

/// A part of the measurements that can be asked for alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Section {
    /// Whole programs from file to file, beside scanpy
    Files,
    /// Recipe and components in memory, beside scanpy
    Memory,
    /// Sizes of chunks, and what chunks cost by themselves
    Chunks,
    /// Files of 400,000 and 1.3 million cells
    Large,
    /// Peak memory of the backend lazy under several limits
    Limits,
    /// The Python package, beside scanpy in one process
    Python,
}

impl Section {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Measures, prints tables, and keeps the results in `target/bench`.
pub(crate) fn run(arguments: &BenchArguments) -> Result<(), String> {
    let folder = crate::root().join("target/bench");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let kept = folder.join(if arguments.quick { "results-quick.json" } else { "results.json" });
    let mut results = read(&kept)?;
    if !arguments.fill {
        let wanted: Vec<Section> = match (&arguments.only[..], arguments.quick) {
            _ if arguments.python => vec![Section::Python],
            ([], true) => vec![Section::Files, Section::Memory, Section::Chunks],
            ([], false) => Section::value_variants().to_vec(),
            (only, _) => only.to_vec(),
        };
        let bench = sections::Bench::prepare(folder, arguments.quick, &wanted)?;
        for section in wanted {
            let measured = bench.measure(section)?;
            println!("{}", tables::section(section, &measured));
            let python = bench.python_versions().map_or(results["machine"]["python"].take(), Value::from);
            results["machine"] = machine::describe();
            results["machine"]["python"] = python;
            results[section.name()] = measured;
            // After each section, so that half an hour's work is not lost to the last one.
            write(&kept, &results)?;
        }
        println!("{}", machine::text(&results["machine"]));
    }
    if let Some(path) = &arguments.json {
        write(path, &results)?;
    }
    if arguments.fill { page::fill(&results) } else { Ok(()) }
}

fn read(path: &Path) -> Result<Value, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| failed(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(json!({})),
        Err(error) => Err(failed(&error)),
    }
}

fn write(path: &Path, results: &Value) -> Result<(), String> {
    std::fs::write(path, format!("{results:#}\n")).map_err(|error| format!("{}: {error}", path.display()))
}
