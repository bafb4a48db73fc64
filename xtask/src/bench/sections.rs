//! What is run for each section, and on which inputs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::child::{self, Case};
use super::{Section, machine};
use crate::command::{self, cargo, output};
use crate::python;

/// Genes of the simulated cells, and of the field's benchmark set.
const GENES: usize = 28_000;
const GENES_OF_LARGE: usize = 27_998;
const LARGE: [usize; 2] = [400_000, 1_306_127];

/// Everything that is needed to measure.
pub(crate) struct Bench {
    folder: PathBuf,
    quick: bool,
    program: PathBuf,
    /// Where scanpy is compared with.
    python: Option<PathBuf>,
}

impl Bench {
    /// Builds what is measured, and the Python environment if a section compares with scanpy.
    pub(crate) fn prepare(folder: PathBuf, quick: bool, wanted: &[Section]) -> Result<Self, String> {
        command::run(&mut cargo(&["build", "--release", "--package", "zheng17-cli"]))?;
        command::run(&mut cargo(&["bench", "--no-run", "--package", "zheng17", "--bench", "recipe"]))?;
        let compares =
            [Section::Files, Section::Memory, Section::Python].iter().any(|section| wanted.contains(section));
        let python = if compares { Some(python::environment()?) } else { None };
        if let (true, Some(python)) = (wanted.contains(&Section::Python), &python) {
            python::install(python, &python::wheel(python)?)?;
        }
        Ok(Self { folder, quick, program: crate::root().join("target/release/zheng17"), python })
    }

    /// Versions of Python and what scanpy rests on, if Python is used.
    pub(crate) fn python_versions(&self) -> Option<String> {
        self.python.as_deref().and_then(python::versions)
    }

    /// Measures a section.
    pub(crate) fn measure(&self, section: Section) -> Result<Value, String> {
        let mut result = machine::commit();
        let sizes = if self.quick { &[20_000][..] } else { &[20_000, 100_000] };
        result["sizes"] = match section {
            Section::Files => sizes.iter().map(|&cells| self.files(cells)).collect::<Result<_, _>>()?,
            Section::Memory => sizes.iter().map(|&cells| self.memory(cells)).collect::<Result<_, _>>()?,
            Section::Chunks => {
                sizes[sizes.len() - 1..].iter().map(|&cells| self.chunks(cells)).collect::<Result<_, _>>()?
            }
            Section::Large => LARGE.iter().map(|&cells| self.large(cells)).collect::<Result<_, _>>()?,
            Section::Python => sizes.iter().map(|&cells| self.python(cells)).collect::<Result<_, _>>()?,
            Section::Limits => {
                let small = sizes.iter().map(|&cells| self.limits(cells, GENES, "h5ad"));
                let large = LARGE.iter().map(|&cells| self.limits(cells, GENES_OF_LARGE, "h5"));
                small.chain(large.filter(|_| !self.quick)).collect::<Result<_, _>>()?
            }
        };
        for left in [self.folder.join("ours.h5ad"), self.folder.join("scanpy.h5ad")] {
            match fs::remove_file(&left) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", left.display()));
                }
                _ => {}
            }
        }
        Ok(result)
    }

    fn files(&self, cells: usize) -> Result<Value, String> {
        let input = self.input(cells, GENES, "h5ad")?;
        let repeats = if self.quick { 3 } else { 5 };
        let of_scanpy = match (self.quick, cells) {
            (true, _) => 1,
            (false, 20_000) => 5,
            (false, _) => 3,
        };
        let solvers = if self.quick { &["arpack"][..] } else { &["arpack", "covariance_eigh"] };
        let mut cases = Vec::new();
        for &solver in solvers {
            let script = [input.as_os_str().to_owned(), self.folder.join("scanpy.h5ad").into(), solver.into()];
            let command = self.python_command("scanpy_file.py")?;
            let command = move || {
                let mut command = command();
                command.args(&script);
                command
            };
            cases.push(Case::new(json!({ "program": "scanpy", "solver": solver }), of_scanpy, command));
        }
        cases.push(self.ours(&input, "auto", machine::threads(), &[], repeats));
        for backend in ["rayon", "lazy"] {
            let mut threads = vec![1, machine::threads()];
            threads.dedup();
            cases.extend(threads.into_iter().map(|threads| self.ours(&input, backend, threads, &[], repeats)));
        }
        self.run_cases(&input, cases)
    }

    fn memory(&self, cells: usize) -> Result<Value, String> {
        let input = self.input(cells, GENES, "h5ad")?;
        let repeats = if self.quick { 3 } else { 5 };
        // Its default solver takes a minute for 100,000 cells.
        let of_scanpy = if cells > 20_000 { 3 } else { repeats };
        let scanpy = child::run(self.python_command("scanpy_memory.py")?().arg(&input).arg(of_scanpy.to_string()))?;
        let ours = in_memory(&input, "recipe,copy", repeats)?;
        Ok(json!({ "n_cells": cells, "scanpy": scanpy.report, "ours": ours }))
    }

    fn python(&self, cells: usize) -> Result<Value, String> {
        let input = self.input(cells, GENES, "h5ad")?;
        let arguments = [if self.quick { 1 } else { 3 }, machine::threads()].map(|number| number.to_string());
        let mut report = child::run(self.python_command("zheng17_memory.py")?().arg(&input).args(arguments))?.report;
        let arguments = [if self.quick { "1" } else { "3" }, if self.quick { "2000" } else { "10000" }];
        let dask = child::run(self.python_command("dask_scaling.py")?().arg(&input).args(arguments))?;
        report["dask"] = dask.report;
        Ok(report)
    }

    fn chunks(&self, cells: usize) -> Result<Value, String> {
        let input = self.input(cells, GENES, "h5ad")?;
        let in_memory = in_memory(&input, "chunks,idle", 3)?;
        let sizes = [256, 1024, 4096, 16_384, 65_536_usize];
        let cases = sizes.map(|rows| {
            let mut case = self.ours(&input, "lazy", machine::threads(), &["--chunk-rows", &rows.to_string()], 3);
            case.label["chunk_rows"] = json!(rows);
            case
        });
        let mut measured = self.run_cases(&input, cases.into())?;
        measured["in_memory"] = in_memory;
        Ok(measured)
    }

    fn large(&self, cells: usize) -> Result<Value, String> {
        let input = self.input(cells, GENES_OF_LARGE, "h5")?;
        let mut cases = Vec::new();
        for write_x in ["none", "scaled"] {
            for memory in ["2GiB", "20GiB"] {
                let options = ["--write-x", write_x, "--memory", memory, "--explain"];
                let mut case = self.ours(&input, "auto", machine::threads(), &options, 1);
                case.label["write_x"] = json!(write_x);
                case.label["memory"] = json!(memory);
                case.label["foreseen_bytes"] = self.foreseen(&input, "auto", &options[..4]);
                cases.push(case);
            }
        }
        self.run_cases(&input, cases)
    }

    fn limits(&self, cells: usize, genes: usize, ending: &str) -> Result<Value, String> {
        let input = self.input(cells, genes, ending)?;
        let cases = ["256MiB", "1GiB", "4GiB"].map(|memory| {
            let options = ["--memory", memory];
            let mut case = self.ours(&input, "lazy", machine::threads(), &options, 1);
            case.label["memory"] = json!(memory);
            case.label["foreseen_bytes"] = self.foreseen(&input, "lazy", &options);
            case
        });
        self.run_cases(&input, cases.into())
    }

    /// Runs cases on an input that the system has just read, and says what the input is.
    fn run_cases(&self, input: &Path, cases: Vec<Case>) -> Result<Value, String> {
        let failed = |error: io::Error| format!("{}: {error}", input.display());
        let bytes = io::copy(&mut fs::File::open(input).map_err(failed)?, &mut io::sink()).map_err(failed)?;
        let found = output(&self.program, &["inspect", "--json", &input.to_string_lossy()]).unwrap_or_default();
        let found: Value = serde_json::from_str(&found).map_err(|error| format!("{}: {error}", input.display()))?;
        let cases = child::run_all(cases);
        let mut digests: Vec<&str> =
            cases.iter().filter_map(|case| case["report"]["summary_sha256"].as_str()).collect();
        digests.dedup();
        if digests.len() > 1 {
            return Err(format!("{}: runs differ in their sums: {}", input.display(), digests.join(", ")));
        }
        Ok(json!({
            "n_cells": found["n_cells"],
            "n_genes": found["n_genes"],
            "n_entries": found["n_entries"],
            "bytes": bytes,
            "cases": cases,
        }))
    }

    /// Our program, from file to file.
    fn ours(&self, input: &Path, backend: &str, threads: usize, options: &[&str], repeats: usize) -> Case {
        let label = json!({ "program": "zheng17", "backend": backend, "threads": threads });
        let mut arguments = vec!["run".into(), input.as_os_str().to_owned()];
        arguments.extend(["--output".into(), self.folder.join("ours.h5ad").into()]);
        arguments.extend(["--tmp".into(), self.folder.clone().into()]);
        arguments.extend(["--backend", backend, "--threads", &threads.to_string()].map(Into::into));
        arguments.extend(["--force", "--json", "--pca", "50"].map(Into::into));
        arguments.extend(options.iter().map(Into::into));
        let program = self.program.clone();
        Case::new(label, repeats, move || {
            let mut command = Command::new(&program);
            command.args(&arguments);
            command
        })
    }

    /// The peak memory that `zheng17 plan` foresees; `null` if it refuses.
    fn foreseen(&self, input: &Path, backend: &str, options: &[&str]) -> Value {
        let (input, threads) = (input.to_string_lossy(), machine::threads().to_string());
        let fixed = ["plan", &*input, "--json", "--pca", "50", "--backend", backend, "--threads", &threads];
        let plan = output(&self.program, &[&fixed[..], options].concat()).unwrap_or_default();
        serde_json::from_str::<Value>(&plan).map_or(Value::Null, |plan| plan["peak_memory_bytes"].clone())
    }

    fn python_command(&self, script: &str) -> Result<impl Fn() -> Command + 'static, String> {
        let python = self.python.clone().ok_or("no Python was prepared")?;
        let script = crate::root().join("xtask/python").join(script);
        Ok(move || {
            let mut command = Command::new(&python);
            // Settings of a machine that make numpy's BLAS slower than it is would be unfair.
            command.env_remove("OPENBLAS_CORETYPE").env_remove("OPENBLAS_L2_SIZE").arg(&script);
            command
        })
    }

    /// A file of simulated cells, made if there is none.
    fn input(&self, cells: usize, genes: usize, ending: &str) -> Result<PathBuf, String> {
        let path = self.folder.join(format!("{cells}x{genes}.{ending}"));
        if !path.exists() {
            let mut simulate = Command::new(&self.program);
            simulate.args(["simulate", "--cells", &cells.to_string(), "--genes", &genes.to_string(), "--output"]);
            command::run(simulate.arg(&path))?;
        }
        Ok(path)
    }
}

/// Runs the bench of the recipe in memory.
fn in_memory(input: &Path, parts: &str, repeats: usize) -> Result<Value, String> {
    let mut threads = vec![machine::threads().to_string()];
    let mut fewer = 1;
    while fewer < machine::threads() {
        threads.push(fewer.to_string());
        fewer *= 2;
    }
    threads.rotate_left(1);
    let mut bench = cargo(&["bench", "--quiet", "--package", "zheng17", "--bench", "recipe", "--", "--input"]);
    bench.arg(input).args(["--parts", parts, "--threads", &threads.join(","), "--repeats", &repeats.to_string()]);
    let done = bench.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
    if !done.status.success() {
        return Err(format!("the bench of the recipe in memory: {}", done.status));
    }
    serde_json::from_slice(&done.stdout).map_err(|error| format!("the bench of the recipe in memory: {error}"))
}
