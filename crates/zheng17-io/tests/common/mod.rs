//! Tests whose input may be missing: real files beside the repository, and a Python to compare with.
//!
//! They run under `libtest-mimic`, which lists what can't run as ignored, with the reason in front of its name.

#![allow(dead_code, reason = "each test program uses its part")]

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};
use zheng17_core::matrix::ValueKind;
use zheng17_core::source::CheckedSource;
use zheng17_core::{ChunkSource, CsrBuffer};
use zheng17_io::Dataset;

/// The folder of real files and scripts: `ZHENG17_SHARED`, or `shared` beside the repository.
pub(crate) fn shared() -> Option<PathBuf> {
    let folder = match std::env::var_os("ZHENG17_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    folder.join("data/MANIFEST.tsv").is_file().then_some(folder)
}

/// The Python to compare with: `ZHENG17_PYTHON`, which must have h5py, hdf5plugin and anndata.
pub(crate) fn python() -> Option<PathBuf> {
    std::env::var_os("ZHENG17_PYTHON").filter(|python| !python.is_empty()).map(PathBuf::from)
}

/// A test that needs something. Without it the test is ignored and says so.
pub(crate) fn needing<T: Send + 'static>(
    name: impl Into<String>,
    needed: Option<T>,
    otherwise: &str,
    test: impl FnOnce(T) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    match needed {
        Some(needed) => Trial::test(name, move || test(needed)),
        None => Trial::test(name, || Ok(())).with_kind(otherwise).with_ignored_flag(true),
    }
}

pub(crate) const NO_SHARED: &str = "skipped: no folder of real files";
pub(crate) const NO_PYTHON: &str = "skipped: ZHENG17_PYTHON is not set";

/// Reads all cells through the check that every run uses.
pub(crate) fn read_checked(dataset: &Dataset, chunk_rows: usize) -> zheng17_core::Result<CsrBuffer> {
    read(&CheckedSource::new(dataset.source.clone())?, chunk_rows)
}

/// Reads all cells, so many at once.
pub(crate) fn read(source: &dyn ChunkSource, chunk_rows: usize) -> zheng17_core::Result<CsrBuffer> {
    let shape = source.shape();
    let mut whole = CsrBuffer::new(shape.n_genes, ValueKind::F32);
    let mut chunk = CsrBuffer::new(shape.n_genes, ValueKind::F32);
    for start in (0..shape.n_cells).step_by(chunk_rows) {
        source.read_cells(start..(start + chunk_rows).min(shape.n_cells), &mut chunk)?;
        whole.append(chunk.view());
    }
    Ok(whole)
}
