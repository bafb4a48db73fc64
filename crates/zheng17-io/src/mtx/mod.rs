//! Matrix Market files: the folders that 10x writes, and single files.
//!
//! The text is parsed as it is read, in constant memory; the matrix is kept in memory, as CSR by cells. Features are chosen
//! while reading, so those left out take no room. This module knows nothing of HDF5.
//!
//! A matrix of 10x has genes as rows and cells as columns. With lists of barcodes and features beside it, a matrix that fits
//! them only the other way round is read the other way round; a file without lists is taken as 10x would have written it.

mod folder;
mod lines;
mod names;
mod parse;

use std::path::Path;
use std::sync::Arc;

use zheng17_core::matrix::GeneMap;
use zheng17_core::source::MemorySource;
use zheng17_core::{Error, Result};

use crate::dataset::{Choices, Dataset, FeatureTypes, Format, Layout, MatrixInfo, OpenOptions};
use crate::features::{INDEX, keep_types, types_of};
use crate::table::{ColumnData, Table};

use folder::Files;
use names::Features;
use parse::{Header, MtxFile, Orientation};

/// Opens a folder of matrix, barcodes and features, or a Matrix Market file, plain or compressed with gzip.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for options that the format doesn't have or that choose nothing;
/// [`ErrorKind::Input`](zheng17_core::ErrorKind::Input) for missing or damaged files, naming file and line.
pub(crate) fn open_mtx(path: &Path, options: &OpenOptions) -> Result<Dataset> {
    if options.layer.is_some() || options.raw {
        let what = if options.raw { "raw" } else { "layers" };
        return Err(Error::usage(format!("Matrix Market files have no {what}")).at(path.display()));
    }
    if path.is_dir() {
        let found = folder::find_in_folder(path, options.genome.as_deref())?;
        let choices = Choices { genomes: found.genomes, ..Choices::default() };
        return open_with_names(path, &found.files, options, choices, found.notes);
    }
    if let Some(genome) = &options.genome {
        let message = format!("genome {genome} was asked for, but a Matrix Market file has no genomes");
        return Err(Error::usage(message).at(path.display()));
    }
    let mut notes = Vec::new();
    match folder::find_beside(path, &mut notes)? {
        Some(files) => open_with_names(path, &files, options, Choices::default(), notes),
        None => open_alone(path, options),
    }
}

fn open_with_names(
    path: &Path,
    files: &Files,
    options: &OpenOptions,
    mut choices: Choices,
    mut notes: Vec<String>,
) -> Result<Dataset> {
    let barcodes = names::read_barcodes(&files.barcodes)?;
    let features = names::read_features(&files.features)?;
    let matrix = MtxFile::open(&files.matrix)?;
    let (header, gzip) = (matrix.header, matrix.gzip());
    let orientation = fitting_orientation(header, barcodes.len(), &features).map_err(|complaint| {
        let (barcodes, features) = (files.barcodes.display(), files.features.display());
        Error::input(format!("{complaint} ({features}, {barcodes})")).at(files.matrix.display())
    })?;
    if orientation == Orientation::CellsByGenes {
        notes.push("The matrix has cells as rows and genes as columns; it was read that way round.".to_owned());
    }

    let mut var = Table::from_index(INDEX, features.names);
    var.set("gene_ids", ColumnData::Strings(features.ids));
    var.set("feature_types", ColumnData::Strings(features.types));
    choices.feature_types = types_of(&var);
    let mut kept: Vec<usize> = (0..var.n_rows()).collect();
    keep_types(&var, &options.feature_types, &mut kept, &mut notes)
        .map_err(|error| error.at(files.features.display()))?;
    let matrix = matrix.read(orientation, &GeneMap::new(var.n_rows(), &kept))?;
    if kept.len() < var.n_rows() {
        var = var.select(&kept);
    }

    let mut source = MemorySource::new(matrix, files.matrix.display().to_string())?;
    source.cell_names = barcodes.iter().map(str::to_owned).collect();
    source.gene_names = var.index.iter().map(str::to_owned).collect();
    let location = files.matrix.strip_prefix(path).ok().filter(|inside| !inside.as_os_str().is_empty());
    let location = location.map_or_else(|| file_name(&files.matrix), |inside| inside.display().to_string());
    Ok(Dataset {
        path: path.to_owned(),
        format: Format::TenxMtx,
        matrix: describe(location, header, gzip),
        source: Arc::new(source),
        obs: Table::from_index(INDEX, barcodes),
        var,
        logged: false,
        choices,
        notes,
    })
}

/// A matrix without lists: cells and genes are named by their positions from 0, as AnnData does.
fn open_alone(path: &Path, options: &OpenOptions) -> Result<Dataset> {
    if let FeatureTypes::Named(wanted) = &options.feature_types {
        let message = format!("{wanted} was asked for, but no list of features lies beside the matrix");
        return Err(Error::usage(message).at(path.display()));
    }
    let matrix = MtxFile::open(path)?;
    let (header, gzip) = (matrix.header, matrix.gzip());
    let orientation = Orientation::GenesByCells;
    let shape = header.shape(orientation).map_err(|error| error.at(path.display()))?;
    let all: Vec<usize> = (0..shape.n_genes).collect();
    let matrix = matrix.read(orientation, &GeneMap::new(shape.n_genes, &all))?;
    let positions = |n: usize| (0..n).map(|at| at.to_string()).collect();
    Ok(Dataset {
        path: path.to_owned(),
        format: Format::Mtx,
        matrix: describe(file_name(path), header, gzip),
        source: Arc::new(MemorySource::new(matrix, path.display().to_string())?),
        obs: Table::from_index(INDEX, positions(shape.n_cells)),
        var: Table::from_index(INDEX, positions(shape.n_genes)),
        logged: false,
        choices: Choices::default(),
        notes: vec![format!(
            "No barcodes and features lie beside the file, so rows were taken as {} genes and columns as {} cells, as 10x \
             writes them.",
            shape.n_genes, shape.n_cells
        )],
    })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).display().to_string()
}

fn describe(location: String, header: Header, gzip: bool) -> MatrixInfo {
    MatrixInfo {
        location,
        layout: Layout::Coordinate,
        value_type: if header.integers { "int64" } else { "float64" }.to_owned(),
        index_type: None,
        compression: if gzip { "gzip" } else { "" }.to_owned(),
    }
}

/// The way round in which the matrix fits its lists; as 10x writes it where both do.
fn fitting_orientation(header: Header, n_cells: usize, features: &Features) -> Result<Orientation, String> {
    let n_genes = features.ids.len();
    let fits = |cells: u64, genes: u64| cells == n_cells as u64 && genes == n_genes as u64;
    if fits(header.n_columns, header.n_rows) {
        Ok(Orientation::GenesByCells)
    } else if fits(header.n_rows, header.n_columns) {
        Ok(Orientation::CellsByGenes)
    } else {
        Err(format!(
            "the matrix has {} rows and {} columns, but the lists beside it have {n_genes} features and {n_cells} barcodes",
            header.n_rows, header.n_columns
        ))
    }
}

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
