//! What the output takes over from an AnnData input besides what was computed: `raw`, layers, embeddings, graphs and `uns`.
//!
//! This file says what goes where; [`tree`] copies as it is, [`subset`] copies some rows and columns. Everything passes in
//! pieces. What can't be copied is left out with a note that names it.

mod subset;
mod tree;

use zheng17_core::error::{Error, ErrorKind, Result, ResultExt};
use zheng17_core::{Context, Shape};

use crate::dataset::{Dataset, Format, Layout};
use crate::frame::read_frame;
use crate::h5ad::layout_and_shape;
use crate::hdf5::{self, Hdf5File, NodeKind, text_attribute};
use crate::write::array::{Compression, SharedSink};
use crate::write::frame::{create_encoded_group, write_table};
use crate::write::h5ad::H5adWriter;
use crate::write::names::Names;

/// Entries of `uns` that describe the input's `X`, which is not in the output.
const ABOUT_X: [&str; 2] = ["log1p", "zheng17"];
/// Principal components of the input's `X`, in `obsm`, `varm` and `uns`: programs would take them for those of the output's.
const OLD_COMPONENTS: [&str; 3] = ["obsm/X_pca", "varm/PCs", "uns/pca"];
/// Entries of `uns["neighbors"]` that are graphs of cells.
const OLD_GRAPHS: [&str; 2] = ["connectivities", "distances"];
/// How many groups may lie within each other. Files are far from it, and readers of the copy have limits of their own.
const DEEPEST: usize = 32;

/// Copies what the writer has not written already from an AnnData input. Gives notes that a user should read.
///
/// `cells` are the positions of the output's cells in the input, `None` for all; `genes` are the positions of the output's
/// genes among those of the chosen matrix. Both increase. Inputs of other formats have nothing to copy.
///
/// # Behavior
/// - `raw` stays as it is, with the output's cells.
/// - `layers`, `varm` and `varp` keep the output's genes; they are left out where `raw` was chosen, which has other genes.
/// - `obsm` and `obsp` keep the output's cells, `uns` everything but what describes the input's `X`.
/// - Principal components of the input are left out: they are of other values.
/// - An entry that the writer has already is not copied, so this comes last.
/// - A group within itself, and groups within more than 32 others, are left out.
///
/// # Errors
/// [`ErrorKind::System`], [`ErrorKind::Cancelled`]; [`ErrorKind::Input`] if the file can't be opened any more.
pub fn copy_rest(
    dataset: &Dataset,
    cells: Option<&[usize]>,
    genes: &[usize],
    writer: &mut H5adWriter,
    ctx: &Context,
) -> Result<Vec<String>> {
    if dataset.format != Format::H5ad {
        return Ok(Vec::new());
    }
    let place = || dataset.path.display().to_string();
    let file = hdf5::open(&dataset.path).at(place)?;
    let n_genes = dataset.var.n_rows();
    let is_raw = dataset.matrix.location.starts_with("raw");
    let mut copier = Copier {
        file: file.as_ref(),
        sink: writer.sink.clone(),
        compression: writer.compression,
        ctx,
        cells: Axis { what: "cells", n: dataset.obs.n_rows(), kept: cells },
        genes: Axis { what: "genes", n: n_genes, kept: Some(genes).filter(|genes| genes.len() < n_genes) },
        notes: Vec::new(),
        around: Vec::new(),
    };
    copier.within("", |copier| copier.copy_all(writer, is_raw)).at(place)?;
    Ok(copier.notes)
}

/// The cells or genes of the input, and which of them the output has.
#[derive(Debug, Clone, Copy)]
struct Axis<'a> {
    what: &'static str,
    n: usize,
    /// Increasing positions; `None` for all.
    kept: Option<&'a [usize]>,
}

impl Axis<'_> {
    fn n_kept(self) -> usize {
        self.kept.map_or(self.n, <[usize]>::len)
    }

    fn check(self, found: usize) -> Result<()> {
        if found == self.n {
            Ok(())
        } else {
            Err(Error::input(format!("its size {found} is not that of the {} {}", self.n, self.what)))
        }
    }
}

struct Copier<'a> {
    file: &'a dyn Hdf5File,
    sink: SharedSink,
    compression: Compression,
    ctx: &'a Context,
    cells: Axis<'a>,
    genes: Axis<'a>,
    notes: Vec<String>,
    /// Addresses of the groups that lie around what is being copied.
    around: Vec<u64>,
}

impl<'a> Copier<'a> {
    /// Copies from inside a group, unless it lies too deep or in itself, which hard links make possible.
    fn within(&mut self, group: &str, copy: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let address = self.file.group_address(group)?;
        if self.around.contains(&address) {
            return Err(Error::unsupported("a group that lies within itself").at(group));
        }
        if self.around.len() > DEEPEST {
            return Err(Error::unsupported(format!("it lies within more than {DEEPEST} groups")).at(group));
        }
        self.around.push(address);
        let copied = copy(self);
        self.around.pop();
        copied
    }

    fn copy_all(&mut self, writer: &mut H5adWriter, is_raw: bool) -> Result<()> {
        let cells = self.cells;
        self.copy_raw()?;
        self.copy_members("obsm", &mut writer.obsm, cells, None)?;
        self.copy_members("obsp", &mut Names::default(), cells, Some(cells))?;
        if is_raw {
            for group in ["layers", "varm", "varp"] {
                if !self.members(group)?.is_empty() {
                    self.notes.push(format!("{group} was left out: it belongs to the genes of X, and raw was chosen."));
                }
            }
        } else {
            let genes = self.genes;
            self.copy_members("layers", &mut writer.layers, cells, Some(genes))?;
            self.copy_members("varm", &mut writer.varm, genes, None)?;
            self.copy_members("varp", &mut Names::default(), genes, Some(genes))?;
        }
        self.copy_uns(&mut writer.uns)
    }

    /// Names in a group; nothing where there is no such group.
    fn members(&self, group: &str) -> Result<Vec<String>> {
        match self.file.kind(group)? {
            Some(NodeKind::Group) => self.file.children(group),
            _ => Ok(Vec::new()),
        }
    }

    /// Keeps what was copied to a path, or removes a part of it and notes why.
    fn keep_or_note(&mut self, path: &str, copied: Result<()>) -> Result<()> {
        match copied {
            Err(error) if matches!(error.kind(), ErrorKind::Input | ErrorKind::Unsupported) => {
                self.notes.push(format!("{path} was left out: {error}."));
                self.sink.lock().remove(path);
                Ok(())
            }
            other => other,
        }
    }

    /// Copies the members of a group that the output has empty, except those whose names are taken.
    fn copy_members(
        &mut self,
        group: &str,
        names: &mut Names,
        rows: Axis<'a>,
        columns: Option<Axis<'a>>,
    ) -> Result<()> {
        if self.file.kind(group)? == Some(NodeKind::Dataset) {
            self.notes.push(format!("{group} was left out: it has the form of anndata 0.6 and before."));
            return Ok(());
        }
        for name in self.members(group)? {
            if names.is_taken(&name) {
                continue;
            }
            let path = format!("{group}/{name}");
            if self.left_out_as_old(&path) {
                continue;
            }
            let copied = self.copy_element(&path, &path, rows, columns);
            self.keep_or_note(&path, copied)?;
        }
        Ok(())
    }

    /// Copies a matrix, table or anything else with a row for each cell or gene.
    fn copy_element(&mut self, from: &str, to: &str, rows: Axis<'a>, columns: Option<Axis<'a>>) -> Result<()> {
        let is_whole = rows.kept.is_none() && columns.is_none_or(|columns| columns.kept.is_none());
        let encoding = text_attribute(self.file, from, "encoding-type")?;
        if self.file.kind(from)? == Some(NodeKind::Dataset) {
            let shape = self.file.dataset(from)?.info().shape.clone();
            let n_rows = shape.first().copied().ok_or_else(|| Error::input("a single value"))?;
            rows.check(n_rows as usize)?;
            if let Some(columns) = columns {
                columns.check(shape.get(1).copied().unwrap_or(1) as usize)?;
            }
            return if is_whole { self.copy_dense(from, to) } else { self.subset_dense(from, to, rows, columns) };
        }
        if encoding.as_deref() == Some("dataframe") {
            return self.copy_frame(from, to, rows);
        }
        match layout_and_shape(self.file, from) {
            Ok((layout, shape)) => {
                rows.check(shape.n_cells)?;
                if let Some(columns) = columns {
                    columns.check(shape.n_genes)?;
                }
                let columns = columns.unwrap_or(Axis { what: "columns", n: shape.n_genes, kept: None });
                match (is_whole, encoding) {
                    (true, Some(_)) => self.copy_tree(from, to),
                    (true, None) => self.copy_old_sparse(from, to, layout, shape),
                    (false, _) => self.subset_sparse(from, to, layout, rows, columns),
                }
            }
            // Ragged arrays and what else there may be.
            Err(_) if is_whole => self.copy_tree(from, to),
            Err(error) => Err(error),
        }
    }

    /// Copies a data frame; as it is, where all of it stays, can be read, and is written so by anndata today.
    fn copy_frame(&mut self, from: &str, to: &str, rows: Axis<'a>) -> Result<()> {
        let version = text_attribute(self.file, from, "encoding-version")?;
        let mut notes = Vec::new();
        let mut table = read_frame(self.file, from, rows.n, &mut notes)?;
        if rows.kept.is_none() && version.as_deref() == Some("0.2.0") && notes.is_empty() {
            return self.copy_tree(from, to);
        }
        self.notes.append(&mut notes);
        if let Some(kept) = rows.kept {
            table = table.select(kept);
        }
        let notes = write_table(&self.sink, to, &table)?;
        self.notes.extend(notes);
        Ok(())
    }

    /// Copies `raw`, which until anndata 0.6 stood at the root with a dot in its names.
    fn copy_raw(&mut self) -> Result<()> {
        let (matrix, var) = match (self.file.kind("raw")?, self.file.kind("raw.X")?) {
            (Some(NodeKind::Group), _) => ("raw/X", "raw/var"),
            (_, Some(_)) => ("raw.X", "raw.var"),
            _ => return Ok(()),
        };
        let copied = self.copy_raw_parts(matrix, var);
        self.keep_or_note("raw", copied)
    }

    fn copy_raw_parts(&mut self, matrix: &str, var: &str) -> Result<()> {
        create_encoded_group(&self.sink, "raw", "raw", "0.1.0")?;
        if self.file.kind(matrix)?.is_none() {
            return Err(Error::input("it has no matrix"));
        }
        let (_, Shape { n_genes, .. }) = layout_and_shape(self.file, matrix)?;
        let genes = Axis { what: "genes of raw", n: n_genes, kept: None };
        self.copy_element(matrix, "raw/X", self.cells, Some(genes))?;
        self.copy_frame(var, "raw/var", genes)?;
        if self.file.kind("raw/varm")? == Some(NodeKind::Group) {
            create_encoded_group(&self.sink, "raw/varm", "dict", "0.1.0")?;
            self.copy_members("raw/varm", &mut Names::default(), genes, None)?;
        }
        Ok(())
    }

    fn copy_uns(&mut self, names: &mut Names) -> Result<()> {
        // Until anndata 0.6 the categories of columns stood here; they are with their columns now.
        let has_categories = self.file.kind("obs")? == Some(NodeKind::Dataset);
        let members = self.members("uns")?;
        if members.is_empty() {
            return Ok(());
        }
        self.within("uns", |copier| {
            for name in members {
                let is_categories = has_categories && name.ends_with("_categories");
                if names.is_taken(&name) || ABOUT_X.contains(&name.as_str()) || is_categories {
                    continue;
                }
                let path = format!("uns/{name}");
                if !copier.left_out_as_old(&path) {
                    copier.copy_entry(&path)?;
                }
            }
            Ok(())
        })
    }

    /// Whether an entry describes the components of the input's `X`; a note says that it was left out.
    fn left_out_as_old(&mut self, path: &str) -> bool {
        let is_old = OLD_COMPONENTS.contains(&path);
        if is_old {
            self.notes
                .push(format!("{path} of the input was left out: it was computed from other values than X has now."));
        }
        is_old
    }

    /// Graphs of cells, which stood in `uns` until anndata 0.6, go to `obsp`, where anndata moves them when it reads such a
    /// file.
    fn copy_old_graph(&mut self, path: &str) -> Result<bool> {
        let Some(name) = path.strip_prefix("uns/neighbors/").filter(|name| OLD_GRAPHS.contains(name)) else {
            return Ok(false);
        };
        let is_square = |shape: Shape| shape.n_cells == self.cells.n && shape.n_genes == self.cells.n;
        let to = format!("obsp/{name}");
        if self.file.kind(path)? != Some(NodeKind::Group)
            || self.file.kind(&to)?.is_some()
            || !layout_and_shape(self.file, path).is_ok_and(|(_, shape)| is_square(shape))
        {
            return Ok(false);
        }
        let copied = self.copy_element(path, &to, self.cells, Some(self.cells));
        self.keep_or_note(&to, copied)?;
        Ok(true)
    }

    /// Copies an entry of `uns`; dictionaries entry by entry, so that one that can't be copied takes no others along.
    fn copy_entry(&mut self, path: &str) -> Result<()> {
        let copied = self.try_entry(path);
        self.keep_or_note(path, copied)
    }

    fn try_entry(&mut self, path: &str) -> Result<()> {
        if self.copy_old_graph(path)? {
            return Ok(());
        }
        let is_dictionary = self.file.kind(path)? == Some(NodeKind::Group)
            && matches!(text_attribute(self.file, path, "encoding-type")?.as_deref(), None | Some("dict"))
            && text_attribute(self.file, path, "h5sparse_format")?.is_none();
        if !is_dictionary {
            return self.copy_tree(path, path);
        }
        self.within(path, |copier| {
            create_encoded_group(&copier.sink, path, "dict", "0.1.0")?;
            for name in copier.file.children(path)? {
                copier.copy_entry(&format!("{path}/{name}"))?;
            }
            Ok(())
        })
    }

    /// Copies a sparse matrix of anndata 0.6 and before under the attributes that it has today.
    fn copy_old_sparse(&mut self, from: &str, to: &str, layout: Layout, shape: Shape) -> Result<()> {
        self.create_sparse(to, layout, shape)?;
        for part in ["data", "indices", "indptr"] {
            self.copy_dataset(&format!("{from}/{part}"), &format!("{to}/{part}"))?;
        }
        Ok(())
    }
}
