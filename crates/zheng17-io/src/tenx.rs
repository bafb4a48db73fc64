//! Cell Ranger's HDF5 files: features × cells by columns, which is cells × features by rows.
//!
//! Version 3 has one group `matrix` with a group of features, version 2 a group for each genome.

use zheng17_core::error::ResultExt as _;
use zheng17_core::{Error, Result, Shape};

use crate::dataset::{Choices, Dataset, FeatureTypes, Format, Layout, OpenOptions};
use crate::features::{INDEX, distinct, keep_types, rows_with, types_of};
use crate::hdf5::{Array, Hdf5File, NodeKind, has_dataset, read_all, read_texts};
use crate::matrix::{Names, StoredMatrix};
use crate::open::Opened;
use crate::table::{Column, ColumnData, Table, Texts};

/// Whether a file has version 3's layout.
pub(crate) fn is_v3(file: &dyn Hdf5File) -> Result<bool> {
    Ok(file.kind("matrix")? == Some(NodeKind::Group)
        && file.kind("matrix/features")? == Some(NodeKind::Group)
        && has_dataset(file, "matrix/indptr")?)
}

/// The genomes of a file in version 2's layout: groups that hold a matrix and its genes. Other things are ignored.
pub(crate) fn v2_genomes(file: &dyn Hdf5File) -> Result<Vec<String>> {
    let mut genomes = Vec::new();
    for name in file.children("")? {
        if file.kind(&name)? == Some(NodeKind::Group) {
            let members = file.children(&name)?;
            let has = |member: &str| members.iter().any(|name| name == member);
            if ["data", "indices", "indptr", "shape", "barcodes", "genes"].into_iter().all(has) {
                genomes.push(name);
            }
        }
    }
    Ok(genomes)
}

/// Opens a file in version 3's layout.
pub(crate) fn open_v3(opened: Opened<'_>, options: &OpenOptions) -> Result<Dataset> {
    let Opened { file, path } = opened;
    options.refuse_h5ad_options("a 10x file")?;
    let shape = stored_shape(file, "matrix")?;
    let mut var = features(file, shape.n_genes)?;
    let obs = barcodes(file, "matrix", shape.n_cells)?;
    let mut notes = Vec::new();
    let mut kept: Vec<usize> = (0..shape.n_genes).collect();

    // Antibodies and the like have an empty text for a genome.
    let genomes = distinct(&var, "genome").into_iter().map(|(genome, _)| genome).filter(|genome| !genome.is_empty());
    let genomes: Vec<String> = genomes.collect();
    let feature_types = types_of(&var);
    if let Some(genome) = &options.genome {
        kept = rows_with(&var, "genome", genome);
        if kept.is_empty() {
            return Err(Error::usage(match genomes.as_slice() {
                [] => "a genome was asked for, but the features of this file name none".to_owned(),
                genomes => format!("there is no genome {genome:?}; there is {}", list(genomes)),
            }));
        }
        let n_left_out = shape.n_genes - kept.len();
        if n_left_out > 0 {
            notes.push(format!("{n_left_out} features of other genomes than {genome} were left out."));
        }
    }
    keep_types(&var, &options.feature_types, &mut kept, &mut notes)?;

    let all = kept.len() == shape.n_genes;
    if !all {
        var = var.select(&kept);
    }
    let names = Names { file: opened.name(), cells: obs.index.clone(), genes: var.index.clone() };
    let matrix = StoredMatrix { location: "matrix".to_owned(), layout: Layout::Csr, shape };
    let matrix =
        if all { matrix.open(file, names, options.memory())? } else { matrix.open_columns(file, &kept, names)? };
    notes.extend(matrix.notes);
    Ok(Dataset {
        path: path.to_owned(),
        format: Format::TenxV3,
        matrix: matrix.info,
        source: matrix.source,
        obs,
        var,
        logged: false,
        choices: Choices { genomes, feature_types, ..Choices::default() },
        notes,
    })
}

/// Opens a file in version 2's layout. `genomes` is not empty.
pub(crate) fn open_v2(opened: Opened<'_>, options: &OpenOptions, genomes: Vec<String>) -> Result<Dataset> {
    let Opened { file, path } = opened;
    options.refuse_h5ad_options("a 10x file")?;
    if options.feature_types != FeatureTypes::GeneExpression {
        return Err(Error::usage("files of Cell Ranger 2 have no feature types to choose from"));
    }
    let genome = match (&options.genome, genomes.as_slice()) {
        (Some(genome), genomes) if genomes.contains(genome) => genome.clone(),
        (Some(genome), genomes) => {
            return Err(Error::usage(format!("there is no genome {genome:?}; there is {}", list(genomes))));
        }
        (None, [only]) => only.clone(),
        (None, genomes) => {
            return Err(Error::usage(format!(
                "there are several genomes, choose one with --genome: {}",
                list(genomes)
            )));
        }
    };
    let shape = stored_shape(file, &genome)?;
    let obs = barcodes(file, &genome, shape.n_cells)?;
    let ids = texts(file, &format!("{genome}/genes"), shape.n_genes)?;
    let gene_names = format!("{genome}/gene_names");
    let index = if has_dataset(file, &gene_names)? { texts(file, &gene_names, shape.n_genes)? } else { ids.clone() };
    let mut var = Table::from_index(INDEX, index);
    var.set("gene_ids", ColumnData::Strings(ids));
    let names = Names { file: opened.name(), cells: obs.index.clone(), genes: var.index.clone() };
    let matrix = StoredMatrix { location: genome, layout: Layout::Csr, shape };
    let matrix = matrix.open(file, names, options.memory())?;
    Ok(Dataset {
        path: path.to_owned(),
        format: Format::TenxV2,
        matrix: matrix.info,
        source: matrix.source,
        obs,
        var,
        logged: false,
        choices: Choices { genomes, ..Choices::default() },
        notes: matrix.notes,
    })
}

/// Cells × features, from what the file states as features × cells.
fn stored_shape(file: &dyn Hdf5File, group: &str) -> Result<Shape> {
    let path = format!("{group}/shape");
    let shape = read_all(file, &path)?.into_positions().at(|| &path)?;
    match shape.as_slice() {
        &[n_genes, n_cells] => Ok(Shape { n_cells: n_cells as usize, n_genes: n_genes as usize }),
        other => Err(Error::input(format!("{} numbers instead of 2", other.len())).at(path)),
    }
}

fn barcodes(file: &dyn Hdf5File, group: &str, n_cells: usize) -> Result<Table> {
    Ok(Table::from_index(INDEX, texts(file, &format!("{group}/barcodes"), n_cells)?))
}

fn texts(file: &dyn Hdf5File, path: &str, n: usize) -> Result<Texts> {
    let texts = read_texts(file, path)?;
    if texts.len() == n {
        Ok(texts)
    } else {
        Err(Error::input(format!("{} texts instead of {n}", texts.len())).at(path))
    }
}

/// The table of features, with the column names that scanpy gives them. Further columns keep theirs.
fn features(file: &dyn Hdf5File, n: usize) -> Result<Table> {
    let ids = texts(file, "matrix/features/id", n)?;
    let mut others = Vec::new();
    let mut index = None;
    for member in file.children("matrix/features")? {
        let path = format!("matrix/features/{member}");
        // `_all_tag_keys` lists the columns that reference builds added; it is no column itself.
        if member == "id" || member.starts_with('_') || file.kind(&path)? != Some(NodeKind::Dataset) {
            continue;
        }
        let column = match read_all(file, &path)? {
            Array::Strings(texts) => ColumnData::Strings(texts.into()),
            Array::Numbers(numbers) => ColumnData::Numbers(numbers),
            Array::Bools(flags) => ColumnData::Bools(flags),
            other => return Err(Error::input(format!("a column of {}", other.describe())).at(path)),
        };
        if column.len() != n {
            return Err(Error::input(format!("{} values for {n} features", column.len())).at(path));
        }
        match (member.as_str(), column) {
            ("name", ColumnData::Strings(names)) => index = Some(names),
            ("feature_type", column) => others.insert(0, Column { name: "feature_types".to_owned(), data: column }),
            (_, data) => others.push(Column { name: member, data }),
        }
    }
    let mut table = Table::from_index(INDEX, index.unwrap_or_else(|| ids.clone()));
    table.set("gene_ids", ColumnData::Strings(ids));
    table.columns.extend(others);
    Ok(table)
}

fn list(names: &[String]) -> String {
    names.join(", ")
}
