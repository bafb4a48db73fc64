//! A block of consecutive cells stored gene by gene, two bytes an entry: packing it, summing it, reading cells of it.
//!
//! A small count and the position of its cell in the block are one 16-bit code; the codes of a gene follow each other, in the order
//! of cells. Large counts are in a list. Nothing here knows of other blocks, of threads or of sources.

use std::ops::Range;

use zheng17_core::exact::{share, share_weight};
use zheng17_core::matrix::GeneMap;
use zheng17_core::source::LARGEST_COUNT;
use zheng17_core::{CsrBuffer, CsrView, ValuesRef};

use zheng17_kernels::Lanes;

/// Bits of a code that say which cell it is.
const CELL_BITS: u32 = 10;

/// The most cells in a block.
pub(crate) const MOST_CELLS: usize = 1 << CELL_BITS;

/// Counts up to this are in codes. Their terms are looked up in a table of 32 bytes for each count and cell, which a near cache
/// must hold.
const SMALL: usize = 8;

/// Different codes.
const CODES: usize = SMALL << CELL_BITS;

/// 2^23: counts below it are packed. Added to one of them, it leaves the count in the low bits.
const ALL_WHOLE: f32 = 8_388_608.0;

/// A block: cells without fractions, and with counts below 2^23.
#[derive(Debug)]
pub(crate) struct Block {
    /// The total of each cell.
    totals: Vec<f64>,
    /// The largest count.
    largest: u32,
    /// Where the codes of each gene end.
    ends: Vec<u32>,
    /// The cell, plus the count less one times 2^10.
    codes: Vec<u16>,
    /// Large counts, in the order of genes.
    large: Vec<Large>,
}

/// A count that no code has.
#[derive(Debug, Clone, Copy)]
struct Large {
    gene: u32,
    cell: u32,
    count: u32,
}

impl Block {
    /// The block of a chunk of at most [`MOST_CELLS`] cells, or `None` if it has fractions, counts from 2^23 on, unsorted cells or
    /// more than 2^32 entries.
    pub(crate) fn pack(chunk: CsrView<'_>) -> Option<Self> {
        let ValuesRef::F32(values) = chunk.values() else { return None };
        if chunk.n_cells() > MOST_CELLS || u32::try_from(chunk.n_entries()).is_err() {
            return None;
        }
        pulp::Arch::new().dispatch(Pack { chunk, values })
    }

    /// The total of each cell.
    pub(crate) fn totals(&self) -> &[f64] {
        &self.totals
    }

    pub(crate) fn n_entries(&self) -> usize {
        self.codes.len() + self.large.len()
    }

    pub(crate) fn largest(&self) -> u32 {
        self.largest
    }

    /// Adds the entries of all genes to the sums of each.
    pub(crate) fn add_to(&self, sums: &mut [Lanes], table: &mut Table) {
        pulp::Arch::new().dispatch(Add { block: self, sums, table: &mut table.0 });
    }

    /// Appends some cells, counted within the block, with the genes that a map keeps.
    pub(crate) fn append_to(&self, cells: Range<usize>, genes: &GeneMap, out: &mut CsrBuffer) {
        let mut rows = vec![Vec::new(); cells.len()];
        let mut push = |cell: usize, gene: u32, count: u32| {
            if let Some(row) = cell.checked_sub(cells.start).and_then(|at| rows.get_mut(at)) {
                row.push((gene, count));
            }
        };
        let mut start = 0;
        let mut large = self.large.iter().peekable();
        for (gene, (&end, &new)) in self.ends.iter().zip(genes.new_index()).enumerate() {
            if new != GeneMap::NOT_SELECTED {
                for &code in &self.codes[start..end as usize] {
                    push(usize::from(code) & (MOST_CELLS - 1), new, u32::from(code >> CELL_BITS) + 1);
                }
            }
            while let Some(large) = large.next_if(|large| large.gene as usize == gene) {
                if new != GeneMap::NOT_SELECTED {
                    push(large.cell as usize, new, large.count);
                }
            }
            start = end as usize;
        }
        for row in rows {
            for (gene, count) in row {
                out.indices.push(gene);
                out.values.push(f64::from(count));
            }
            out.end_row();
        }
    }
}

/// Makes a block.
struct Pack<'a> {
    chunk: CsrView<'a>,
    values: &'a [f32],
}

impl pulp::NullaryFnOnce for Pack<'_> {
    type Output = Option<Block>;

    #[allow(clippy::needless_bitwise_bool, reason = "without branches it becomes vector instructions")]
    #[inline(always)]
    fn call(self) -> Option<Block> {
        let Self { chunk, values } = self;
        let mut totals = Vec::with_capacity(chunk.n_cells());
        let mut largest = 0_u32;
        // How many small counts each gene has, then where they begin, then, while they are written, where the next one goes: in
        // the end where they end.
        let mut places = vec![0_u32; chunk.n_genes()];
        let mut n_large = 0;
        // Small counts less one, and SMALL for large ones.
        let mut bytes = vec![0_u8; chunk.n_entries()];
        let mut from = 0;
        for row in 0..chunk.n_cells() {
            let range = chunk.row_range(row);
            let (genes, counts) = (&chunk.indices()[range.clone()], &values[range]);
            let bytes = &mut bytes[from..from + counts.len()];
            from += counts.len();
            let mut odd = false;
            let mut total = 0_u64;
            for (&x, byte) in counts.iter().zip(bytes.iter_mut()) {
                let shifted = x + ALL_WHOLE;
                odd |= (shifted - ALL_WHOLE != x) | !(1.0..ALL_WHOLE).contains(&x);
                let count = shifted.to_bits() & 0x007f_ffff;
                total += u64::from(count);
                largest = largest.max(count);
                *byte = count.wrapping_sub(1).min(SMALL as u32) as u8;
            }
            for (before, after) in genes.iter().zip(genes.get(1..).unwrap_or_default()) {
                odd |= before >= after;
            }
            if odd || total as f64 > LARGEST_COUNT {
                return None;
            }
            for (&gene, &byte) in genes.iter().zip(bytes.iter()) {
                let small = u32::from(usize::from(byte) < SMALL);
                places[gene as usize] += small;
                n_large += 1 - small;
            }
            totals.push(total as f64);
        }
        let mut n_small = 0;
        for place in &mut places {
            n_small += std::mem::replace(place, n_small);
        }
        let mut codes = vec![0; n_small as usize];
        let mut large = Vec::with_capacity(n_large as usize);
        let mut from = 0;
        for row in 0..chunk.n_cells() {
            let range = chunk.row_range(row);
            let bytes = &bytes[from..from + range.len()];
            from += range.len();
            for ((&gene, &x), &byte) in chunk.indices()[range.clone()].iter().zip(&values[range]).zip(bytes) {
                if usize::from(byte) < SMALL {
                    let place = &mut places[gene as usize];
                    codes[*place as usize] = row as u16 | u16::from(byte) << CELL_BITS;
                    *place += 1;
                } else {
                    large.push(Large { gene, cell: row as u32, count: x as u32 });
                }
            }
        }
        large.sort_unstable_by_key(|large| (large.gene, large.cell));
        Some(Block { totals, largest, ends: places, codes, large })
    }
}

/// Room for the terms of every small count in every cell of a block.
pub(crate) struct Table(Box<[Lanes]>);

impl Default for Table {
    fn default() -> Self {
        Self(vec![Lanes::default(); CODES].into())
    }
}

/// Adds the terms of a block's entries.
struct Add<'a> {
    block: &'a Block,
    sums: &'a mut [Lanes],
    table: &'a mut [Lanes],
}

impl pulp::NullaryFnOnce for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { block, sums, table } = self;
        let weights: Vec<f64> = block.totals.iter().map(|&total| share_weight(total)).collect();
        for (at, terms) in table.chunks_exact_mut(MOST_CELLS).enumerate() {
            for (terms, &weight) in terms.iter_mut().zip(&weights) {
                *terms = Lanes::of(share((at + 1) as f64, weight), at as u64 + 1);
            }
        }
        let Some(table) = table.first_chunk::<CODES>() else { return };
        let mut start = 0;
        for (sums, &end) in sums.iter_mut().zip(&block.ends) {
            // Nothing but this one sum is written, once for each gene.
            let mut of_gene = *sums;
            for &code in &block.codes[start..end as usize] {
                of_gene.add(table[usize::from(code) & (CODES - 1)]);
            }
            *sums = of_gene;
            start = end as usize;
        }
        for large in &block.large {
            let terms = Lanes::of(share(f64::from(large.count), weights[large.cell as usize]), u64::from(large.count));
            sums[large.gene as usize].add(terms);
        }
    }
}
