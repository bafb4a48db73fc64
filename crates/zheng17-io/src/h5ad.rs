//! AnnData in HDF5, from 0.5 to 0.13: which matrix was asked for, how it is encoded, and the frames that go with it.

use zheng17_core::error::ResultExt as _;
use zheng17_core::{Error, Result, Shape};

use crate::dataset::{Choices, Dataset, Format, Layout, OpenOptions};
use crate::frame::read_frame;
use crate::hdf5::{Hdf5File, NodeKind, text_attribute};
use crate::matrix::{Names, StoredMatrix};
use crate::open::Opened;

/// Opens an AnnData file.
pub(crate) fn open(opened: Opened<'_>, options: &OpenOptions) -> Result<Dataset> {
    let file = opened.file;
    options.refuse_tenx_options("an AnnData file")?;
    let choices = choices(file)?;
    let Chosen { matrix, var } = choose(file, options, &choices)?;
    let logged = matrix == "X" && file.kind("uns/log1p")?.is_some();
    let stored = stored_matrix(file, matrix)?;
    let mut notes = Vec::new();
    let obs = read_frame(file, "obs", stored.shape.n_cells, &mut notes)?;
    let var = read_frame(file, &var, stored.shape.n_genes, &mut notes)?;
    let names = Names { file: opened.name(), cells: obs.index.clone(), genes: var.index.clone() };
    let matrix = stored.open(file, names, options.memory())?;
    notes.extend(matrix.notes);
    Ok(Dataset {
        path: opened.path.to_owned(),
        format: Format::H5ad,
        matrix: matrix.info,
        source: matrix.source,
        obs,
        var,
        logged,
        choices,
        notes,
    })
}

/// Places of the chosen matrix and of the frame of its genes.
struct Chosen {
    matrix: String,
    var: String,
}

fn choices(file: &dyn Hdf5File) -> Result<Choices> {
    let layers = match file.kind("layers")? {
        Some(NodeKind::Group) => file.children("layers")?,
        _ => Vec::new(),
    };
    Ok(Choices { layers, raw: raw_matrix(file)?.is_some(), ..Choices::default() })
}

/// Places of the raw matrix and its genes. Until 0.6 they stood at the root with a dot in their names.
fn raw_matrix(file: &dyn Hdf5File) -> Result<Option<(&'static str, &'static str)>> {
    for (matrix, var) in [("raw/X", "raw/var"), ("raw.X", "raw.var")] {
        if file.kind(matrix)?.is_some() {
            return Ok(Some((matrix, var)));
        }
    }
    Ok(None)
}

fn choose(file: &dyn Hdf5File, options: &OpenOptions, choices: &Choices) -> Result<Chosen> {
    let layers = match choices.layers.as_slice() {
        [] => "the file has no layers".to_owned(),
        names => format!("the layers are {}", names.join(", ")),
    };
    match (&options.layer, options.raw) {
        (Some(_), true) => Err(Error::usage("a layer and raw can't both be chosen")),
        (Some(layer), false) if choices.layers.contains(layer) => {
            Ok(Chosen { matrix: format!("layers/{layer}"), var: "var".to_owned() })
        }
        (Some(layer), false) => Err(Error::usage(format!("there is no layer {layer:?}; {layers}"))),
        (None, true) => match raw_matrix(file)? {
            Some((matrix, var)) => Ok(Chosen { matrix: matrix.to_owned(), var: var.to_owned() }),
            None => Err(Error::usage("the file has no raw matrix")),
        },
        (None, false) => {
            let is_there = match file.kind("X")? {
                None => false,
                // Since 0.12 an AnnData without X may say so in the file.
                Some(_) => text_attribute(file, "X", "encoding-type")?.as_deref() != Some("null"),
            };
            if is_there {
                return Ok(Chosen { matrix: "X".to_owned(), var: "var".to_owned() });
            }
            let raw = if choices.raw { ", and there is a raw matrix" } else { "" };
            Err(Error::input(format!("the file has no X; {layers}{raw}")))
        }
    }
}

fn stored_matrix(file: &dyn Hdf5File, location: String) -> Result<StoredMatrix> {
    let (layout, shape) = layout_and_shape(file, &location).at(|| &location)?;
    Ok(StoredMatrix { location, layout, shape })
}

/// How a matrix is arranged, and its size as cells × genes.
pub(crate) fn layout_and_shape(file: &dyn Hdf5File, location: &str) -> Result<(Layout, Shape)> {
    let shape_of = |lengths: &[u64]| match lengths {
        &[n_cells, n_genes] => Ok(Shape { n_cells: n_cells as usize, n_genes: n_genes as usize }),
        other => Err(Error::input(format!("number of dimensions: {} instead of 2", other.len()))),
    };
    let encoding = text_attribute(file, location, "encoding-type")?;
    if file.kind(location)? == Some(NodeKind::Dataset) {
        return match encoding.as_deref() {
            None | Some("array") => Ok((Layout::Dense, shape_of(&file.dataset(location)?.info().shape)?)),
            Some(other) => Err(unknown_encoding(other)),
        };
    }
    // Until 0.6 the attributes had names of their own.
    let format = match encoding {
        Some(encoding) => encoding,
        None => match text_attribute(file, location, "h5sparse_format")? {
            Some(format) => format,
            None => return Err(Error::unsupported("a group that does not say how the matrix is encoded")),
        },
    };
    let layout = match format.as_str() {
        "csr_matrix" | "csr" => Layout::Csr,
        "csc_matrix" | "csc" => Layout::Csc,
        other => return Err(unknown_encoding(other)),
    };
    let shape = match file.attribute(location, "shape")? {
        Some(shape) => shape,
        None => match file.attribute(location, "h5sparse_shape")? {
            Some(shape) => shape,
            None => return Err(Error::input("a sparse matrix that does not say its shape")),
        },
    };
    Ok((layout, shape_of(&shape.values.into_positions()?)?))
}

fn unknown_encoding(encoding: &str) -> Error {
    Error::unsupported(format!("unknown encoding {encoding:?}"))
}
