//! `cargo xtask conformance`: the suite for the backends of this workspace, or for a plugin that is built first if need be.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;

use crate::command::{self, cargo, read};

/// The methods of `ChunkKernels`.
const FUNCTIONS: [&str; 4] = ["fold_counts", "fold_moments", "select_into", "affine_into"];

/// Options of `cargo xtask conformance`.
#[derive(Args)]
pub(crate) struct ConformanceArguments {
    /// Only this backend.
    #[arg(long)]
    backend: Option<String>,
    /// Only this plugin: a shared library, or a folder with a Cargo.toml or with C sources, which is built first.
    #[arg(long, conflicts_with = "backend", value_name = "PATH")]
    plugin: Option<PathBuf>,
    /// Only cases whose name contains this.
    #[arg(long)]
    case: Option<String>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// How many seconds a case may take; 120 if not given.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    case_limit: Option<u64>,
}

/// Runs the suite.
pub(crate) fn run(arguments: &ConformanceArguments) -> Result<(), String> {
    let mut command = match &arguments.plugin {
        None => suite(),
        Some(path) => {
            let at = |error: String| format!("{}: {error}", path.display());
            let full = path.canonicalize().map_err(|error| at(error.to_string()))?;
            if full.is_dir() { of_folder(&full).map_err(at)? } else { of_library(&full) }
        }
    };
    if let Some(backend) = &arguments.backend {
        command.args(["--backend", backend]);
    }
    if let Some(case) = &arguments.case {
        command.args(["--case", case]);
    }
    if arguments.json {
        command.arg("--json");
    }
    if let Some(limit) = arguments.case_limit {
        command.arg(format!("--case-limit={limit}"));
    }
    let status = command.status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err("the conformance suite did not pass".to_owned()) }
}

fn suite() -> Command {
    cargo(&["run", "--quiet", "--package", "zheng17-conformance", "--"])
}

fn of_library(library: &Path) -> Command {
    let mut command = suite();
    command.arg("--plugin").arg(library);
    command
}

/// Builds what is in a folder; the suite for it.
fn of_folder(folder: &Path) -> Result<Command, String> {
    if folder.join("Cargo.toml").is_file() {
        return of_package(folder);
    }
    let sources = files(folder, "c").map_err(|error| error.to_string())?;
    if sources.is_empty() {
        return Err("is neither a shared library nor a folder with a Cargo.toml or with C sources".to_owned());
    }
    let library = compile(folder, &sources)?;
    eprintln!("built {}", library.display());
    Ok(of_library(&library))
}

/// Compiles C sources with the system's compiler, as `plugins/README.md` says.
fn compile(folder: &Path, sources: &[PathBuf]) -> Result<PathBuf, String> {
    let built = built();
    std::fs::create_dir_all(&built).map_err(|error| format!("{}: {error}", built.display()))?;
    let name = folder.file_name().unwrap_or(OsStr::new("plugin")).to_string_lossy();
    let library = built.join(format!("{}{name}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX));
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-std=c11", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-I"]).arg(folder).arg("-I");
    compiler.arg(crate::root().join("plugins/include")).args(sources).arg("-o").arg(&library).arg("-lm");
    command::run_quietly(&mut compiler)?;
    Ok(library)
}

/// Builds a package: one of this workspace in its target folder, another one in a folder of its own there. Cargo takes packages of
/// other places for one another if they have the same name, so what it has of the other one is forgotten first.
fn of_package(folder: &Path) -> Result<Command, String> {
    let manifest = folder.join("Cargo.toml");
    let with_cargo = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        command.arg("--manifest-path").arg(&manifest);
        command
    };
    let metadata = read(&mut with_cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let is_here = |package: &Value| package["manifest_path"].as_str().map(Path::new) == Some(&manifest);
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    let package = metadata["packages"].as_array().into_iter().flatten().find(|package| is_here(package));
    let package = package.ok_or("is a workspace; name the folder of one of its packages")?;
    let is_member = metadata["workspace_root"].as_str().map(Path::new) == Some(&root());
    let into = if is_member { target() } else { built() };
    if let (false, Some(name)) = (is_member, package["name"].as_str()) {
        let mut clean = with_cargo(&["clean", "--quiet", "--package", name]);
        command::run_quietly(clean.arg("--target-dir").arg(&into))?;
    }
    let targets = || package["targets"].as_array().into_iter().flatten();

    if targets().any(|target| has(&target["kind"], "cdylib")) {
        let mut build = with_cargo(&["build", "--quiet", "--lib", "--message-format", "json-render-diagnostics"]);
        let messages = read(build.arg("--target-dir").arg(&into))?;
        let mut messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let library = messages.find(|message| is_here(message) && has(&message["target"]["kind"], "cdylib"));
        let library = library.and_then(|message| {
            let files = message["filenames"].as_array()?.iter().filter_map(Value::as_str);
            files.map(PathBuf::from).find(|file| file.extension() == Some(OsStr::new(std::env::consts::DLL_EXTENSION)))
        });
        let library = library.ok_or("cargo made no shared library of it")?;
        eprintln!("built {}", library.display());
        return Ok(of_library(&library));
    }
    if targets().any(|target| has(&target["kind"], "test") && target["name"] == "conformance") {
        let mut test = with_cargo(&["test", "--quiet", "--test", "conformance"]);
        test.arg("--target-dir").arg(&into).args(["--", "--report"]);
        if let Some(written) = written(folder).map_err(|error| error.to_string())? {
            test.arg(format!("--written={}", written.join(",")));
        }
        return Ok(test);
    }
    Err("the package is not a plugin: it has neither a library of the kind \"cdylib\" nor a test \"conformance\""
        .to_owned())
}

/// The methods of `ChunkKernels` that stand in the sources of a package, if it implements the trait.
fn written(folder: &Path) -> io::Result<Option<Vec<&'static str>>> {
    let mut text = String::new();
    for source in files(&folder.join("src"), "rs")? {
        text.push_str(&std::fs::read_to_string(source)?);
    }
    let is_written = |function: &&str| text.contains(&format!("fn {function}("));
    Ok(text.contains("ChunkKernels for").then(|| FUNCTIONS.into_iter().filter(is_written).collect()))
}

fn files(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut files = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.retain(|path| path.extension() == Some(OsStr::new(extension)));
    files.sort();
    Ok(files)
}

fn has(list: &Value, wanted: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|word| word == wanted))
}

fn root() -> PathBuf {
    let root = crate::root();
    root.canonicalize().unwrap_or(root)
}

fn target() -> PathBuf {
    root().join("target")
}

/// Where plugins of other places are built: nothing of this workspace is overwritten there.
fn built() -> PathBuf {
    target().join("plugins")
}
