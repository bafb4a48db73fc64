//! Where cells come from: a source that hands out ranges of cells, and the one place that checks them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::ChunkSink;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::matrix::{CsrBuffer, CsrView, Shape, Value, ValueKind, Values, ValuesRef, check_row_pointers};
use crate::numbers::smallest_values;

/// A matrix of cells × genes that can be read by ranges of cells, again and again, from several threads.
pub trait ChunkSource: Send + Sync {
    /// Cells × genes.
    fn shape(&self) -> Shape;

    /// Number of stored entries, where known without reading them.
    fn n_entries(&self) -> Option<u64>;

    /// Reads consecutive cells into `out`, which is reset first; `out.first_cell` is the start of the range.
    ///
    /// # Behavior
    /// - Values come as they are stored: zeros, duplicates and wrong numbers included. [`CheckedSource`] deals with them.
    /// - The kind of values is the smallest that holds every value of the range exactly.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for damaged data, naming file and dataset;
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the system refuses.
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()>;

    /// Whether the matrix is stored by genes, so that reading genes is cheap and reading cells is not.
    fn stored_by_genes(&self) -> bool {
        false
    }

    /// Reads consecutive genes into `out`, which is reset first: its rows are genes and its columns are cells, so `out.n_genes`
    /// is the number of cells and `out.first_cell` the first gene. Only sources with [`ChunkSource::stored_by_genes`] can.
    ///
    /// # Behavior
    /// - As [`ChunkSource::read_cells`].
    ///
    /// # Errors
    /// As [`ChunkSource::read_cells`]; [`ErrorKind::Internal`](crate::ErrorKind::Internal) if the matrix is not stored by genes.
    fn read_genes(&self, genes: Range<usize>, _out: &mut CsrBuffer) -> Result<()> {
        let complaint =
            format!("genes {}..{} were asked of a source that is not stored by genes", genes.start, genes.end);
        Err(Error::internal(complaint).at(self.name()))
    }

    /// What a person calls this cell, for messages.
    fn cell_name(&self, _cell: usize) -> Option<String> {
        None
    }

    /// What a person calls this gene, for messages.
    fn gene_name(&self, _gene: usize) -> Option<String> {
        None
    }

    /// What a person calls the whole, for messages: usually file and dataset.
    fn name(&self) -> String;
}

impl<S: ChunkSource + ?Sized> ChunkSource for Arc<S> {
    fn shape(&self) -> Shape {
        (**self).shape()
    }
    fn n_entries(&self) -> Option<u64> {
        (**self).n_entries()
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        (**self).read_cells(cells, out)
    }
    fn stored_by_genes(&self) -> bool {
        (**self).stored_by_genes()
    }
    fn read_genes(&self, genes: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        (**self).read_genes(genes, out)
    }
    fn cell_name(&self, cell: usize) -> Option<String> {
        (**self).cell_name(cell)
    }
    fn gene_name(&self, gene: usize) -> Option<String> {
        (**self).gene_name(gene)
    }
    fn name(&self) -> String {
        (**self).name()
    }
}

/// A source over a matrix in memory.
#[derive(Debug, Clone)]
pub struct MemorySource {
    matrix: CsrBuffer,
    name: String,
    /// Names of the cells, for messages; may be empty.
    pub cell_names: Vec<String>,
    /// Names of the genes, for messages; may be empty.
    pub gene_names: Vec<String>,
}

impl MemorySource {
    /// A source over all cells of a matrix. Values may still be wrong in any way that [`CheckedSource`] finds.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) if the row pointers or column indices are wrong.
    pub fn new(matrix: CsrBuffer, name: impl Into<String>) -> Result<Self> {
        CsrView::checked(0, matrix.n_genes, &matrix.indptr, &matrix.indices, matrix.values.as_ref())?;
        Ok(Self { matrix, name: name.into(), cell_names: Vec::new(), gene_names: Vec::new() })
    }
}

impl ChunkSource for MemorySource {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.matrix.n_cells(), n_genes: self.matrix.n_genes }
    }
    fn n_entries(&self) -> Option<u64> {
        Some(self.matrix.indices.len() as u64)
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        out.reset(cells.start, self.matrix.n_genes, self.matrix.values.kind());
        out.append(self.matrix.view().rows(cells));
        Ok(())
    }
    fn cell_name(&self, cell: usize) -> Option<String> {
        self.cell_names.get(cell).cloned()
    }
    fn gene_name(&self, gene: usize) -> Option<String> {
        self.gene_names.get(gene).cloned()
    }
    fn name(&self) -> String {
        self.name.clone()
    }
}

/// The one check of the values and structure of every chunk, in front of any source.
///
/// # Behavior
/// - NaN, infinite and negative values are an error that names the first cell that has one, and its first such gene in file
///   order, and counts how many there are in the whole source.
/// - Values above 2^53 are such an error too.
/// - Column indices out of range are an error that names the row.
/// - Stored zeros are dropped.
/// - Duplicate entries of a row are summed, in file order, and counted.
/// - Genes that are read by [`ChunkSource::read_genes`] are checked in the same way, with the same messages.
pub struct CheckedSource {
    inner: Arc<dyn ChunkSource>,
    /// The first cell that is looked at, if only a part is.
    part_from: Option<usize>,
    duplicates: AtomicU64,
    counted: Mutex<Counted>,
}

/// Where duplicates were counted: in the first reading only, which is by cells or by genes.
#[derive(Default)]
struct Counted {
    rows: Option<Rows>,
    ranges: Vec<Range<usize>>,
}

/// What the rows of a chunk are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    Cells,
    Genes,
}

/// The largest value, and cell total, that counts may have: above it `f64` can't tell neighbours apart.
pub const LARGEST_COUNT: f64 = 9_007_199_254_740_992.0; // 2^53

impl CheckedSource {
    /// Checks whatever `inner` reads.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) without at least two cells and one gene, or with more cells than the exact
    /// sums have room for (2^24).
    pub fn new(inner: Arc<dyn ChunkSource>) -> Result<Self> {
        let Shape { n_cells, n_genes } = inner.shape();
        let complaint = if n_cells == 0 {
            Some("there are no cells".to_owned())
        } else if n_genes == 0 {
            Some("there are no genes".to_owned())
        } else if n_cells == 1 {
            Some("there is only one cell; a variance needs two".to_owned())
        } else if n_cells > crate::exact::MOST_CELLS {
            Some(format!("{n_cells} cells; the exact sums have room for {}", crate::exact::MOST_CELLS))
        } else if n_genes > u32::MAX as usize {
            Some(format!("{n_genes} genes; at most {} can be told apart", u32::MAX))
        } else {
            None
        };
        match complaint {
            Some(complaint) => Err(Error::input(complaint).at(inner.name())),
            None => Ok(Self::of_part(inner)),
        }
    }

    /// Checks what `inner` reads, for sources that have only a part of the cells: any number of them may be too few by itself.
    pub fn of_part(inner: Arc<dyn ChunkSource>) -> Self {
        Self { inner, part_from: None, duplicates: AtomicU64::new(0), counted: Mutex::default() }
    }

    /// As [`CheckedSource::of_part`], for sources of which only the cells from `first_cell` on are looked at.
    pub fn of_cells_from(first_cell: usize, inner: Arc<dyn ChunkSource>) -> Self {
        Self { part_from: Some(first_cell), ..Self::of_part(inner) }
    }

    /// How many entries were summed into another of the same row and column, so far.
    pub fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    fn count_duplicates(&self, rows: Rows, range: &Range<usize>, found: u64) {
        if found == 0 {
            return;
        }
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if *counted.rows.get_or_insert(rows) != rows {
            return;
        }
        if !counted.ranges.iter().any(|seen| seen.start <= range.start && range.start < seen.end) {
            counted.ranges.push(range.clone());
            self.duplicates.fetch_add(found, Ordering::Relaxed);
        }
    }

    /// Reads a range as the source stores it and checks it.
    fn read(&self, rows: Rows, range: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        let Shape { n_cells, n_genes } = self.shape();
        let n_columns = match rows {
            Rows::Cells => {
                self.inner.read_cells(range.clone(), out)?;
                n_genes
            }
            Rows::Genes => {
                self.inner.read_genes(range.clone(), out)?;
                n_cells
            }
        };
        let view = check_structure(rows, &range, n_columns, out).map_err(|error| error.at(self.inner.name()))?;
        let (wrong, zeros) = match view.values() {
            ValuesRef::F32(values) => wrong_and_zero(values, LARGEST_COUNT as f32),
            ValuesRef::F64(values) => wrong_and_zero(values, LARGEST_COUNT),
        };
        if wrong {
            return Err(self.complain());
        }
        let duplicates = view_duplicates(view);
        if zeros || duplicates > 0 {
            clean(out, duplicates > 0);
        }
        self.count_duplicates(rows, &range, duplicates);
        Ok(())
    }

    /// Visits every wrong value of the source, in its order: cell, gene, value.
    fn wrong_values(&self, found: &mut dyn FnMut(usize, usize, f64)) -> Result<()> {
        let Shape { n_cells, n_genes } = self.inner.shape();
        let by_genes = self.inner.stored_by_genes();
        let (n_rows, step) = if by_genes {
            // A gene may have an entry in every cell.
            (n_genes, ((1 << 20) / n_cells).clamp(1, crate::context::DEFAULT_CHUNK_ROWS))
        } else {
            (n_cells, crate::context::DEFAULT_CHUNK_ROWS)
        };
        let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
        let first_cell = self.part_from.unwrap_or(0);
        let first_row = if by_genes { 0 } else { first_cell };
        for start in (first_row..n_rows).step_by(step) {
            let range = start..(start + step).min(n_rows);
            if by_genes {
                self.inner.read_genes(range, &mut buffer)?;
            } else {
                self.inner.read_cells(range, &mut buffer)?;
            }
            let view = buffer.view();
            for row in 0..view.n_cells() {
                let values = view.row_values(row);
                for (at, &column) in view.row_indices(row).iter().enumerate() {
                    let value = values.get(at);
                    if is_wrong(value) {
                        let (row, column) = (start + row, column as usize);
                        let (cell, gene) = if by_genes { (column, row) } else { (row, column) };
                        if cell >= first_cell {
                            found(cell, gene, value);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the whole source to say how many values are wrong, and which is the first.
    fn complain(&self) -> Error {
        let mut first: Option<(usize, usize, f64)> = None;
        let mut count = 0_u64;
        let visited = self.wrong_values(&mut |cell, gene, value| {
            count += 1;
            if first.is_none_or(|first| cell < first.0) {
                first = Some((cell, gene, value));
            }
        });
        if let Err(error) = visited {
            return error;
        }
        let Some((cell, gene, value)) = first else {
            return Error::internal("wrong values were found once and not again").at(self.inner.name());
        };
        let what = if value.is_nan() {
            "NaN".to_owned()
        } else if value > LARGEST_COUNT && value.is_finite() {
            format!("{value:e}, above 2^53")
        } else {
            format!("{value}")
        };
        let where_else = match self.part_from {
            None => String::new(),
            Some(first_cell) => format!(" of cells {first_cell}..{}", self.shape().n_cells),
        };
        let others = match count {
            1 => format!("it is the only such value{where_else}"),
            n => format!("{n} such values in all{where_else}"),
        };
        Error::input(format!(
            "counts must be finite, not negative and at most 2^53, but {} has {what} for {}; {others}",
            place("cell", cell, self.inner.cell_name(cell)),
            place("gene", gene, self.inner.gene_name(gene)),
        ))
        .at(self.inner.name())
    }
}

/// "cell 3 (AAAC-1)", counting from 0 as in the file's arrays.
pub fn place(what: &str, index: usize, name: Option<String>) -> String {
    match name {
        Some(name) => format!("{what} {index} ({name})"),
        None => format!("{what} {index}"),
    }
}

fn is_wrong(value: f64) -> bool {
    // Written so that NaN is wrong too.
    !(0.0..=LARGEST_COUNT).contains(&value)
}

/// Whether one of the values is wrong, and whether one is zero. It looks at all of them, which vector instructions do faster
/// than a search.
fn wrong_and_zero<V: Value + PartialOrd>(values: &[V], largest: V) -> (bool, bool) {
    let nothing = V::from_f64(0.0);
    let (mut wrong, mut zero) = (false, false);
    for &value in values {
        wrong |= !(nothing..=largest).contains(&value);
        zero |= value == nothing;
    }
    (wrong, zero)
}

impl ChunkSource for CheckedSource {
    fn shape(&self) -> Shape {
        self.inner.shape()
    }
    fn n_entries(&self) -> Option<u64> {
        self.inner.n_entries()
    }

    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        self.read(Rows::Cells, cells, out)
    }
    fn stored_by_genes(&self) -> bool {
        self.inner.stored_by_genes()
    }
    fn read_genes(&self, genes: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        self.read(Rows::Genes, genes, out)
    }
    fn cell_name(&self, cell: usize) -> Option<String> {
        self.inner.cell_name(cell)
    }
    fn gene_name(&self, gene: usize) -> Option<String> {
        self.inner.gene_name(gene)
    }
    fn name(&self) -> String {
        self.inner.name()
    }
}

/// Whether a buffer holds the rows that were asked for, in good order.
fn check_structure<'a>(
    rows: Rows,
    asked: &Range<usize>,
    n_columns: usize,
    buffer: &'a CsrBuffer,
) -> Result<CsrView<'a>> {
    let CsrBuffer { first_cell: first, n_genes: found_columns, indptr, indices, values } = buffer;
    check_row_pointers(*first, indptr, 0, indices.len() as u64)?;
    if rows == Rows::Genes
        && let Some(at) = indices.iter().position(|&cell| cell as usize >= n_columns)
    {
        let gene = first + indptr.partition_point(|&end| end <= at as u64) - 1;
        return Err(Error::input(format!(
            "column {gene}: row index {}, but there are only {n_columns} cells",
            indices[at]
        )));
    }
    let view = CsrView::checked(*first, *found_columns, indptr, indices, values.as_ref())?;
    if *first != asked.start || view.n_cells() != asked.len() || *found_columns != n_columns {
        let (row, column) = match rows {
            Rows::Cells => ("cell", "gene"),
            Rows::Genes => ("gene", "cell"),
        };
        return Err(Error::internal(format!(
            "asked for {row}s {}..{} of {n_columns} {column}s, the source gave {row}s {first}..{} of {found_columns} {column}s",
            asked.start,
            asked.end,
            first + view.n_cells()
        )));
    }
    Ok(view)
}

/// How many entries have the column of an earlier one in the same row.
fn view_duplicates(view: CsrView<'_>) -> u64 {
    // Rows that strictly increase, the usual case, need no memory.
    let mut seen_in: Vec<u32> = Vec::new();
    let mut duplicates = 0;
    for row in 0..view.n_cells() {
        let indices = view.row_indices(row);
        // As above: all of a row is compared, without a branch for each entry.
        let mut increasing = true;
        for pair in indices.windows(2) {
            increasing &= pair[0] < pair[1];
        }
        if increasing {
            continue;
        }
        if seen_in.is_empty() {
            seen_in = vec![0; view.n_genes()];
        }
        for &gene in indices {
            let seen = &mut seen_in[gene as usize];
            if *seen == row as u32 + 1 {
                duplicates += 1;
            }
            *seen = row as u32 + 1;
        }
    }
    duplicates
}

/// Sorts rows, sums duplicates in file order and drops zeros.
fn clean(buffer: &mut CsrBuffer, duplicates: bool) {
    buffer.sort_rows();
    if duplicates {
        // A sum of counts may need more digits than each of them.
        buffer.values.widen();
    }
    let CsrBuffer { indptr, indices, values, .. } = buffer;
    match values {
        Values::F32(v) => compact(indptr, indices, v),
        Values::F64(v) => compact(indptr, indices, v),
    }
    if duplicates && let Values::F64(sums) = &buffer.values {
        buffer.values = smallest_values(sums);
    }
}

fn compact<V: Value>(indptr: &mut [u64], indices: &mut Vec<u32>, values: &mut Vec<V>) {
    let mut to = 0;
    let mut from = 0;
    for end in &mut indptr[1..] {
        let row_end = *end as usize;
        while from < row_end {
            let gene = indices[from];
            let mut sum = 0.0;
            while from < row_end && indices[from] == gene {
                sum += values[from].to_f64();
                from += 1;
            }
            if sum != 0.0 {
                indices[to] = gene;
                values[to] = V::from_f64(sum);
                to += 1;
            }
        }
        *end = to as u64;
    }
    indices.truncate(to);
    values.truncate(to);
}

/// Visits all chunks of a source in cell order, reporting finished cells and stopping when asked to.
///
/// # Errors
/// What reading or `f` returned, or [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
pub fn for_each_chunk(source: &dyn ChunkSource, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
    let Shape { n_cells, n_genes } = source.shape();
    let step = ctx.rows_per_chunk();
    let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
    for start in (0..n_cells).step_by(step) {
        ctx.check_cancelled()?;
        let cells = start..(start + step).min(n_cells);
        source.read_cells(cells.clone(), &mut buffer)?;
        f(buffer.view())?;
        ctx.progress.advance(cells.len());
    }
    Ok(())
}

impl From<ValuesRef<'_>> for Values {
    fn from(values: ValuesRef<'_>) -> Self {
        match values {
            ValuesRef::F32(v) => Self::F32(v.to_vec()),
            ValuesRef::F64(v) => Self::F64(v.to_vec()),
        }
    }
}
