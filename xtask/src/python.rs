//! Python environments for the tests that need scanpy, and our own package in them: made once, in the target folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{output, run};

/// What the tests import, besides scanpy.
const PACKAGES: [&str; 7] = ["hdf5plugin", "pytest", "dask[array]", "distributed", "tqdm", "matplotlib", "mypy"];

/// What the Python package is also tested with, where it installs: releases of scanpy with the anndata of their time, and what that
/// needs.
pub(crate) const OLDER_SCANPY: [(&str, &[&str]); 2] = [
    ("1.10", &["scanpy==1.10.*", "anndata==0.10.*", "pandas<3", "zarr<3"]),
    ("1.11", &["scanpy==1.11.*", "anndata==0.11.*", "pandas<3", "zarr<3"]),
];

/// An import of each of them.
const IMPORTS: &str = "import scanpy, hdf5plugin, pytest, dask.array, distributed, tqdm, matplotlib, mypy";

/// The Python of an environment with the newest scanpy that the best Python of this machine takes.
///
/// The best Python is the newest up to 3.13 on the PATH or among pyenv's versions; later ones may lack wheels, and come last.
pub(crate) fn environment() -> Result<PathBuf, String> {
    let base = best_python().ok_or("no Python 3.10 or later was found; some tests need one")?;
    make("python", &base, &["scanpy"])
}

/// As [`environment`], with a certain release of scanpy, if it installs.
pub(crate) fn with_scanpy(newest: &Path, version: &str, packages: &[&str]) -> Result<PathBuf, String> {
    make(&format!("python-scanpy-{version}"), newest, packages)
}

fn make(name: &str, base: &Path, scanpy: &[&str]) -> Result<PathBuf, String> {
    let folder = crate::root().join("target").join(name);
    let python = folder.join("bin/python");
    if !has_packages(&python) {
        run(Command::new(base).args(["-m", "venv", "--clear"]).arg(&folder))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(scanpy).args(PACKAGES))?;
    }
    match versions(&python) {
        Some(versions) if has_packages(&python) => {
            println!("{versions}");
            Ok(python)
        }
        _ => Err(format!("{} can't import what the tests need", python.display())),
    }
}

/// Builds the Python package as `pip install` does: a wheel that all versions of Python take.
pub(crate) fn wheel(python: &Path) -> Result<PathBuf, String> {
    let folder = crate::root().join("target/wheels");
    // What was built before may be another version.
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{}: {error}", folder.display()));
        }
        _ => {}
    }
    let package = crate::root().join("crates/zheng17-python");
    let arguments = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"];
    run(Command::new(python).args(arguments).arg(&folder).arg(package))?;
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut wheels = entries.flatten().map(|entry| entry.path());
    wheels.next().ok_or_else(|| format!("{}: no wheel was built", folder.display()))
}

/// Installs a wheel in place of what was there.
pub(crate) fn install(python: &Path, wheel: &Path) -> Result<(), String> {
    let arguments = ["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"];
    run(Command::new(python).args(arguments).arg(wheel))
}

/// The versions of a Python and of what scanpy rests on.
pub(crate) fn versions(python: &Path) -> Option<String> {
    let script = "import sys, scanpy, anndata, h5py; \
                  print('Python', sys.version.split()[0], '· scanpy', scanpy.__version__, '· anndata', \
                  anndata.__version__, '· h5py', h5py.__version__)";
    output(python, &["-W", "ignore", "-c", script])
}

fn has_packages(python: &Path) -> bool {
    output(python, &["-W", "ignore", "-c", IMPORTS]).is_some()
}

/// The newest Python up to 3.13 on the PATH or among pyenv's versions, or a later one.
pub(crate) fn best_python() -> Option<PathBuf> {
    let mut candidates: Vec<PathBuf> = (10..=14).map(|minor| format!("python3.{minor}").into()).collect();
    candidates.push("python3".into());
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    if let Some(versions) = pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok()) {
        candidates.extend(versions.filter_map(Result::ok).map(|version| version.path().join("bin/python3")));
    }
    let known = candidates.into_iter().filter_map(|python| Some((minor_version(&python)?, python)));
    known.max_by_key(|(minor, _)| (*minor <= 13, *minor)).map(|(_, python)| python)
}

fn minor_version(python: &Path) -> Option<u32> {
    let version = output(python, &["-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])"])?;
    let (major, minor) = version.split_once(' ')?;
    let minor = minor.parse().ok()?;
    (major == "3" && minor >= 10).then_some(minor)
}
