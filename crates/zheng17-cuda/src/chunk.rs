//! Consecutive cells in one piece of memory, in the form and the layout that kernels read: the same bytes on the host and on a
//! device, so that each transfer is one copy.

use std::ops::Range;

use zheng17_core::matrix::{ValueKind, Values};
use zheng17_core::{CsrBuffer, CsrView};

use crate::bytes::{Plain, bytes_of, bytes_of_mut, numbers_of, numbers_of_mut};
use crate::device::DeviceBuffer;

/// How entries are stored; see the README of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Three bytes: genes below 2^16, whole `f32` values below 2^32, those from 255 on in a list.
    Narrow,
    /// Genes in 32 bits, values in `f32`.
    F32,
    /// Genes in 32 bits, values in `f64`.
    F64,
}

impl Form {
    /// The end of the names of its kernels.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Narrow => "narrow",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// The number type that the values have.
    pub(crate) fn kind(self) -> ValueKind {
        match self {
            Self::Narrow | Self::F32 => ValueKind::F32,
            Self::F64 => ValueKind::F64,
        }
    }

    /// The wide form of a number type.
    pub(crate) fn wide(kind: ValueKind) -> Self {
        match kind {
            ValueKind::F32 => Self::F32,
            ValueKind::F64 => Self::F64,
        }
    }
}

/// The count byte of a count in the list.
const LARGE: u8 = 255;

/// The most genes of the narrow form.
const NARROW_GENES: usize = 1 << 16;

/// Where the arrays of a chunk are in its memory. Each begins at a multiple of eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) form: Form,
    pub(crate) n_rows: usize,
    pub(crate) n_entries: usize,
    pub(crate) n_large: usize,
}

/// The arrays of a chunk, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Array {
    RowStart,
    LargeStart,
    LargeAt,
    LargeCounts,
    Values,
    Genes,
}

const ARRAYS: [Array; 6] =
    [Array::RowStart, Array::LargeStart, Array::LargeAt, Array::LargeCounts, Array::Values, Array::Genes];

impl Layout {
    fn size(&self, array: Array) -> usize {
        let narrow = self.form == Form::Narrow;
        match array {
            Array::RowStart => 8 * (self.n_rows + 1),
            Array::LargeStart if narrow => 8 * (self.n_rows + 1),
            Array::LargeAt | Array::LargeCounts if narrow => 4 * self.n_large,
            Array::LargeStart | Array::LargeAt | Array::LargeCounts => 0,
            Array::Values => {
                self.n_entries
                    * match self.form {
                        Form::Narrow => 1,
                        Form::F32 => 4,
                        Form::F64 => 8,
                    }
            }
            Array::Genes => self.n_entries * if narrow { 2 } else { 4 },
        }
    }

    /// The bytes of an array.
    pub(crate) fn range(&self, array: Array) -> Range<usize> {
        let before = ARRAYS.iter().take_while(|&&other| other != array);
        let start = before.map(|&other| self.size(other).next_multiple_of(8)).sum();
        start..start + self.size(array)
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> usize {
        ARRAYS.iter().map(|&array| self.size(array).next_multiple_of(8)).sum()
    }
}

/// Where the bytes of a chunk are.
pub(crate) enum Place {
    /// On its device, to stay.
    Device(DeviceBuffer),
    /// In host memory; they pass through the device each time they are needed.
    Host(Vec<u64>),
}

/// Consecutive cells, their rows sorted by gene.
pub(crate) struct Chunk {
    pub(crate) layout: Layout,
    /// The place of the device among the matrix's.
    pub(crate) device: usize,
    pub(crate) place: Place,
}

/// Puts sorted rows into the shortest form that keeps every value and its type.
pub(crate) fn encode(rows: CsrView<'_>) -> (Layout, Vec<u64>) {
    if let Some(n_large) = narrow_large_counts(rows) {
        let layout = Layout { form: Form::Narrow, n_rows: rows.n_cells(), n_entries: rows.n_entries(), n_large };
        return (layout, encode_narrow(rows, layout));
    }
    encode_wide(rows)
}

/// Puts sorted rows into the wide form of their number type.
pub(crate) fn encode_wide(rows: CsrView<'_>) -> (Layout, Vec<u64>) {
    let form = Form::wide(rows.values().kind());
    let layout = Layout { form, n_rows: rows.n_cells(), n_entries: rows.n_entries(), n_large: 0 };
    let mut words = vec![0; layout.bytes() / 8];
    put_row_starts(rows, layout, &mut words);
    array_mut(layout, &mut words, Array::Genes).copy_from_slice(rows.indices());
    match rows.values() {
        zheng17_core::matrix::ValuesRef::F32(values) => {
            array_mut(layout, &mut words, Array::Values).copy_from_slice(values);
        }
        zheng17_core::matrix::ValuesRef::F64(values) => {
            array_mut(layout, &mut words, Array::Values).copy_from_slice(values);
        }
    }
    (layout, words)
}

/// The counts that go to the list, if the narrow form can hold the rows.
fn narrow_large_counts(rows: CsrView<'_>) -> Option<usize> {
    let zheng17_core::matrix::ValuesRef::F32(values) = rows.values() else { return None };
    if rows.n_genes() > NARROW_GENES {
        return None;
    }
    // Stretches of a fixed length without a branch, of which the compiler makes vectors.
    let mut n_large = 0;
    for stretch in values.chunks(1024) {
        // A number that is negative or too large becomes another one.
        if stretch.iter().fold(false, |odd, &x| odd | (f64::from(x as u32) != f64::from(x))) {
            return None;
        }
        n_large += stretch.iter().fold(0_u32, |n, &x| n + u32::from(x >= f32::from(LARGE)));
    }
    Some(n_large as usize)
}

fn encode_narrow(rows: CsrView<'_>, layout: Layout) -> Vec<u64> {
    let mut words = vec![0; layout.bytes() / 8];
    put_row_starts(rows, layout, &mut words);
    let genes = rows.indices().iter().map(|&gene| gene as u16);
    array_mut(layout, &mut words, Array::Genes).iter_mut().zip(genes).for_each(|(to, gene)| *to = gene);
    let zheng17_core::matrix::ValuesRef::F32(values) = rows.values() else { return words };
    let counts = values.iter().map(|&x| x.min(f32::from(LARGE)) as u8);
    array_mut(layout, &mut words, Array::Values).iter_mut().zip(counts).for_each(|(to, count)| *to = count);
    if layout.n_large == 0 {
        return words;
    }
    let (mut starts, mut places, mut counts) = (vec![0_u64], Vec::new(), Vec::new());
    for row in 0..rows.n_cells() {
        for (place, &x) in values[rows.row_range(row)].iter().enumerate() {
            if x >= f32::from(LARGE) {
                places.push(place as u32);
                counts.push(x as u32);
            }
        }
        starts.push(places.len() as u64);
    }
    array_mut(layout, &mut words, Array::LargeStart).copy_from_slice(&starts);
    array_mut(layout, &mut words, Array::LargeAt).copy_from_slice(&places);
    array_mut(layout, &mut words, Array::LargeCounts).copy_from_slice(&counts);
    words
}

fn put_row_starts(rows: CsrView<'_>, layout: Layout, words: &mut [u64]) {
    let first = rows.indptr()[0];
    let starts: &mut [u64] = array_mut(layout, words, Array::RowStart);
    starts.iter_mut().zip(rows.indptr()).for_each(|(to, &from)| *to = from - first);
}

/// An array of a chunk in host memory.
pub(crate) fn array<T: Plain>(layout: Layout, words: &[u64], array: Array) -> &[T] {
    numbers_of(&bytes_of(words)[layout.range(array)])
}

fn array_mut<T: Plain>(layout: Layout, words: &mut [u64], array: Array) -> &mut [T] {
    numbers_of_mut(&mut bytes_of_mut(words)[layout.range(array)])
}

/// Some rows of a chunk in host memory, into a buffer that is reset first; they come to be at `first_cell`.
pub(crate) fn decode(
    layout: Layout,
    words: &[u64],
    rows: Range<usize>,
    first_cell: usize,
    n_genes: usize,
    out: &mut CsrBuffer,
) {
    out.reset(first_cell, n_genes, layout.form.kind());
    let starts: &[u64] = array(layout, words, Array::RowStart);
    let (first, end) = (starts[rows.start], starts[rows.end]);
    let entries = first as usize..end as usize;
    out.indptr.extend(starts[rows.start + 1..=rows.end].iter().map(|&start| start - first));
    match layout.form {
        Form::Narrow => {
            let genes: &[u16] = array(layout, words, Array::Genes);
            out.indices.extend(genes[entries].iter().map(|&gene| u32::from(gene)));
        }
        Form::F32 | Form::F64 => {
            let genes: &[u32] = array(layout, words, Array::Genes);
            out.indices.extend_from_slice(&genes[entries]);
        }
    }
    let entries = first as usize..end as usize;
    match (&mut out.values, layout.form) {
        (Values::F32(values), Form::Narrow) => {
            let counts: &[u8] = array(layout, words, Array::Values);
            values.extend(counts[entries].iter().map(|&count| f32::from(count)));
            let large_starts: &[u64] = array(layout, words, Array::LargeStart);
            let places: &[u32] = array(layout, words, Array::LargeAt);
            let large: &[u32] = array(layout, words, Array::LargeCounts);
            for row in rows {
                for at in large_starts[row] as usize..large_starts[row + 1] as usize {
                    values[(starts[row] - first) as usize + places[at] as usize] = large[at] as f32;
                }
            }
        }
        (Values::F32(values), _) => values.extend_from_slice(&array::<f32>(layout, words, Array::Values)[entries]),
        (Values::F64(values), _) => values.extend_from_slice(&array::<f64>(layout, words, Array::Values)[entries]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(rows: &CsrBuffer, form: Form) {
        let (layout, words) = encode(rows.view());
        assert_eq!((layout.form, words.len() * 8), (form, layout.bytes()));
        let mut back = CsrBuffer::new(0, ValueKind::F32);
        decode(layout, &words, 0..rows.n_cells(), 0, rows.n_genes, &mut back);
        assert_eq!(&back, rows);
        decode(layout, &words, 1..rows.n_cells(), 1, rows.n_genes, &mut back);
        assert_eq!(back.view().values(), rows.view().rows(1..rows.n_cells()).values());
        assert_eq!(back.view().indices(), rows.view().rows(1..rows.n_cells()).indices());
    }

    fn rows(n_genes: usize, values: Values) -> CsrBuffer {
        CsrBuffer { first_cell: 0, n_genes, indptr: vec![0, 2, 2, 5], indices: vec![1, 5, 0, 2, 5], values }
    }

    #[test]
    fn every_form_keeps_every_value() {
        there_and_back(&rows(6, Values::F32(vec![1.0, 255.0, 254.0, 256.0, 4_294_967_040.0])), Form::Narrow);
        there_and_back(&rows(65_536, Values::F32(vec![1.0; 5])), Form::Narrow);
        there_and_back(&rows(65_537, Values::F32(vec![1.0; 5])), Form::F32);
        there_and_back(&rows(6, Values::F32(vec![1.0, 0.5, 1.0, 1.0, 1.0])), Form::F32);
        there_and_back(&rows(6, Values::F32(vec![4_294_967_296.0; 5])), Form::F32);
        there_and_back(&rows(6, Values::F32(vec![-1.0; 5])), Form::F32);
        there_and_back(&rows(6, Values::F64(vec![1.0; 5])), Form::F64);
    }
}
