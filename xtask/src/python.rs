//! A Python environment for the tests that need scanpy: made once, in the target folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{output, run};

/// What the tests import.
const PACKAGES: [&str; 2] = ["scanpy", "hdf5plugin"];

/// The Python of an environment with the newest scanpy that the best Python of this machine takes.
///
/// The best Python is the newest up to 3.13 on the PATH or among pyenv's versions; later ones may lack wheels, and come last.
pub(crate) fn environment() -> Result<PathBuf, String> {
    let folder = crate::root().join("target/python");
    let python = folder.join("bin/python");
    if !has_packages(&python) {
        let base = best_python().ok_or("no Python 3.10 or later was found; some tests need one")?;
        run(Command::new(base).args(["-m", "venv", "--clear"]).arg(&folder))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
    }
    match versions(&python) {
        Some(versions) => {
            println!("{versions}");
            Ok(python)
        }
        None => Err(format!("{} can't import {}", python.display(), PACKAGES.join(" and "))),
    }
}

/// The versions of a Python and of what scanpy rests on.
pub(crate) fn versions(python: &Path) -> Option<String> {
    let script = "import sys, scanpy, anndata, h5py; \
                  print('Python', sys.version.split()[0], '· scanpy', scanpy.__version__, '· anndata', \
                  anndata.__version__, '· h5py', h5py.__version__)";
    output(python, &["-W", "ignore", "-c", script])
}

fn has_packages(python: &Path) -> bool {
    output(python, &["-W", "ignore", "-c", "import scanpy, hdf5plugin"]).is_some()
}

fn best_python() -> Option<PathBuf> {
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
