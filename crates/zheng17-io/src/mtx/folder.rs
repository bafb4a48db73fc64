//! Which files of a 10x folder belong together: matrix, barcodes and features.
//!
//! Names are `matrix.mtx`, `barcodes.tsv` and `features.tsv` or `genes.tsv`, each with or without `.gz`, all behind the same
//! prefix, which may be empty. Cell Ranger 2 puts them into a sub-folder with the name of the genome.

use std::path::{Path, PathBuf};

use zheng17_core::{Error, Result};

const MATRIX: [&str; 2] = ["matrix.mtx", "matrix.mtx.gz"];
const BARCODES: [&str; 2] = ["barcodes.tsv", "barcodes.tsv.gz"];
const FEATURES: [&str; 4] = ["features.tsv", "features.tsv.gz", "genes.tsv", "genes.tsv.gz"];

/// The files of one matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) matrix: PathBuf,
    pub(super) barcodes: PathBuf,
    pub(super) features: PathBuf,
}

/// What a folder holds.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) files: Files,
    /// Names of sub-folders that hold a matrix, where the folder itself has none.
    pub(super) genomes: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// Finds the matrix of a folder.
///
/// # Errors
/// If there is none, several, or one without barcodes and features; the message lists what was found or tried.
pub(super) fn find_in_folder(folder: &Path, genome: Option<&str>) -> Result<Found> {
    let names = file_names(folder)?;
    let prefixes = matrix_prefixes(&names.files);
    if !prefixes.is_empty() {
        if let Some(genome) = genome {
            let message = format!("genome {genome} was asked for, but the folder has one matrix without genomes");
            return Err(Error::usage(message).at(folder.display()));
        }
        let mut notes = Vec::new();
        let files = find_one(folder, &names.files, &prefixes, &mut notes)?;
        return Ok(Found { files, genomes: Vec::new(), notes });
    }
    let mut inner = Vec::new();
    for name in names.folders {
        let files = file_names(&folder.join(&name))?.files;
        if !matrix_prefixes(&files).is_empty() {
            inner.push((name, files));
        }
    }
    let genomes: Vec<String> = inner.iter().map(|(name, _)| name.clone()).collect();
    let chosen = match (genome, &inner[..]) {
        (_, []) => {
            let tried = MATRIX.join(" or ");
            let message =
                format!("no file in this folder or a sub-folder of it is named {tried}, alone or behind a prefix");
            return Err(Error::input(message).at(folder.display()));
        }
        (None, [only]) => only,
        (None, several) => {
            let message = format!("{} genomes: {}; choose one by --genome", several.len(), genomes.join(", "));
            return Err(Error::usage(message).at(folder.display()));
        }
        (Some(genome), _) => inner.iter().find(|(name, _)| name == genome).ok_or_else(|| {
            Error::usage(format!("there is no genome {genome}; there are: {}", genomes.join(", "))).at(folder.display())
        })?,
    };
    let mut notes = Vec::new();
    let (name, files) = chosen;
    let files = find_one(&folder.join(name), files, &matrix_prefixes(files), &mut notes)?;
    Ok(Found { files, genomes, notes })
}

/// Finds the barcodes and features beside a matrix file, if its name is one of a 10x folder.
///
/// # Errors
/// If the system refuses to list the folder.
pub(super) fn find_beside(matrix: &Path, notes: &mut Vec<String>) -> Result<Option<Files>> {
    let Some(name) = matrix.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    let Some(prefix) = MATRIX.iter().find_map(|end| name.strip_suffix(end)) else { return Ok(None) };
    let folder = match matrix.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let names = file_names(folder)?.files;
    let barcodes = choose(&names, prefix, &BARCODES, notes);
    let features = choose(&names, prefix, &FEATURES, notes);
    Ok(barcodes.zip(features).map(|(barcodes, features)| Files {
        matrix: matrix.to_owned(),
        barcodes: folder.join(barcodes),
        features: folder.join(features),
    }))
}

fn find_one(folder: &Path, names: &[String], prefixes: &[String], notes: &mut Vec<String>) -> Result<Files> {
    let [prefix] = prefixes else {
        let listed: Vec<String> = prefixes.iter().filter_map(|prefix| choose(names, prefix, &MATRIX, notes)).collect();
        let message = format!("{} matrices: {}; give one of these files instead", listed.len(), listed.join(", "));
        return Err(Error::usage(message).at(folder.display()));
    };
    let mut find = |ends: &[&str]| {
        choose(names, prefix, ends, notes).map(|name| folder.join(name)).ok_or_else(|| {
            let tried: Vec<String> = ends.iter().map(|end| format!("{prefix}{end}")).collect();
            let message = format!("there is none of {}", tried.join(", "));
            Error::input(message).at(folder.display())
        })
    };
    Ok(Files { matrix: find(&MATRIX)?, barcodes: find(&BARCODES)?, features: find(&FEATURES)? })
}

/// The first of the names that exists; the others that exist as well are mentioned.
fn choose(names: &[String], prefix: &str, ends: &[&str], notes: &mut Vec<String>) -> Option<String> {
    let mut existing = ends.iter().map(|end| format!("{prefix}{end}")).filter(|name| names.contains(name));
    let first = existing.next()?;
    for other in existing {
        notes.push(format!("The folder has both {first} and {other}; {first} was read."));
    }
    Some(first)
}

/// The prefixes of all matrix files, each once.
fn matrix_prefixes(names: &[String]) -> Vec<String> {
    let mut prefixes: Vec<String> = names
        .iter()
        .filter_map(|name| MATRIX.iter().find_map(|end| name.strip_suffix(end)))
        .map(str::to_owned)
        .collect();
    prefixes.sort();
    prefixes.dedup();
    prefixes
}

struct Names {
    files: Vec<String>,
    folders: Vec<String>,
}

/// Names in a folder, sorted. Names that are not Unicode can't be any that are looked for.
fn file_names(folder: &Path) -> Result<Names> {
    let refused = |error: std::io::Error| Error::from(error).at(folder.display());
    let mut names = Names { files: Vec::new(), folders: Vec::new() };
    for entry in std::fs::read_dir(folder).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if entry.path().is_dir() { names.folders.push(name) } else { names.files.push(name) }
    }
    names.files.sort();
    names.folders.sort();
    Ok(names)
}
