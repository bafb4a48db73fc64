//! Recognises a file by its content and hands it to the reader of its format.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use zheng17_core::error::ResultExt as _;
use zheng17_core::{Error, Result};

use crate::dataset::{Dataset, FeatureTypes, OpenOptions};
use crate::hdf5::{self, Hdf5File, NodeKind, has_dataset, text_attribute};
use crate::{h5ad, mtx, tenx};

/// Opens a file of counts. What it is follows from its content, not from its name.
///
/// # Behavior
/// - Matrices are not loaded, but for Matrix Market files; names and annotations are.
/// - Reading cells of a matrix that is stored by genes (CSC) converts it, within the memory of [`OpenOptions`].
/// - A column of annotations that can't be read is left out, with a note that names it.
///
/// ```no_run
/// use zheng17_io::{OpenOptions, open};
///
/// let dataset = open("counts.h5ad".as_ref(), &OpenOptions::default())?;
/// println!("{}: {:?}", dataset.format, dataset.source.shape());
/// # Ok::<(), zheng17_core::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for options that make no sense for this file, or that leave a choice
/// open; [`ErrorKind::Input`](zheng17_core::ErrorKind::Input) for a file that is damaged or of no known format;
/// [`ErrorKind::Unsupported`](zheng17_core::ErrorKind::Unsupported) for known formats that can't be read. All name the file,
/// and the dataset where there is one.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Dataset> {
    if ZARR_MARKS.iter().any(|mark| path.join(mark).is_file()) {
        return Err(Error::unsupported("not supported yet: zarr").at(path.display()));
    }
    if looks_like_matrix_market(path).at(|| path.display())? {
        return mtx::open_mtx(path, options);
    }
    open_single(path, options).at(|| path.display())
}

/// One of these lies in every folder of a zarr store.
const ZARR_MARKS: [&str; 3] = ["zarr.json", ".zgroup", ".zmetadata"];

/// An HDF5 file on its way to the reader of its format.
#[derive(Clone, Copy)]
pub(crate) struct Opened<'a> {
    pub(crate) file: &'a dyn Hdf5File,
    pub(crate) path: &'a Path,
}

impl Opened<'_> {
    /// The file as messages call it.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Folders, and files that start as Matrix Market or gzip do; no other format that is read starts so.
fn looks_like_matrix_market(path: &Path) -> Result<bool> {
    if std::fs::metadata(path).map_err(cannot_open)?.is_dir() {
        return Ok(true);
    }
    let start = start_of(&open_regular(path)?)?;
    Ok(start.starts_with(b"%%MatrixMarket") || start.starts_with(b"\x1f\x8b"))
}

fn start_of(file: &File) -> Result<Vec<u8>> {
    let mut start = Vec::new();
    file.take(512).read_to_end(&mut start)?;
    Ok(start)
}

fn open_single(path: &Path, options: &OpenOptions) -> Result<Dataset> {
    let file = open_regular(path)?;
    if has_hdf5_signature(&file)? {
        return open_hdf5(path, options);
    }
    Err(Error::input(format!("not a file of counts: {}", what_it_looks_like(&start_of(&file)?))))
}

/// Opens a regular file. Others are refused before they are opened, which for a pipe could wait for ever.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    if !std::fs::metadata(path).map_err(cannot_open)?.is_file() {
        return Err(Error::input("not a regular file; the matrix is read more than once"));
    }
    File::open(path).map_err(cannot_open)
}

fn cannot_open(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Error::input("there is no such file"),
        _ => Error::system("can't be opened").with_source(error),
    }
}

/// HDF5 files start with their signature, or with a block of somebody else's of 512, 1024, 2048, … bytes before it.
fn has_hdf5_signature(file: &File) -> Result<bool> {
    const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
    let length = file.metadata()?.len();
    let mut at = 0;
    while at + SIGNATURE.len() as u64 <= length {
        let mut found = [0; SIGNATURE.len()];
        file.read_exact_at(&mut found, at)?;
        if &found == SIGNATURE {
            return Ok(true);
        }
        at = if at == 0 { 512 } else { at * 2 };
    }
    Ok(false)
}

fn what_it_looks_like(start: &[u8]) -> String {
    let text = std::str::from_utf8(start).or_else(|error| {
        // The cut may go through a character.
        std::str::from_utf8(&start[..error.valid_up_to()])
            .map(|text| if text.len() + 4 > start.len() { text } else { "" })
    });
    match text {
        _ if start.is_empty() => "it is empty".to_owned(),
        _ if start.starts_with(b"PK\x03\x04") => "it is a zip archive".to_owned(),
        Ok(text) if text.starts_with("version https://git-lfs") => {
            "it is a Git LFS pointer, so the real file was not downloaded (git lfs pull)".to_owned()
        }
        Ok(text) if !text.is_empty() && text.chars().all(|c| !c.is_control() || c.is_ascii_whitespace()) => {
            let line: String = text.lines().next().unwrap_or_default().chars().take(60).collect();
            format!("it is a text that starts with {line:?}")
        }
        _ => "its first bytes are of no known format".to_owned(),
    }
}

fn open_hdf5(path: &Path, options: &OpenOptions) -> Result<Dataset> {
    let file = hdf5::open(path)?;
    let file = file.as_ref();
    let opened = Opened { file, path };
    let is_group = |name: &str| Ok::<_, Error>(file.kind(name)? == Some(NodeKind::Group));
    let encoding = text_attribute(file, "", "encoding-type")?;
    if encoding.as_deref() == Some("MuData") || (is_group("mod")? && file.kind("obs")?.is_some()) {
        return Err(Error::unsupported("not supported yet: MuData (h5mu), several AnnData in one file"));
    }
    if has_dataset(file, "matrix")? && is_group("row_attrs")? && is_group("col_attrs")? {
        return Err(Error::unsupported("not supported yet: loom"));
    }
    if encoding.as_deref() == Some("anndata") || (file.kind("obs")?.is_some() && file.kind("var")?.is_some()) {
        return h5ad::open(opened, options);
    }
    if tenx::is_v3(file)? {
        return tenx::open_v3(opened, options);
    }
    let genomes = tenx::v2_genomes(file)?;
    if !genomes.is_empty() {
        return tenx::open_v2(opened, options, genomes);
    }
    let children = file.children("")?;
    Err(Error::input(match children.len() {
        0 => "an HDF5 file that holds nothing".to_owned(),
        n => format!(
            "an HDF5 file, but neither AnnData nor a 10x matrix; it holds {}{}",
            children[..n.min(8)].join(", "),
            if n > 8 { ", …" } else { "" }
        ),
    }))
}

impl OpenOptions {
    /// An error if something was asked for that only AnnData files have.
    pub(crate) fn refuse_h5ad_options(&self, what: &str) -> Result<()> {
        if self.layer.is_some() {
            Err(Error::usage(format!("{what} has no layers")))
        } else if self.raw {
            Err(Error::usage(format!("{what} has no raw")))
        } else {
            Ok(())
        }
    }

    /// An error if something was asked for that only 10x files have.
    pub(crate) fn refuse_tenx_options(&self, what: &str) -> Result<()> {
        if self.genome.is_some() {
            Err(Error::usage(format!("{what} has no genomes to choose from")))
        } else if self.feature_types != FeatureTypes::GeneExpression {
            Err(Error::usage(format!("{what} has no feature types to choose from")))
        } else {
            Ok(())
        }
    }
}
