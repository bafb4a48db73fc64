//! Chunks of cells in compressed sparse row form, borrowed and owned, and selections of rows or columns.
//!
//! Rows are cells and columns are genes. What every chunk that reaches a kernel keeps, because [`crate::source::CheckedSource`]
//! has seen to it: row pointers that never decrease, column indices below the number of genes, no stored zeros, and no column
//! twice in a row. Columns within a row may come in any order.

use std::ops::Range;

use crate::error::{Error, Result};

/// The size of a matrix: cells × genes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number of rows.
    pub n_cells: usize,
    /// Number of columns.
    pub n_genes: usize,
}

/// The number type that stored values have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// 32-bit floats: exact for counts up to 2^24.
    F32,
    /// 64-bit floats: exact for counts up to 2^53.
    F64,
}

/// A stored value: `f32` or `f64`. Both convert to `f64` without loss.
pub trait Value: Copy + PartialOrd + Send + Sync + 'static {
    /// Which of the kinds this is.
    const KIND: ValueKind;
    /// The same number in 64 bits.
    fn to_f64(self) -> f64;
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
}

impl Value for f32 {
    const KIND: ValueKind = ValueKind::F32;
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    fn from_f64(value: f64) -> Self {
        value as f32
    }
}

impl Value for f64 {
    const KIND: ValueKind = ValueKind::F64;
    fn to_f64(self) -> f64 {
        self
    }
    fn from_f64(value: f64) -> Self {
        value
    }
}

/// Borrowed values of one chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValuesRef<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// 64-bit floats.
    F64(&'a [f64]),
}

/// Runs the same code for either kind of values: `with_values!(values, |v| body)` with `v: &[f32]` or `&[f64]`.
#[macro_export]
macro_rules! with_values {
    ($values:expr, |$name:ident| $body:expr) => {
        match $values {
            $crate::matrix::ValuesRef::F32($name) => $body,
            $crate::matrix::ValuesRef::F64($name) => $body,
        }
    };
}

impl<'a> ValuesRef<'a> {
    /// Number of values.
    pub fn len(self) -> usize {
        with_values!(self, |v| v.len())
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The number type.
    pub fn kind(self) -> ValueKind {
        match self {
            Self::F32(_) => ValueKind::F32,
            Self::F64(_) => ValueKind::F64,
        }
    }

    /// The value at a position.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn get(self, at: usize) -> f64 {
        with_values!(self, |v| v[at].to_f64())
    }

    /// The values of a range of positions.
    ///
    /// # Panics
    /// If the range ends beyond the values.
    pub fn slice(self, range: Range<usize>) -> ValuesRef<'a> {
        match self {
            Self::F32(v) => ValuesRef::F32(&v[range]),
            Self::F64(v) => ValuesRef::F64(&v[range]),
        }
    }
}

/// Owned values of one chunk or matrix.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
}

impl Values {
    /// No values of a kind.
    pub fn empty(kind: ValueKind) -> Self {
        match kind {
            ValueKind::F32 => Self::F32(Vec::new()),
            ValueKind::F64 => Self::F64(Vec::new()),
        }
    }

    /// The values, borrowed.
    pub fn as_ref(&self) -> ValuesRef<'_> {
        match self {
            Self::F32(v) => ValuesRef::F32(v),
            Self::F64(v) => ValuesRef::F64(v),
        }
    }

    /// The number type.
    pub fn kind(&self) -> ValueKind {
        self.as_ref().kind()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all values, keeps the memory.
    pub fn clear(&mut self) {
        match self {
            Self::F32(v) => v.clear(),
            Self::F64(v) => v.clear(),
        }
    }

    /// Adds a value; `f64` values that an `f32` store can't hold are rounded, so [`Values::widen`] first where that matters.
    pub fn push(&mut self, value: f64) {
        match self {
            Self::F32(v) => v.push(value as f32),
            Self::F64(v) => v.push(value),
        }
    }

    /// Adds a value as [`Values::push`] does, unless it is zero after rounding; says whether it was added.
    pub fn push_nonzero(&mut self, value: f64) -> bool {
        let stored = match self {
            Self::F32(_) => f64::from(value as f32),
            Self::F64(_) => value,
        };
        if stored == 0.0 {
            return false;
        }
        self.push(stored);
        true
    }

    /// Changes the number type to `f64`.
    pub fn widen(&mut self) {
        if let Self::F32(v) = self {
            *self = Self::F64(v.iter().map(|&x| f64::from(x)).collect());
        }
    }

    /// Adds all values of a slice, widening to `f64` if they are.
    pub fn extend(&mut self, more: ValuesRef<'_>) {
        if more.kind() == ValueKind::F64 {
            self.widen();
        }
        match (self, more) {
            (Self::F32(v), ValuesRef::F32(more)) => v.extend_from_slice(more),
            (Self::F64(v), ValuesRef::F64(more)) => v.extend_from_slice(more),
            (Self::F64(v), ValuesRef::F32(more)) => v.extend(more.iter().map(|&x| f64::from(x))),
            (Self::F32(_), ValuesRef::F64(_)) => unreachable!("widened above"),
        }
    }

    /// Asks for room for so many more values, and no more than that.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn try_reserve_exact(&mut self, more: usize) -> Result<(), std::collections::TryReserveError> {
        match self {
            Self::F32(v) => v.try_reserve_exact(more),
            Self::F64(v) => v.try_reserve_exact(more),
        }
    }
}

/// A borrowed chunk: consecutive cells in CSR form.
///
/// `indptr` has one entry more than there are cells. Its first entry need not be 0: entries are counted from it, so a slice of
/// a larger matrix is a view without copying. Invariants: see the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct CsrView<'a> {
    first_cell: usize,
    n_genes: usize,
    indptr: &'a [u64],
    indices: &'a [u32],
    values: ValuesRef<'a>,
}

impl<'a> CsrView<'a> {
    /// A view over parts whose structure is checked here: row pointers, lengths and column indices.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](crate::ErrorKind::Input), naming the first row that is wrong.
    pub fn checked(
        first_cell: usize,
        n_genes: usize,
        indptr: &'a [u64],
        indices: &'a [u32],
        values: ValuesRef<'a>,
    ) -> Result<Self> {
        let Some(&start) = indptr.first() else {
            return Err(Error::input("indptr is empty; it needs one entry more than there are cells"));
        };
        check_row_pointers(first_cell, indptr, start, start.saturating_add(indices.len() as u64))?;
        if values.len() != indices.len() {
            return Err(Error::input(format!("{} column indices but {} values", indices.len(), values.len())));
        }
        let view = Self { first_cell, n_genes, indptr, indices, values };
        // The largest of all is found faster than the first that is too large.
        if indices.iter().fold(0, |largest, &gene| gene.max(largest)) as usize >= n_genes && !indices.is_empty() {
            for row in 0..view.n_cells() {
                if let Some(&gene) = view.row_indices(row).iter().find(|&&gene| gene as usize >= n_genes) {
                    return Err(Error::input(format!(
                        "row {}: column index {gene}, but there are only {n_genes} genes",
                        first_cell + row
                    )));
                }
            }
        }
        Ok(view)
    }

    /// A view over parts that are known to keep the invariants. Nothing is checked but the lengths.
    ///
    /// # Panics
    /// If `indptr` is empty or the lengths disagree.
    pub fn trusted(
        first_cell: usize,
        n_genes: usize,
        indptr: &'a [u64],
        indices: &'a [u32],
        values: ValuesRef<'a>,
    ) -> Self {
        assert!(!indptr.is_empty(), "indptr needs one entry more than there are cells");
        assert_eq!(indptr[indptr.len() - 1] - indptr[0], indices.len() as u64, "indptr and indices disagree");
        assert_eq!(indices.len(), values.len(), "indices and values disagree");
        Self { first_cell, n_genes, indptr, indices, values }
    }

    /// The position of the first cell in the whole matrix.
    pub fn first_cell(&self) -> usize {
        self.first_cell
    }

    /// Number of cells in this chunk.
    pub fn n_cells(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of genes.
    pub fn n_genes(&self) -> usize {
        self.n_genes
    }

    /// Number of stored entries.
    pub fn n_entries(&self) -> usize {
        self.indices.len()
    }

    /// Row pointers; the first need not be 0.
    pub fn indptr(&self) -> &'a [u64] {
        self.indptr
    }

    /// Column indices of all rows.
    pub fn indices(&self) -> &'a [u32] {
        self.indices
    }

    /// Values of all rows.
    pub fn values(&self) -> ValuesRef<'a> {
        self.values
    }

    /// The positions of a row's entries in [`CsrView::indices`] and [`CsrView::values`].
    pub fn row_range(&self, row: usize) -> Range<usize> {
        let start = self.indptr[0];
        (self.indptr[row] - start) as usize..(self.indptr[row + 1] - start) as usize
    }

    /// The column indices of a row.
    pub fn row_indices(&self, row: usize) -> &'a [u32] {
        &self.indices[self.row_range(row)]
    }

    /// The values of a row.
    pub fn row_values(&self, row: usize) -> ValuesRef<'a> {
        self.values.slice(self.row_range(row))
    }

    /// A part of this chunk: consecutive rows, counted within it.
    pub fn rows(&self, rows: Range<usize>) -> CsrView<'a> {
        let entry = |row: usize| (self.indptr[row] - self.indptr[0]) as usize;
        let entries = entry(rows.start)..entry(rows.end);
        CsrView {
            first_cell: self.first_cell + rows.start,
            n_genes: self.n_genes,
            indptr: &self.indptr[rows.start..=rows.end],
            indices: &self.indices[entries.clone()],
            values: self.values.slice(entries),
        }
    }

    /// The same rows under another position in the whole matrix.
    pub fn with_first_cell(mut self, first_cell: usize) -> CsrView<'a> {
        self.first_cell = first_cell;
        self
    }
}

/// Checks row pointers: they start at `start`, never decrease and end at `end`.
///
/// # Errors
/// [`ErrorKind::Input`](crate::ErrorKind::Input), naming the first row that is wrong; rows are counted from `first_cell`.
pub fn check_row_pointers(first_cell: usize, indptr: &[u64], start: u64, end: u64) -> Result<()> {
    let (Some(&first), Some(&last)) = (indptr.first(), indptr.last()) else {
        return Err(Error::input("indptr is empty; it needs one entry more than there are rows"));
    };
    if first != start {
        return Err(Error::input(format!("indptr starts at {first}, not at {start} (row {first_cell})")));
    }
    if let Some(row) = indptr.windows(2).position(|pair| pair[1] < pair[0]) {
        return Err(Error::input(format!(
            "indptr decreases from {} to {} at row {}",
            indptr[row],
            indptr[row + 1],
            first_cell + row
        )));
    }
    if last != end {
        let row = indptr.iter().position(|&p| p > end).unwrap_or(indptr.len() - 1).saturating_sub(1);
        return Err(Error::input(format!(
            "indptr ends at {last}, but there are {end} entries (row {})",
            first_cell + row
        )));
    }
    Ok(())
}

/// An owned chunk or matrix in CSR form, made to be filled again and again.
#[derive(Debug, Clone, PartialEq)]
pub struct CsrBuffer {
    /// The position of the first cell in the whole matrix.
    pub first_cell: usize,
    /// Number of genes.
    pub n_genes: usize,
    /// Row pointers, from 0; one entry more than there are cells.
    pub indptr: Vec<u64>,
    /// Column indices.
    pub indices: Vec<u32>,
    /// Values.
    pub values: Values,
}

impl CsrBuffer {
    /// A buffer without cells.
    pub fn new(n_genes: usize, kind: ValueKind) -> Self {
        Self { first_cell: 0, n_genes, indptr: vec![0], indices: Vec::new(), values: Values::empty(kind) }
    }

    /// Forgets the cells, keeps the memory, and sets where the next cells belong and their number type.
    pub fn reset(&mut self, first_cell: usize, n_genes: usize, kind: ValueKind) {
        self.first_cell = first_cell;
        self.n_genes = n_genes;
        self.indptr.clear();
        self.indptr.push(0);
        self.indices.clear();
        if self.values.kind() == kind {
            self.values.clear();
        } else {
            self.values = Values::empty(kind);
        }
    }

    /// Number of cells.
    pub fn n_cells(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Ends the current row: all entries added since the last row belong to it.
    pub fn end_row(&mut self) {
        self.indptr.push(self.indices.len() as u64);
    }

    /// The cells as a view that keeps the invariants because whoever filled the buffer did.
    ///
    /// # Panics
    /// If the parts disagree in length.
    pub fn view(&self) -> CsrView<'_> {
        CsrView::trusted(self.first_cell, self.n_genes, &self.indptr, &self.indices, self.values.as_ref())
    }

    /// Adds the cells of a chunk behind those already here.
    pub fn append(&mut self, chunk: CsrView<'_>) {
        let start = self.indices.len() as u64;
        let base = chunk.indptr()[0];
        self.indptr.extend(chunk.indptr()[1..].iter().map(|&p| p - base + start));
        self.indices.extend_from_slice(chunk.indices());
        self.values.extend(chunk.values());
    }

    /// Sorts the columns within each row. Rows that are sorted already are left alone.
    pub fn sort_rows(&mut self) {
        self.sort_rows_from(0);
    }

    /// Sorts the columns within each row from this one on.
    pub fn sort_rows_from(&mut self, first_row: usize) {
        for row in first_row..self.n_cells() {
            let range = self.indptr[row] as usize..self.indptr[row + 1] as usize;
            let indices = &mut self.indices[range.clone()];
            if indices.is_sorted() {
                continue;
            }
            match &mut self.values {
                Values::F32(v) => sort_row(indices, &mut v[range]),
                Values::F64(v) => sort_row(indices, &mut v[range]),
            }
        }
    }
}

fn sort_row<V: Value>(indices: &mut [u32], values: &mut [V]) {
    let mut entries: Vec<(u32, V)> = indices.iter().copied().zip(values.iter().copied()).collect();
    entries.sort_by_key(|entry| entry.0);
    for (at, (gene, value)) in entries.into_iter().enumerate() {
        indices[at] = gene;
        values[at] = value;
    }
}

/// Which rows or columns to keep, always in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of them.
    All,
    /// Those whose flag is set; one flag for each.
    Mask(Vec<bool>),
    /// Those at these positions, strictly increasing.
    Indices(Vec<usize>),
    /// Consecutive ones.
    Range(Range<usize>),
}

impl Selection {
    /// The selected positions among `len`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for a mask of another length, positions that don't increase, or positions
    /// beyond the end. `what` ("cell", "gene") is named.
    pub fn resolve(&self, len: usize, what: &str) -> Result<Vec<usize>> {
        match self {
            Self::All => Ok((0..len).collect()),
            Self::Mask(mask) if mask.len() != len => {
                Err(Error::usage(format!("a mask of {} flags for {len} {what}s", mask.len())))
            }
            Self::Mask(mask) => Ok(mask.iter().enumerate().filter(|(_, keep)| **keep).map(|(at, _)| at).collect()),
            Self::Indices(indices) => {
                if let Some(at) = (1..indices.len()).find(|&at| indices[at - 1] >= indices[at]) {
                    return Err(Error::usage(format!(
                        "{what} indices must increase, but {} follows {}",
                        indices[at],
                        indices[at - 1]
                    )));
                }
                match indices.last() {
                    Some(&last) if last >= len => {
                        Err(Error::usage(format!("{what} index {last}, but there are only {len} {what}s")))
                    }
                    _ => Ok(indices.clone()),
                }
            }
            Self::Range(range) if range.start > range.end || range.end > len => {
                Err(Error::usage(format!("{what}s {}..{} asked for, but there are only {len}", range.start, range.end)))
            }
            Self::Range(range) => Ok(range.clone().collect()),
        }
    }
}

/// Where each gene goes when some are selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneMap {
    new_index: Vec<u32>,
    n_selected: usize,
}

impl GeneMap {
    /// What [`GeneMap::new_index`] says of a gene that is not selected.
    pub const NOT_SELECTED: u32 = u32::MAX;

    /// The map for selected genes, given as increasing positions among `n_genes`.
    ///
    /// # Panics
    /// If a position is beyond the end.
    pub fn new(n_genes: usize, selected: &[usize]) -> Self {
        let mut new_index = vec![Self::NOT_SELECTED; n_genes];
        for (to, &from) in selected.iter().enumerate() {
            new_index[from] = to as u32;
        }
        Self { new_index, n_selected: selected.len() }
    }

    /// The map that [`GeneMap::new_index`] of another one says.
    pub fn from_new_index(new_index: Vec<u32>) -> Self {
        let n_selected = new_index.iter().filter(|&&new| new != Self::NOT_SELECTED).count();
        Self { new_index, n_selected }
    }

    /// For each gene its place among the selected, or [`GeneMap::NOT_SELECTED`].
    pub fn new_index(&self) -> &[u32] {
        &self.new_index
    }

    /// Number of selected genes.
    pub fn n_selected(&self) -> usize {
        self.n_selected
    }
}
