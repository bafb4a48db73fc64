//! Chunks in a narrow form of two bytes an entry, in which matrices are kept in memory and in temporary files.
//!
//! An entry is the step from the row's previous gene (the first gene counts from 0) and the count, a byte each. A byte of 255
//! says that the number is the next one of a list of wider ones. Only rows of strictly increasing genes with whole counts below
//! 2^24 have this form; what is packed comes out with the same bits. Nothing here knows where chunks are kept.

use std::ops::Range;

use zheng17_core::matrix::Value;
use zheng17_core::{CsrBuffer, CsrView, Result, Values, ValuesRef};

use crate::bytes::{Reader, Writer, damaged};

/// The byte that stands for a number of a list.
pub(crate) const ESCAPE: u8 = 255;

/// 2^24: counts below it are packed.
const LARGEST: f32 = 16_777_216.0;

/// 2^23: floats from here on are integers.
const ALL_WHOLE: f32 = 8_388_608.0;

/// Consecutive cells, two bytes an entry: rows of strictly increasing genes with whole counts below 2^24.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedChunk {
    first_cell: usize,
    n_genes: usize,
    row_lengths: Vec<u32>,
    steps: Vec<u8>,
    counts: Vec<u8>,
    long_steps: Vec<u32>,
    large_counts: Vec<f32>,
}

/// The rows of a packed chunk, one after another.
pub(crate) struct PackedRows<'a> {
    lengths: std::slice::Iter<'a, u32>,
    steps: &'a [u8],
    counts: &'a [u8],
    escaped: Escaped<'a>,
}

/// The numbers that escapes stand for, from the next row on.
#[derive(Clone)]
pub(crate) struct Escaped<'a> {
    /// The next long steps.
    pub(crate) steps: std::slice::Iter<'a, u32>,
    /// The next large counts.
    pub(crate) counts: std::slice::Iter<'a, f32>,
}

/// The bytes of one row.
#[derive(Clone, Copy)]
pub(crate) struct PackedRow<'a> {
    pub(crate) steps: &'a [u8],
    pub(crate) counts: &'a [u8],
}

impl<'a> PackedRows<'a> {
    /// The next row, and where the numbers of its escapes come next: who reads the row takes all of them.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<(PackedRow<'a>, &mut Escaped<'a>)> {
        let length = *self.lengths.next()? as usize;
        let (row_steps, steps) = self.steps.split_at(length);
        let (row_counts, counts) = self.counts.split_at(length);
        (self.steps, self.counts) = (steps, counts);
        Some((PackedRow { steps: row_steps, counts: row_counts }, &mut self.escaped))
    }
}

impl Escaped<'_> {
    /// The step that a byte stands for.
    #[inline(always)]
    pub(crate) fn step(&mut self, byte: u8) -> u32 {
        if byte == ESCAPE { self.long_step() } else { u32::from(byte) }
    }

    /// The count that a byte stands for.
    #[inline(always)]
    pub(crate) fn count(&mut self, byte: u8) -> f32 {
        if byte == ESCAPE { self.large_count() } else { f32::from(byte) }
    }

    // Cold, so that loops run straight through what is usual. There is a number for each escape.
    #[cold]
    fn long_step(&mut self) -> u32 {
        self.steps.next().copied().unwrap_or(0)
    }

    #[cold]
    fn large_count(&mut self) -> f32 {
        self.counts.next().copied().unwrap_or(0.0)
    }
}

impl PackedChunk {
    /// The narrow form of a chunk, or `None` if it has none: fractions, counts from 2^24 on, `f64` values, unsorted rows.
    pub fn pack(chunk: CsrView<'_>) -> Option<Self> {
        let ValuesRef::F32(values) = chunk.values() else { return None };
        let arch = pulp::Arch::new();
        let n_entries = chunk.n_entries();
        let mut packed = Self {
            first_cell: chunk.first_cell(),
            n_genes: chunk.n_genes(),
            row_lengths: Vec::with_capacity(chunk.n_cells()),
            steps: vec![0; n_entries],
            counts: vec![0; n_entries],
            long_steps: Vec::new(),
            large_counts: Vec::new(),
        };
        for row in 0..chunk.n_cells() {
            let range = chunk.row_range(row);
            packed.row_lengths.push(u32::try_from(range.len()).ok()?);
            let genes = &chunk.indices()[range.clone()];
            let n_long = arch.dispatch(PackSteps { genes, steps: &mut packed.steps[range.clone()] })?;
            if n_long > 0 {
                let mut previous = 0;
                packed.long_steps.reserve_exact(n_long);
                for &gene in genes {
                    let step = gene - previous;
                    if step >= u32::from(ESCAPE) {
                        packed.long_steps.push(step);
                    }
                    previous = gene;
                }
            }
            let values = &values[range.clone()];
            let n_large = arch.dispatch(PackCounts { values, counts: &mut packed.counts[range] })?;
            if n_large > 0 {
                packed.large_counts.extend(values.iter().filter(|&&x| x >= f32::from(ESCAPE)));
            }
        }
        packed.long_steps.shrink_to_fit();
        packed.large_counts.shrink_to_fit();
        Some(packed)
    }

    /// The position of the first cell in the whole matrix.
    pub fn first_cell(&self) -> usize {
        self.first_cell
    }

    /// Number of cells.
    pub fn n_cells(&self) -> usize {
        self.row_lengths.len()
    }

    /// Number of genes.
    pub fn n_genes(&self) -> usize {
        self.n_genes
    }

    /// Number of stored entries.
    pub fn n_entries(&self) -> usize {
        self.steps.len()
    }

    /// The same rows under another position in the whole matrix.
    #[must_use]
    pub fn with_first_cell(mut self, first_cell: usize) -> Self {
        self.first_cell = first_cell;
        self
    }

    /// Bytes of memory that this chunk takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of::<u32>() * (self.row_lengths.capacity() + self.long_steps.capacity())
            + size_of::<f32>() * self.large_counts.capacity()
            + self.steps.capacity()
            + self.counts.capacity()
    }

    /// Appends all rows to a buffer; `out.first_cell` and `out.n_genes` are the caller's.
    pub fn unpack_into(&self, out: &mut CsrBuffer) {
        self.unpack_rows_into(0..self.n_cells(), out);
    }

    /// Appends some rows, counted within this chunk, to a buffer; `out.first_cell` and `out.n_genes` are the caller's.
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn unpack_rows_into(&self, rows: Range<usize>, out: &mut CsrBuffer) {
        match &mut out.values {
            Values::F32(values) => self.unpack(rows, &mut out.indptr, &mut out.indices, values),
            Values::F64(values) => self.unpack(rows, &mut out.indptr, &mut out.indices, values),
        }
    }

    fn unpack<V: Value>(&self, rows: Range<usize>, indptr: &mut Vec<u64>, genes: &mut Vec<u32>, values: &mut Vec<V>) {
        let n_entries: usize = self.row_lengths[rows.clone()].iter().map(|&length| length as usize).sum();
        genes.reserve(n_entries);
        values.reserve(n_entries);
        let packed = self.rows(rows);
        pulp::Arch::new().dispatch(Unpack { packed, indptr, genes, values });
    }

    /// Some rows, counted within this chunk, one after another.
    pub(crate) fn rows(&self, rows: Range<usize>) -> PackedRows<'_> {
        let skipped: usize = self.row_lengths[..rows.start].iter().map(|&length| length as usize).sum();
        let (steps_before, steps) = self.steps.split_at(skipped);
        let (counts_before, counts) = self.counts.split_at(skipped);
        PackedRows {
            lengths: self.row_lengths[rows].iter(),
            steps,
            counts,
            escaped: Escaped {
                steps: self.long_steps[escapes(steps_before)..].iter(),
                counts: self.large_counts[escapes(counts_before)..].iter(),
            },
        }
    }

    /// Appends the bytes that [`PackedChunk::read_from`] reads.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out, Self::TAG);
        for number in [self.first_cell, self.n_genes, self.n_cells(), self.n_entries()] {
            writer.number(number);
        }
        writer.number(self.long_steps.len());
        writer.number(self.large_counts.len());
        writer.array(&self.row_lengths, u32::to_le_bytes);
        writer.array(&self.long_steps, u32::to_le_bytes);
        writer.array(&self.large_counts, f32::to_le_bytes);
        writer.array(&self.steps, u8::to_le_bytes);
        writer.array(&self.counts, u8::to_le_bytes);
        writer.finish();
    }

    /// Reads what [`PackedChunk::write_to`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](zheng17_core::ErrorKind::Input) for any other bytes.
    pub fn read_from(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, Self::TAG)?;
        let (first_cell, n_genes) = (reader.number()?, reader.number()?);
        let (n_cells, n_entries) = (reader.number()?, reader.number()?);
        let (n_long, n_large) = (reader.number()?, reader.number()?);
        let chunk = Self {
            first_cell,
            n_genes,
            row_lengths: reader.array(n_cells, u32::from_le_bytes)?,
            long_steps: reader.array(n_long, u32::from_le_bytes)?,
            large_counts: reader.array(n_large, f32::from_le_bytes)?,
            steps: reader.array(n_entries, u8::from_le_bytes)?,
            counts: reader.array(n_entries, u8::from_le_bytes)?,
        };
        reader.finish()?;
        if chunk.can_be() { Ok(chunk) } else { Err(damaged()) }
    }

    /// Whether the parts fit each other, so that every gene exists and every escape has its number.
    fn can_be(&self) -> bool {
        let n_entries: u64 = self.row_lengths.iter().map(|&length| u64::from(length)).sum();
        n_entries == self.n_entries() as u64
            && escapes(&self.steps) == self.long_steps.len()
            && escapes(&self.counts) == self.large_counts.len()
            && self.long_steps.iter().all(|&step| step >= u32::from(ESCAPE))
            && self.large_counts.iter().all(|&x| (f32::from(ESCAPE)..LARGEST).contains(&x) && x.fract() == 0.0)
            && pulp::Arch::new()
                .dispatch(GenesExist { rows: self.rows(0..self.n_cells()), n_genes: self.n_genes as u64 })
    }

    pub(crate) const TAG: [u8; 4] = *b"PACK";
}

/// Whether the genes of all rows increase and are fewer than there are.
struct GenesExist<'a> {
    rows: PackedRows<'a>,
    n_genes: u64,
}

impl pulp::NullaryFnOnce for GenesExist<'_> {
    type Output = bool;

    #[inline(always)]
    fn call(mut self) -> bool {
        while let Some((row, escaped)) = self.rows.next() {
            let [_, others @ ..] = row.steps else { continue };
            let smallest = others.iter().fold(u8::MAX, |smallest, &step| smallest.min(step));
            let (mut last, largest) = sum_and_largest(row.steps);
            if largest == ESCAPE {
                let n_long = count_escapes(row.steps);
                let long: u64 =
                    escaped.steps.by_ref().take(n_long).map(|&step| u64::from(step - u32::from(ESCAPE))).sum();
                last += long;
            }
            if smallest == 0 || last >= self.n_genes {
                return false;
            }
        }
        true
    }
}

/// The sum of bytes and the largest of them, or 0.
#[inline(always)]
pub(crate) fn sum_and_largest(bytes: &[u8]) -> (u64, u8) {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut total = rest.iter().map(|&byte| u64::from(byte)).sum();
    let mut most = [0_u8; 32];
    // As many blocks as 16-bit sums have room for.
    for blocks in blocks.chunks(257) {
        let mut sums = [0_u16; 32];
        for block in blocks {
            for ((sum, most), &byte) in sums.iter_mut().zip(&mut most).zip(block) {
                *sum += u16::from(byte);
                *most = byte.max(*most);
            }
        }
        total += u64::from(sums.iter().map(|&sum| u32::from(sum)).sum::<u32>());
    }
    (total, most.iter().chain(rest).fold(0, |most, &byte| byte.max(most)))
}

/// How many bytes say that the number is in a list.
fn escapes(bytes: &[u8]) -> usize {
    struct Escapes<'a>(&'a [u8]);
    impl pulp::NullaryFnOnce for Escapes<'_> {
        type Output = usize;

        #[inline(always)]
        fn call(self) -> usize {
            count_escapes(self.0)
        }
    }
    pulp::Arch::new().dispatch(Escapes(bytes))
}

/// As [`escapes`], for dispatched callers.
#[inline(always)]
pub(crate) fn count_escapes(bytes: &[u8]) -> usize {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut n: usize = rest.iter().map(|&byte| usize::from(byte == ESCAPE)).sum();
    // As many blocks as sums of single bytes have room for.
    for blocks in blocks.chunks(255) {
        let mut sums = [0_u8; 32];
        for block in blocks {
            for (sum, &byte) in sums.iter_mut().zip(block) {
                *sum += u8::from(byte == ESCAPE);
            }
        }
        n += sums.iter().map(|&sum| usize::from(sum)).sum::<usize>();
    }
    n
}

/// Writes the steps of a row; gives how many are long, or `None` if genes don't increase.
struct PackSteps<'a> {
    genes: &'a [u32],
    steps: &'a mut [u8],
}

impl pulp::NullaryFnOnce for PackSteps<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn call(self) -> Option<usize> {
        let Self { genes, steps } = self;
        let (Some(&first), Some((first_step, steps))) = (genes.first(), steps.split_first_mut()) else {
            return Some(0);
        };
        *first_step = first.min(u32::from(ESCAPE)) as u8;
        let mut n_long = u32::from(first >= u32::from(ESCAPE));
        let mut falls = false;
        for ((&before, &gene), to) in genes.iter().zip(&genes[1..]).zip(steps) {
            let step = gene.wrapping_sub(before);
            falls |= gene <= before;
            n_long += u32::from(step >= u32::from(ESCAPE));
            *to = step.min(u32::from(ESCAPE)) as u8;
        }
        (!falls).then_some(n_long as usize)
    }
}

/// Writes the counts of a row; gives how many are large, or `None` if some are no such counts.
struct PackCounts<'a> {
    values: &'a [f32],
    counts: &'a mut [u8],
}

impl pulp::NullaryFnOnce for PackCounts<'_> {
    type Output = Option<usize>;

    #[allow(clippy::needless_bitwise_bool, reason = "without branches it becomes vector instructions")]
    #[inline(always)]
    fn call(self) -> Option<usize> {
        let mut odd = false;
        let mut n_large = 0_u32;
        for (&x, to) in self.values.iter().zip(self.counts) {
            // As an integer, the bits of a float below 2^24 are smaller, unless it has a sign or is no number.
            odd |= x.to_bits() >= LARGEST.to_bits();
            odd |= (x + ALL_WHOLE - ALL_WHOLE != x) & (x < ALL_WHOLE);
            n_large += u32::from(x >= f32::from(ESCAPE));
            *to = ((x.min(f32::from(ESCAPE)) + ALL_WHOLE).to_bits() & 0xff) as u8;
        }
        (!odd).then_some(n_large as usize)
    }
}

/// Appends the genes and counts of rows.
struct Unpack<'a, V> {
    packed: PackedRows<'a>,
    indptr: &'a mut Vec<u64>,
    genes: &'a mut Vec<u32>,
    values: &'a mut Vec<V>,
}

impl<V: Value> pulp::NullaryFnOnce for Unpack<'_, V> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { mut packed, indptr, genes, values } = self;
        while let Some((row, escaped)) = packed.next() {
            let mut gene = 0;
            genes.extend(row.steps.iter().map(|&byte| {
                gene += escaped.step(byte);
                gene
            }));
            let start = values.len();
            values.extend(row.counts.iter().map(|&byte| V::from_f64(f64::from(byte))));
            if sum_and_largest(row.counts).1 == ESCAPE {
                for (to, &byte) in values[start..].iter_mut().zip(row.counts) {
                    *to = V::from_f64(f64::from(escaped.count(byte)));
                }
            }
            indptr.push(genes.len() as u64);
        }
    }
}
