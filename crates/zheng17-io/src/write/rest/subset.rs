//! Copies some rows and columns of matrices, piece by piece. Knows how entries are arranged, not what rows and columns are.

use std::ops::Range;

use zheng17_core::Shape;
use zheng17_core::error::{Error, Result, ResultExt};
use zheng17_core::matrix::check_row_pointers;

use super::tree::{PIECE, pieces, push_array, rows_at_once};
use super::{Axis, Copier};
use crate::dataset::Layout;
use crate::hdf5::Array;
use crate::write::array::{ArrayWriter, mark_dataset};

/// Where an index goes that is not kept.
const NOT_KEPT: u32 = u32::MAX;

/// Only the values at these positions.
fn select(values: &Array, positions: &[usize]) -> Result<Array> {
    match values {
        Array::Numbers(numbers) => Ok(Array::Numbers(numbers.select(positions))),
        Array::Bools(flags) => Ok(Array::Bools(positions.iter().map(|&at| flags[at]).collect())),
        other => Err(Error::unsupported(format!("it holds {}", other.describe()))),
    }
}

impl Copier<'_> {
    /// Copies some rows, and columns where they are cells or genes, of a dense matrix.
    pub(super) fn subset_dense(&self, from: &str, to: &str, rows: Axis<'_>, columns: Option<Axis<'_>>) -> Result<()> {
        let dataset = self.file.dataset(from)?;
        let info = dataset.info();
        let mut row: Vec<usize> = info.shape.iter().skip(1).map(|&length| length as usize).collect();
        let row_length: usize = row.iter().product();
        let columns: Vec<usize> = match columns.and_then(|columns| columns.kept) {
            Some(kept) if row.len() == 1 => {
                row = vec![kept.len()];
                kept.to_vec()
            }
            Some(_) => return Err(Error::unsupported(format!("{} dimensions", info.shape.len()))),
            None => (0..row_length).collect(),
        };
        let mut array = self.start_array(to, info, row)?;
        for piece in pieces(0..info.n_rows(), rows_at_once(info)) {
            let (start, end) = (piece.start as usize, piece.end as usize);
            let kept: Vec<usize> = match rows.kept {
                Some(kept) => {
                    kept[kept.partition_point(|&row| row < start)..kept.partition_point(|&row| row < end)].to_vec()
                }
                None => (start..end).collect(),
            };
            if kept.is_empty() {
                continue;
            }
            self.ctx.check_cancelled()?;
            let values = dataset.read(piece)?;
            let positions: Vec<usize> = kept
                .iter()
                .flat_map(|&row| columns.iter().map(move |&column| (row - start) * row_length + column))
                .collect();
            push_array(&mut array, &select(&values, &positions)?).at(|| from)?;
        }
        let copy = array.finish(rows.n_kept())?;
        mark_dataset(&self.sink, copy, "array")
    }

    /// Copies some rows and columns of a sparse matrix, which keeps its arrangement.
    pub(super) fn subset_sparse(
        &self,
        from: &str,
        to: &str,
        layout: Layout,
        rows: Axis<'_>,
        columns: Axis<'_>,
    ) -> Result<()> {
        let (major, minor) = if layout == Layout::Csc { (columns, rows) } else { (rows, columns) };
        let data = self.file.dataset(&format!("{from}/data"))?;
        let indices = self.file.dataset(&format!("{from}/indices"))?;
        let n_entries = data.info().n_rows();
        if indices.info().n_rows() != n_entries {
            return Err(Error::input(format!("{} indices for {n_entries} values", indices.info().n_rows())).at(from));
        }
        let pointers = self.file.dataset(&format!("{from}/indptr"))?;
        if pointers.info().n_rows() != major.n as u64 + 1 {
            return Err(Error::input(format!("{} pointers for {} rows", pointers.info().n_rows(), major.n)).at(from));
        }
        let indptr = pointers.read(0..pointers.info().n_rows())?.into_positions()?;
        check_row_pointers(0, &indptr, 0, n_entries).at(|| from)?;
        let new_index = new_indices(minor);

        self.create_sparse(to, layout, Shape { n_cells: rows.n_kept(), n_genes: columns.n_kept() })?;
        let mut data_copy = self.start_array(&format!("{to}/data"), data.info(), Vec::new())?;
        let mut indices_copy = self.start_array(&format!("{to}/indices"), indices.info(), Vec::new())?;
        let mut ends = vec![0_u64];
        for lines in lines_to_read(major, &indptr) {
            let range = indptr[lines.start]..indptr[lines.end];
            let mut line = lines.start;
            let mut n_kept = ends.last().copied().unwrap_or(0);
            for piece in pieces(range, PIECE) {
                self.ctx.check_cancelled()?;
                let stored = indices.read(piece.clone())?;
                let mut kept = Vec::new();
                for ((at, entry), index) in piece.clone().enumerate().zip(stored.into_positions()?) {
                    while indptr[line + 1] <= entry {
                        ends.push(n_kept);
                        line += 1;
                    }
                    let Some(&new) = new_index.get(index as usize) else {
                        let message = format!("index {index}, but there are only {} {}", minor.n, minor.what);
                        return Err(Error::input(message).at(&indices.info().path));
                    };
                    if new != NOT_KEPT {
                        kept.push((at, new));
                        n_kept += 1;
                    }
                }
                let positions: Vec<usize> = kept.iter().map(|&(at, _)| at).collect();
                push_array(&mut data_copy, &select(&data.read(piece)?, &positions)?).at(|| from)?;
                push_indices(&mut indices_copy, &kept)?;
            }
            ends.extend(std::iter::repeat_n(n_kept, lines.end - line));
        }
        let n_kept = ends.last().copied().unwrap_or(0) as usize;
        data_copy.finish(n_kept)?;
        indices_copy.finish(n_kept)?;
        let mut indptr_copy = self.start_array(&format!("{to}/indptr"), pointers.info(), Vec::new())?;
        push_unsigned(&mut indptr_copy, &ends)?;
        indptr_copy.finish(ends.len())?;
        Ok(())
    }
}

/// The new position of each index, or [`NOT_KEPT`].
fn new_indices(axis: Axis<'_>) -> Vec<u32> {
    match axis.kept {
        None => (0..axis.n as u32).collect(),
        Some(kept) => {
            let mut new_index = vec![NOT_KEPT; axis.n];
            for (new, &old) in kept.iter().enumerate() {
                new_index[old] = new as u32;
            }
            new_index
        }
    }
}

/// Runs of consecutive kept rows (columns, for CSC), each with few enough entries to be read at once, or a single one.
fn lines_to_read(axis: Axis<'_>, indptr: &[u64]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut add = |line: usize| match runs.last_mut() {
        Some(run) if run.end == line && indptr[line + 1] - indptr[run.start] <= PIECE => run.end = line + 1,
        _ => runs.push(line..line + 1),
    };
    match axis.kept {
        None => (0..axis.n).for_each(&mut add),
        Some(kept) => kept.iter().copied().for_each(&mut add),
    }
    runs
}

fn push_indices(array: &mut ArrayWriter, kept: &[(usize, u32)]) -> Result<()> {
    let indices: Vec<u64> = kept.iter().map(|&(_, index)| u64::from(index)).collect();
    push_unsigned(array, &indices)
}

/// Adds whole numbers that are not negative and not larger than those that the input's type held.
fn push_unsigned(array: &mut ArrayWriter, values: &[u64]) -> Result<()> {
    let size = array.stored().size();
    array.push_converted(values, |values, bytes| {
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes().into_iter().take(size)));
    })
}
