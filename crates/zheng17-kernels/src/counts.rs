//! Totals and exact moments, fast: one 32-byte addition for almost every entry.
//!
//! Counts are small integers, so a row's shares q and their squares come from a table of a few values made once per row. Each
//! gene has four 64-bit sums: q, the low and the high 52 bits of q², and the counts themselves. None can overflow within 4,095
//! rows, so an entry costs one vector addition without carries; then they are moved into 128-bit sums.

use std::sync::Arc;

use zheng17_core::exact::{CountFacts, CountSummary, GeneCounts, share, share_weight};
use zheng17_core::matrix::ValueKind;
use zheng17_core::source::LARGEST_COUNT;
use zheng17_core::{CsrBuffer, CsrView, Error, Result, ValuesRef};

use crate::kept::KeptChunk;
use crate::lanes::{Lanes, ROWS_PER_FLUSH};
use crate::packed::{ESCAPE, Escaped, PackedChunk, PackedRow, count_escapes, sum_and_largest};

/// Counts below this have their share looked up.
const TABLE: usize = 32;

/// Sums one worker's chunks. Finishing it gives the summary that [`CountSummary::fold`] would.
pub struct CountFolder {
    arch: pulp::Arch,
    summary: CountSummary,
    lanes: Vec<Lanes>,
    rows: usize,
    facts: CountFacts,
    /// The counts of a row, in a byte each.
    bytes: Vec<u8>,
}

impl CountFolder {
    /// The folder of no cells. `excluded` has a flag for each gene that cell totals leave out.
    pub fn new(n_genes: usize, excluded: Option<Arc<[bool]>>) -> Self {
        Self {
            arch: pulp::Arch::new(),
            summary: CountSummary::new(n_genes, excluded),
            lanes: vec![Lanes::default(); n_genes],
            rows: 0,
            facts: CountFacts::default(),
            bytes: Vec::new(),
        }
    }

    /// Adds the cells of a chunk.
    ///
    /// # Errors
    /// As [`CountSummary::fold`].
    pub fn fold(&mut self, chunk: CsrView<'_>) -> Result<()> {
        let (ValuesRef::F32(values), None) = (chunk.values(), self.summary.excluded()) else {
            // Rare: more digits than 24 bits, or fractions that leave genes out.
            return self.summary.fold(chunk);
        };
        let mut totals = Vec::with_capacity(chunk.n_cells());
        for row in 0..chunk.n_cells() {
            let range = chunk.row_range(row);
            let (genes, counts) = (&chunk.indices()[range.clone()], &values[range]);
            self.bytes.resize(counts.len(), 0);
            let bytes = &mut self.bytes;
            let Some((total, largest)) = self.arch.dispatch(RowFacts { counts, bytes }) else {
                // A row with fractions or large counts goes the general way.
                let first_cell = chunk.first_cell() + row - totals.len();
                self.summary.add_cell_totals(first_cell, std::mem::take(&mut totals))?;
                self.summary.fold(chunk.rows(row..row + 1))?;
                continue;
            };
            if total as f64 > LARGEST_COUNT {
                return Err(total_too_large(chunk.first_cell() + row, total as f64));
            }
            if self.rows == ROWS_PER_FLUSH {
                self.flush()?;
            }
            self.rows += 1;
            let weight = share_weight(total as f64);
            self.arch.dispatch(AddRow { genes, counts, bytes: &self.bytes, weight, lanes: &mut self.lanes });
            self.facts.largest = self.facts.largest.max(f64::from(largest));
            self.facts.n_entries += counts.len() as u64;
            totals.push(total as f64);
        }
        let first_cell = chunk.first_cell() + chunk.n_cells() - totals.len();
        self.summary.add_cell_totals(first_cell, totals)
    }

    /// Adds the cells of a kept chunk, whose first cell has this position in the whole matrix.
    ///
    /// # Errors
    /// As [`CountSummary::fold`].
    pub fn fold_kept(&mut self, chunk: &KeptChunk, first_cell: usize) -> Result<()> {
        match chunk {
            KeptChunk::Packed(packed) => self.fold_packed(packed, first_cell),
            KeptChunk::Rows(rows) => self.fold(rows.view().with_first_cell(first_cell)),
        }
    }

    /// Adds the cells of a packed chunk, whose first cell has this position in the whole matrix.
    ///
    /// # Errors
    /// As [`CountSummary::fold`].
    pub fn fold_packed(&mut self, chunk: &PackedChunk, first_cell: usize) -> Result<()> {
        if chunk.n_genes() != self.lanes.len() {
            let expected = self.lanes.len();
            return Err(Error::internal(format!("a chunk of {} genes for sums of {expected}", chunk.n_genes())));
        }
        if self.summary.excluded().is_some() {
            let mut rows = CsrBuffer::new(chunk.n_genes(), ValueKind::F32);
            chunk.unpack_into(&mut rows);
            return self.summary.fold(rows.view().with_first_cell(first_cell));
        }
        let mut totals = Vec::with_capacity(chunk.n_cells());
        let mut rows = chunk.rows(0..chunk.n_cells());
        while let Some((row, escaped)) = rows.next() {
            let (total, largest) = self.arch.dispatch(TotalAndLargest { counts: row.counts, large: &escaped.counts });
            if total as f64 > LARGEST_COUNT {
                return Err(total_too_large(first_cell + totals.len(), total as f64));
            }
            totals.push(total as f64);
            self.facts.largest = self.facts.largest.max(largest);
            self.facts.n_entries += row.steps.len() as u64;
            if self.rows == ROWS_PER_FLUSH {
                self.flush()?;
            }
            self.rows += 1;
            self.arch.dispatch(AddPackedRow {
                row,
                escaped,
                weight: share_weight(total as f64),
                lanes: &mut self.lanes,
            });
        }
        self.summary.add_cell_totals(first_cell, totals)
    }

    /// The summary of all cells added.
    ///
    /// # Errors
    /// None that an honest caller meets: cells that were added twice are found before.
    pub fn finish(mut self) -> Result<CountSummary> {
        self.flush()?;
        Ok(self.summary)
    }

    fn flush(&mut self) -> Result<()> {
        let genes: Vec<GeneCounts> = self
            .lanes
            .iter()
            .map(|lanes| GeneCounts {
                total: u128::from(lanes.count()) << 40,
                sum: lanes.sum(),
                sum_of_squares: lanes.sum_of_squares(),
            })
            .collect();
        self.lanes.fill(Lanes::default());
        self.rows = 0;
        self.summary.add(0, Vec::new(), &genes, &std::mem::take(&mut self.facts))
    }
}

fn total_too_large(cell: usize, total: f64) -> Error {
    Error::input(format!("cell {cell}: its total of {total} is above 2^53"))
}

/// Adding 2^23 to a smaller float leaves its integer part in the low bits.
const SHIFT: f32 = 8_388_608.0;

/// The total of a row of integers below 2^23 and the largest of them, or `None` for other numbers. Writes each as a byte, the
/// large ones as 255.
struct RowFacts<'a> {
    counts: &'a [f32],
    bytes: &'a mut [u8],
}

impl pulp::NullaryFnOnce for RowFacts<'_> {
    type Output = Option<(u64, u32)>;

    #[allow(clippy::needless_bitwise_bool, reason = "without branches it becomes vector instructions")]
    #[inline(always)]
    fn call(self) -> Option<(u64, u32)> {
        let mut total = 0_u64;
        let mut largest = 0_u32;
        let mut odd = false;
        // Blocks keep the 32-bit sums of vector lanes from overflowing: 2^9 numbers below 2^23.
        for (block, bytes) in self.counts.chunks(512).zip(self.bytes.chunks_mut(512)) {
            let mut sum = 0_u32;
            let mut block_odd = false;
            for (&x, byte) in block.iter().zip(bytes) {
                let shifted = x + SHIFT;
                block_odd |= (shifted - SHIFT != x) | (x >= SHIFT);
                let count = shifted.to_bits() & 0x007f_ffff;
                sum += count;
                largest = largest.max(count);
                *byte = count.min(u32::from(ESCAPE)) as u8;
            }
            total += u64::from(sum);
            odd |= block_odd;
        }
        (!odd).then_some((total, largest))
    }
}

/// Adds a row's entries to the lanes of their genes.
struct AddRow<'a> {
    genes: &'a [u32],
    counts: &'a [f32],
    bytes: &'a [u8],
    weight: f64,
    lanes: &'a mut [Lanes],
}

impl pulp::NullaryFnOnce for AddRow<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { genes, counts, bytes, weight, lanes } = self;
        let table = table(weight);
        for ((&gene, &byte), &count) in genes.iter().zip(bytes).zip(counts) {
            let lane = &mut lanes[gene as usize];
            match table.get(usize::from(byte)) {
                Some(terms) => lane.add(*terms),
                None => add_larger(lane, f64::from(count), weight),
            }
        }
    }
}

/// The sum and the largest of a packed row's counts.
struct TotalAndLargest<'a> {
    counts: &'a [u8],
    large: &'a std::slice::Iter<'a, f32>,
}

impl pulp::NullaryFnOnce for TotalAndLargest<'_> {
    type Output = (u64, f64);

    #[inline(always)]
    fn call(self) -> (u64, f64) {
        let (mut total, largest) = sum_and_largest(self.counts);
        let mut largest = f64::from(largest);
        if largest == f64::from(ESCAPE) {
            for &count in self.large.clone().take(count_escapes(self.counts)) {
                total += count as u64 - u64::from(ESCAPE);
                largest = largest.max(f64::from(count));
            }
        }
        (total, largest)
    }
}

/// Adds a packed row's entries to the lanes of their genes.
struct AddPackedRow<'a, 'b> {
    row: PackedRow<'b>,
    escaped: &'a mut Escaped<'b>,
    weight: f64,
    lanes: &'a mut [Lanes],
}

impl pulp::NullaryFnOnce for AddPackedRow<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { row, escaped, weight, lanes } = self;
        let table = table(weight);
        let mut gene = 0;
        for (&step, &count) in row.steps.iter().zip(row.counts) {
            gene += escaped.step(step);
            let lane = &mut lanes[gene as usize];
            match table.get(usize::from(count)) {
                Some(terms) => lane.add(*terms),
                None => add_larger(lane, f64::from(escaped.count(count)), weight),
            }
        }
    }
}

/// Adds the terms of a count that the table hasn't. Kept apart, so that the usual terms stay in a register.
#[cold]
#[inline(never)]
fn add_larger(lane: &mut Lanes, count: f64, weight: f64) {
    lane.add(Lanes::of(share(count, weight), count as u64));
}

/// The terms of the smallest counts.
#[inline(always)]
fn table(weight: f64) -> [Lanes; TABLE] {
    let mut table = [Lanes::default(); TABLE];
    for (count, entry) in table.iter_mut().enumerate() {
        *entry = Lanes::of(share(count as f64, weight), count as u64);
    }
    table
}
