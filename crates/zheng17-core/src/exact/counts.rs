//! The first summary: totals of genes and cells, and the exact moments of each gene's share in its cells.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bytes::{Reader, Writer, damaged};
use super::{MOST_CELLS, MOST_SQUARES, MOST_SUM, MOST_TOTAL, fixed_total, share, share_weight, total_from_fixed};
use crate::error::{Error, Result};
use crate::matrix::{CsrView, Value};
use crate::source::LARGEST_COUNT;
use crate::with_values;

/// Exact sums of one gene over the cells seen so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GeneCounts {
    /// Sum of the values, in units of 2^−40.
    pub total: u128,
    /// Sum of q, the shares in the cells' totals, in units of 2^−52.
    pub sum: u128,
    /// Sum of q², in units of 2^−104.
    pub sum_of_squares: u128,
}

/// What is known of the values as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CountFacts {
    /// Entries that are not zero.
    pub n_entries: u64,
    /// Entries that are not integers.
    pub n_fractional: u64,
    /// The largest value.
    pub largest: f64,
}

impl CountFacts {
    fn merge(&mut self, other: &Self) {
        self.n_entries += other.n_entries;
        self.n_fractional += other.n_fractional;
        self.largest = self.largest.max(other.largest);
    }
}

/// Totals and normalised moments of some cells. Summaries of different cells merge, in any order, to the same bits.
///
/// Cell totals are taken over all genes but the excluded ones, whose moments stay zero while their totals are still summed.
#[derive(Debug, Clone, PartialEq)]
pub struct CountSummary {
    excluded: Option<Arc<[bool]>>,
    genes: Vec<GeneCounts>,
    facts: CountFacts,
    /// Totals of runs of consecutive cells, by the position of the first; no two touch or overlap.
    cell_totals: BTreeMap<usize, Vec<f64>>,
}

impl CountSummary {
    /// The summary of no cells. `excluded` has a flag for each gene that cell totals leave out.
    ///
    /// # Panics
    /// If there is not one flag per gene.
    pub fn new(n_genes: usize, excluded: Option<Arc<[bool]>>) -> Self {
        assert!(excluded.as_ref().is_none_or(|flags| flags.len() == n_genes), "one flag per gene");
        Self {
            excluded,
            genes: vec![GeneCounts::default(); n_genes],
            facts: CountFacts::default(),
            cell_totals: BTreeMap::new(),
        }
    }

    /// Number of genes.
    pub fn n_genes(&self) -> usize {
        self.genes.len()
    }

    /// Exact sums of each gene.
    pub fn genes(&self) -> &[GeneCounts] {
        &self.genes
    }

    /// What is known of the values as a whole.
    pub fn facts(&self) -> &CountFacts {
        &self.facts
    }

    /// The genes that cell totals leave out, if any.
    pub fn excluded(&self) -> Option<&[bool]> {
        self.excluded.as_deref()
    }

    /// The excluded genes again, to make another summary that merges with this one.
    pub fn shared_exclusions(&self) -> Option<Arc<[bool]>> {
        self.excluded.clone()
    }

    /// Number of cells seen.
    pub fn n_cells(&self) -> usize {
        self.cell_totals.values().map(Vec::len).sum()
    }

    /// Adds the cells of a chunk, entry by entry: the specification of every faster kernel.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for a cell whose total is above 2^53, and for cells seen before.
    pub fn fold(&mut self, chunk: CsrView<'_>) -> Result<()> {
        let totals = with_values!(chunk.values(), |values| self.fold_values(chunk, values))?;
        self.add_cell_totals(chunk.first_cell(), totals)
    }

    fn fold_values<V: Value>(&mut self, chunk: CsrView<'_>, values: &[V]) -> Result<Vec<f64>> {
        let excluded = self.excluded.clone();
        let counts = |gene: u32| excluded.as_ref().is_none_or(|flags| !flags[gene as usize]);
        let mut totals = Vec::with_capacity(chunk.n_cells());
        for row in 0..chunk.n_cells() {
            let range = chunk.row_range(row);
            let entries = chunk.indices()[range.clone()].iter().zip(&values[range]);
            let total: u128 =
                entries.clone().filter(|(gene, _)| counts(**gene)).map(|(_, &x)| fixed_total(x.to_f64())).sum();
            let total = total_from_fixed(total);
            if total > LARGEST_COUNT {
                let cell = chunk.first_cell() + row;
                return Err(Error::input(format!("cell {cell}: its total of {total:e} is above 2^53")));
            }
            let weight = share_weight(total);
            for (&gene, &x) in entries {
                let x = x.to_f64();
                let sums = &mut self.genes[gene as usize];
                sums.total += fixed_total(x);
                if counts(gene) {
                    let q = u128::from(share(x, weight));
                    sums.sum += q;
                    sums.sum_of_squares += q * q;
                }
                self.facts.n_entries += 1;
                self.facts.n_fractional += u64::from(x.fract() != 0.0);
                self.facts.largest = self.facts.largest.max(x);
            }
            totals.push(total);
        }
        Ok(totals)
    }

    /// Adds sums that a kernel formed by itself, for consecutive cells.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) if the number of genes differs or a cell was seen before.
    pub fn add(
        &mut self,
        first_cell: usize,
        cell_totals: Vec<f64>,
        genes: &[GeneCounts],
        facts: &CountFacts,
    ) -> Result<()> {
        if genes.len() != self.genes.len() {
            return Err(Error::internal(format!("sums of {} genes for {} genes", genes.len(), self.genes.len())));
        }
        self.add_cell_totals(first_cell, cell_totals)?;
        self.facts.merge(facts);
        for (to, from) in self.genes.iter_mut().zip(genes) {
            to.total += from.total;
            to.sum += from.sum;
            to.sum_of_squares += from.sum_of_squares;
        }
        Ok(())
    }

    /// Adds another summary, of other cells.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) if they don't fit: other genes, other exclusions, a cell in both.
    pub fn merge(&mut self, other: Self) -> Result<()> {
        if other.excluded != self.excluded {
            return Err(Error::internal("summaries that exclude different genes can't be merged"));
        }
        self.add(0, Vec::new(), &other.genes, &other.facts)?;
        for (first_cell, totals) in other.cell_totals {
            self.add_cell_totals(first_cell, totals)?;
        }
        Ok(())
    }

    /// Adds the totals of consecutive cells whose other sums come later, by [`CountSummary::add`] without cells.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) if a cell was seen before, or there are more than
    /// [`MOST_CELLS`](super::MOST_CELLS).
    pub fn add_cell_totals(&mut self, first_cell: usize, totals: Vec<f64>) -> Result<()> {
        if totals.is_empty() {
            return Ok(());
        }
        let end = first_cell.saturating_add(totals.len());
        if end > MOST_CELLS {
            return Err(Error::input(format!("cell {end}; the exact sums have room for {MOST_CELLS} cells")));
        }
        let before = self.cell_totals.range(..end).next_back().map(|(&start, run)| (start, start + run.len()));
        if let Some((start, before_end)) = before
            && before_end > first_cell
        {
            return Err(Error::internal(format!(
                "cells {first_cell}..{end} and {start}..{before_end} overlap: a cell was summarised twice"
            )));
        }
        let mut run_start = first_cell;
        let mut run = totals;
        if let Some((start, before_end)) = before
            && before_end == first_cell
            && let Some(mut joined) = self.cell_totals.remove(&start)
        {
            joined.append(&mut run);
            (run_start, run) = (start, joined);
        }
        if let Some(mut after) = self.cell_totals.remove(&end) {
            run.append(&mut after);
        }
        self.cell_totals.insert(run_start, run);
        Ok(())
    }

    /// The totals of all cells, if exactly `n_cells` were seen, none missing.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) naming the first cell that is missing.
    pub fn cell_totals(&self, n_cells: usize) -> Result<&[f64]> {
        match self.cell_totals.iter().next() {
            Some((0, run)) if run.len() == n_cells => Ok(run),
            Some((0, run)) => {
                Err(Error::internal(format!("cell {} of {n_cells} was not summarised", run.len().min(n_cells))))
            }
            _ => Err(Error::internal(format!("cell 0 of {n_cells} was not summarised"))),
        }
    }

    /// The totals of the cells that were seen, in cell order.
    pub fn seen_cell_totals(&self) -> impl Iterator<Item = f64> {
        self.cell_totals.values().flatten().copied()
    }

    /// Copies the totals of consecutive cells, of which there is one place for each.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) if one of them was not summarised.
    pub fn copy_cell_totals(&self, first_cell: usize, to: &mut [f64]) -> Result<()> {
        let run = self.cell_totals.range(..=first_cell).next_back();
        let found = run.and_then(|(&start, run)| run.get(first_cell - start..)?.get(..to.len()));
        match found {
            Some(totals) => to.copy_from_slice(totals),
            None if to.is_empty() => {}
            None => {
                let end = first_cell + to.len();
                return Err(Error::internal(format!("not all of the cells {first_cell}..{end} were summarised")));
            }
        }
        Ok(())
    }

    /// The summary in a form that is the same on every machine: see `from_bytes`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new(Self::TAG);
        out.usize(self.genes.len());
        out.bool(self.excluded.is_some());
        for &flag in self.excluded.iter().flat_map(|flags| flags.iter()) {
            out.bool(flag);
        }
        out.u64(self.facts.n_entries);
        out.u64(self.facts.n_fractional);
        out.f64(self.facts.largest);
        for gene in &self.genes {
            out.u128(gene.total);
            out.u128(gene.sum);
            out.u128(gene.sum_of_squares);
        }
        out.usize(self.cell_totals.len());
        for (&first_cell, run) in &self.cell_totals {
            out.usize(first_cell);
            out.usize(run.len());
            for &total in run {
                out.f64(total);
            }
        }
        out.finish()
    }

    /// Reads what [`CountSummary::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for other bytes, another version, or a summary that can't be.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new(bytes, Self::TAG)?;
        let n_genes = input.len(48)?;
        let excluded =
            if input.bool()? { Some((0..n_genes).map(|_| input.bool()).collect::<Result<_>>()?) } else { None };
        let facts = CountFacts { n_entries: input.u64()?, n_fractional: input.u64()?, largest: input.f64()? };
        let genes = (0..n_genes)
            .map(|_| Ok(GeneCounts { total: input.u128()?, sum: input.u128()?, sum_of_squares: input.u128()? }))
            .collect::<Result<_>>()?;
        let mut summary = Self { excluded, genes, facts, cell_totals: BTreeMap::new() };
        for _ in 0..input.len(16)? {
            let first_cell = input.usize()?;
            let totals = (0..input.len(8)?).map(|_| input.f64()).collect::<Result<_>>()?;
            summary.add_cell_totals(first_cell, totals).map_err(|error| damaged().with_source(error))?;
        }
        input.finish()?;
        if summary.can_be() { Ok(summary) } else { Err(damaged()) }
    }

    /// Whether the sums are such that counts can have, so that no later sum overflows.
    fn can_be(&self) -> bool {
        let n_cells = self.n_cells() as u128;
        let CountFacts { n_entries, n_fractional, largest } = self.facts;
        self.genes.iter().all(|gene| {
            gene.total <= n_cells * MOST_TOTAL
                && gene.sum <= n_cells * MOST_SUM
                && gene.sum_of_squares <= n_cells * MOST_SQUARES
        }) && u128::from(n_entries) <= n_cells * self.genes.len() as u128
            && n_fractional <= n_entries
            && (0.0..=LARGEST_COUNT).contains(&largest)
            && self.cell_totals.values().flatten().all(|total| (0.0..=LARGEST_COUNT).contains(total))
    }

    const TAG: [u8; 4] = *b"CNTS";
}
