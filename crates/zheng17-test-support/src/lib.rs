//! What tests of several crates need: a folder of real files and a Python with scanpy, which a machine may lack, built example
//! plugins, and the CUDA driver in software.
//!
//! A test that lacks one says so by name through [`skip`] and returns; `cargo xtask test` counts and lists what was skipped.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod software_driver;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use software_driver::software_driver;

/// The environment variable that names the folder of real files, if it is not `../shared`.
pub const SHARED_VARIABLE: &str = "ZHENG17_SHARED";

/// The environment variable that names a Python with anndata, scanpy, h5py and hdf5plugin.
pub const PYTHON_VARIABLE: &str = "ZHENG17_PYTHON";

/// The environment variable that names the file where skipped tests are listed.
pub const SKIPPED_VARIABLE: &str = "ZHENG17_SKIPPED";

/// Why a test without the folder of real files was skipped.
pub const NO_SHARED: &str = "needs the folder shared/ beside the repository, or ZHENG17_SHARED";

/// Why a test without Python was skipped.
pub const NO_PYTHON: &str = "needs ZHENG17_PYTHON, a Python with scanpy, h5py and hdf5plugin";

/// Records that a test was skipped, and why.
pub fn skip(test: &str, why: &str) {
    println!("skipped: {test}: {why}");
    if let Some(list) = std::env::var_os(SKIPPED_VARIABLE)
        && let Ok(mut list) = std::fs::OpenOptions::new().create(true).append(true).open(list)
    {
        // One write, so that lines of tests that run at once don't mix. A list that can't be written loses a line, no test.
        let _ = list.write_all(format!("{test}\t{why}\n").as_bytes());
    }
}

/// The folder of real files, if there is one.
pub fn find_shared() -> Option<PathBuf> {
    let folder = match std::env::var_os(SHARED_VARIABLE) {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    folder.join("data").is_dir().then_some(folder)
}

/// The Python that tests may use, if there is one.
pub fn find_python() -> Option<PathBuf> {
    std::env::var_os(PYTHON_VARIABLE).filter(|python| !python.is_empty()).map(PathBuf::from)
}

/// The folder of real files, or `None` after recording that this test is skipped.
pub fn shared(test: &str) -> Option<PathBuf> {
    let found = find_shared();
    if found.is_none() {
        skip(test, NO_SHARED);
    }
    found
}

/// The Python that tests may use, or `None` after recording that this test is skipped.
pub fn python(test: &str) -> Option<PathBuf> {
    let found = find_python();
    if found.is_none() {
        skip(test, NO_PYTHON);
    }
    found
}

/// Compiles a plugin in C with the system's compiler into a folder.
///
/// # Panics
/// If that fails: every machine that builds this project has a C compiler.
pub fn compile_plugin(source: &Path, options: &[&str], folder: &Path) -> PathBuf {
    let library = folder.join(format!("libplugin{}", std::env::consts::DLL_SUFFIX));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/include");
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-ffp-contract=off", "-fPIC", "-shared"];
    let mut command = Command::new("cc");
    command.args(flags).args(options).arg("-I").args([&include, source]).arg("-o").arg(&library).arg("-lm");
    let status = command.status();
    assert!(status.is_ok_and(|status| status.success()), "cc could not compile {}", source.display());
    library
}

/// The C source of the example in `plugins/`.
pub fn example_in_c() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/example-dynamic-c/example.c")
}

/// Builds the example plugin in Rust, beside the tests that use it and optimised as they are.
///
/// # Panics
/// If that fails.
pub fn example_in_rust() -> PathBuf {
    plugin_in_rust("zheng17-example-dynamic")
}

/// Builds a plugin in Rust, a package of this workspace, beside the tests that use it.
///
/// # Panics
/// If that fails.
pub fn plugin_in_rust(package: &str) -> PathBuf {
    let program = std::env::current_exe().ok();
    // A test program lies in target/PROFILE/deps.
    let target = program.as_ref().and_then(|program| program.ancestors().nth(3));
    let Some(target) = target else { panic!("this test program is in no target folder") };
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command.args(["build", "--quiet", "--package", package, "--target-dir"]).arg(target);
    let folder = if cfg!(debug_assertions) {
        "debug"
    } else {
        command.arg("--release");
        "release"
    };
    assert!(command.status().is_ok_and(|status| status.success()), "{package} could not be built");
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    target.join(folder).join(format!("{prefix}{}{suffix}", package.replace('-', "_")))
}
