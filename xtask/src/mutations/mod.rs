//! `cargo xtask mutations`: faults put into the CUDA backend on purpose, one at a time, each of which a test must find. A test that
//! stays green with the fault that it is there for tests nothing.
//!
//! A fault goes into a copy of the package, never into the checkout. Cargo compiles what the package needs, once; the copy and its
//! tests are compiled by rustc alone, without optimisation, which takes seconds.

mod table;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{cargo, read};

/// What `cargo xtask mutations` takes.
#[derive(Args)]
pub(crate) struct MutationsArguments {
    /// Only faults whose name contains this.
    name: Option<String>,
}

/// The package that faults are put into.
const PACKAGE: &str = "zheng17-cuda";

/// Its test program that must find them.
const PROGRAM: &str = "software_driver";

/// What the package is made of.
const FOLDERS: [&str; 5] = ["src", "ptx", "kernels", "emulator", "tests"];

/// The most time that the tests may take.
const LIMIT: Duration = Duration::from_mins(2);

/// One fault: a text of a file of the package, what takes its place, and the test that fails then.
struct Mutation {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    test: &'static str,
}

/// What came of all of them.
pub(crate) struct Outcome {
    pub(crate) found: u64,
    pub(crate) not_found: u64,
    /// Why none was tried.
    pub(crate) skipped: Option<String>,
}

/// Runs the task.
pub(crate) fn run_task(arguments: &MutationsArguments) -> Result<(), String> {
    let wanted = arguments.name.as_deref().unwrap_or_default();
    let outcome = run(&["--package", PACKAGE, "--test", PROGRAM], wanted)?;
    if let Some(why) = outcome.skipped {
        return Err(why);
    }
    println!("\n{} found, {} not found", outcome.found, outcome.not_found);
    if outcome.not_found > 0 { Err("not every fault is found".to_owned()) } else { Ok(()) }
}

/// Tries all faults whose name contains a word. `selection` says what cargo compiles first: the tests of the package, and more
/// where more was compiled before.
pub(crate) fn run(selection: &[&str], wanted: &str) -> Result<Outcome, String> {
    let mutations: Vec<&Mutation> = table::MUTATIONS.iter().filter(|mutation| mutation.name.contains(wanted)).collect();
    if mutations.is_empty() {
        return Err(format!("no fault has a name with {wanted}"));
    }
    let workshop = Workshop::open(selection)?;
    let mut tests: Vec<&str> = mutations.iter().map(|mutation| mutation.test).collect();
    tests.sort_unstable();
    tests.dedup();
    // The package as it is comes first: what a test says of a fault counts only if it passes without.
    let jobs: Vec<Option<&Mutation>> = std::iter::once(None).chain(mutations.into_iter().map(Some)).collect();
    let (next, counts, as_it_is) = (AtomicUsize::new(0), Mutex::new([0, 0]), OnceLock::new());
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(mutation) = job else {
                let ran = workshop.build(None).and_then(|built| built.run(&tests));
                let _ = as_it_is.set(ran);
                continue;
            };
            let outcome = workshop.try_out(mutation);
            match &outcome {
                Ok(()) => println!("mutation {} ... found by {}", mutation.name, mutation.test),
                Err(error) => println!("mutation {} ... FAILED: {error}", mutation.name),
            }
            if let Ok(mut counts) = counts.lock() {
                counts[usize::from(outcome.is_err())] += 1;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let as_it_is = as_it_is.into_inner().ok_or("the tests did not run")??;
    if let Some(why) = as_it_is.skipped {
        return Ok(Outcome { found: 0, not_found: 0, skipped: Some(why) });
    }
    if let Some(test) = tests.iter().find(|test| as_it_is.ends.get(**test) != Some(&true)) {
        return Err(format!("{test} does not pass without a fault:\n{}", as_it_is.text));
    }
    let [found, not_found] = counts.into_inner().map_err(|error| error.to_string())?;
    Ok(Outcome { found, not_found, skipped: None })
}

/// Where copies of the package are made and compiled.
struct Workshop {
    package: PathBuf,
    target: PathBuf,
    /// The compiled packages that it needs, by their names in sources.
    libraries: BTreeMap<String, PathBuf>,
}

impl Workshop {
    /// Lets cargo compile what the package needs.
    fn open(selection: &[&str]) -> Result<Self, String> {
        let metadata = read(&mut cargo(&["metadata", "--format-version", "1"]))?;
        let metadata: Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let packages = list(&metadata["packages"]);
        let package = packages.iter().find(|package| package["name"] == PACKAGE).ok_or("there is no such package")?;
        let nodes = list(&metadata["resolve"]["nodes"]);
        let node = nodes.iter().find(|node| node["id"] == package["id"]).ok_or("cargo does not know the package")?;

        let compile = [&["test", "--no-run", "--message-format", "json-render-diagnostics"], selection].concat();
        let messages = read(&mut cargo(&compile))?;
        let mut compiled = BTreeMap::new();
        for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let mut files = list(&message["filenames"]).into_iter().map(|file| PathBuf::from(text(&file)));
            if let Some(library) = files.find(|file| file.extension() == Some(OsStr::new("rlib"))) {
                compiled.insert(text(&message["package_id"]), library);
            }
        }
        let mut libraries = BTreeMap::new();
        for needed in list(&node["deps"]) {
            let library = compiled.get(&text(&needed["pkg"])).ok_or("cargo did not say what it compiled")?;
            libraries.insert(text(&needed["name"]), library.clone());
        }
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        Ok(Self {
            package: manifest.parent().unwrap_or(&manifest).to_owned(),
            target: PathBuf::from(text(&metadata["target_directory"])),
            libraries,
        })
    }

    /// Succeeds if the test fails.
    fn try_out(&self, mutation: &Mutation) -> Result<(), String> {
        let Mutation { test, .. } = mutation;
        let ran = self.build(Some(mutation))?.run(&[test])?;
        match ran.ends.get(*test) {
            Some(false) => Ok(()),
            Some(true) => Err(format!("{test} passes all the same")),
            None => Err(format!("{test} came to no end:\n{}", ran.text)),
        }
    }

    /// Copies the package, puts a fault in, and compiles library and tests.
    fn build(&self, mutation: Option<&Mutation>) -> Result<Built, String> {
        let at = |error: std::io::Error| format!("{}: {error}", self.target.display());
        let folder = tempfile::Builder::new().prefix("mutation-").tempdir_in(&self.target).map_err(at)?;
        let copy = folder.path().join("package");
        for name in FOLDERS {
            copy_folder(&self.package.join(name), &copy.join(name)).map_err(at)?;
        }
        if let Some(Mutation { file, from, to, .. }) = mutation {
            let path = copy.join(file);
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{file}: {error}"))?;
            match text.matches(from).count() {
                0 => return Err(format!("{file} no longer has the text {from}")),
                1 => std::fs::write(&path, text.replacen(from, to, 1)).map_err(at)?,
                n => return Err(format!("{file} has {n} times the text {from}")),
            }
        }
        // The software driver is compiled again only if it is another one.
        let shared = self.target.join("tmp");
        let is_host = mutation.is_none_or(|mutation| mutation.file.starts_with("src/"));
        let for_driver = if is_host { shared } else { folder.path().join("tmp") };
        std::fs::create_dir_all(&for_driver).map_err(at)?;
        let rustc = || {
            let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
            command.args(["--edition", "2024", "--cap-lints", "allow", "--out-dir"]).arg(folder.path());
            command.env("CARGO_PKG_NAME", PACKAGE).env("CARGO_MANIFEST_DIR", &copy);
            command.env("CARGO_TARGET_TMPDIR", &for_driver);
            for (name, library) in &self.libraries {
                command.arg("--extern").arg(assignment(name, library));
                command.arg("-L").arg(assignment("dependency", library.parent().unwrap_or(library)));
            }
            command
        };
        let name = PACKAGE.replace('-', "_");
        succeed(rustc().args(["--crate-type", "rlib", "--crate-name", &name]).arg(copy.join("src/lib.rs")))?;
        let library = folder.path().join(format!("lib{name}.rlib"));
        let mut tests = rustc();
        tests.arg("--extern").arg(assignment(&name, &library)).args(["--test", "--crate-name", PROGRAM]);
        succeed(tests.arg(copy.join("tests").join(PROGRAM).with_extension("rs")))?;
        Ok(Built { folder })
    }
}

/// A package with a fault, compiled. It is gone when this is dropped.
struct Built {
    folder: TempDir,
}

/// What tests said.
struct Ran {
    /// Whether they passed, by their names.
    ends: BTreeMap<String, bool>,
    /// Why one was skipped.
    skipped: Option<String>,
    text: String,
}

impl Built {
    fn run(&self, tests: &[&str]) -> Result<Ran, String> {
        let at = |error: std::io::Error| format!("{}: {error}", self.folder.path().display());
        let (said, skipped) = (self.folder.path().join("said"), self.folder.path().join("skipped"));
        let file = std::fs::File::create(&said).map_err(at)?;
        let mut command = Command::new(self.folder.path().join(PROGRAM));
        command.args(["--exact", "--test-threads", "1"]).args(tests).env("ZHENG17_SKIPPED", &skipped);
        let mut child =
            command.stdout(file.try_clone().map_err(at)?).stderr(file).stdin(Stdio::null()).spawn().map_err(at)?;
        let begin = Instant::now();
        while child.try_wait().map_err(at)?.is_none() {
            if begin.elapsed() > LIMIT {
                child.kill().and_then(|()| child.wait()).map_err(at)?;
                return Err(format!("{} did not end within {LIMIT:?}", tests.join(", ")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let text = std::fs::read_to_string(&said).map_err(at)?;
        let ends = text.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
        let ends = ends.filter_map(|(test, end)| match end {
            "ok" => Some((test.to_owned(), true)),
            "FAILED" => Some((test.to_owned(), false)),
            _ => None,
        });
        let ends = ends.collect();
        let skipped = std::fs::read_to_string(skipped).ok();
        let skipped = skipped.and_then(|list| Some(list.lines().next()?.split_once('\t')?.1.to_owned()));
        Ok(Ran { ends, skipped, text })
    }
}

/// Copies the files of a folder and of those in it. They keep the time when they were written.
fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), &to)?;
            std::fs::File::options().append(true).open(&to)?.set_modified(entry.metadata()?.modified()?)?;
        }
    }
    Ok(())
}

fn assignment(name: &str, path: &Path) -> OsString {
    let mut text = OsString::from(name);
    text.push("=");
    text.push(path);
    text
}

/// Runs the compiler.
fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("rustc: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("it does not compile:\n{}", String::from_utf8_lossy(&output.stderr)))
}
