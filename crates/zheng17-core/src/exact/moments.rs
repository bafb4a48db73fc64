//! The second kind of summary: exact moments of each gene after cells were scaled, and perhaps logarithmised.

use std::sync::Arc;

use super::bytes::{Reader, Writer, damaged};
use super::wide::scaled_variance;
use super::{MOST_CELLS, MOST_SQUARES, MOST_SUM, TWO_46, share};
use crate::error::{Error, Result};
use crate::log1p::log1p;
use crate::matrix::{CsrView, Value};
use crate::with_values;

/// Exact sums of one gene.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GeneMoments {
    /// Sum of q.
    pub sum: u128,
    /// Sum of q².
    pub sum_of_squares: u128,
}

/// How a stored value becomes the integer that is summed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arithmetic {
    /// Shares of cell totals: the scale of a cell is 2^52 / t, q = rint(min(x · scale, 2^52)).
    Share,
    /// Logarithms: q = rint(log1p(x · scale) · 2^46).
    Log,
    /// scanpy's 32-bit values and squares. The scale of a cell is the `f32` by which values are divided; values are below
    /// 2^`exponent`; q = rint(v · 2^(52−exponent)), and instead of q² the `f32` square in units of 2^(2·exponent−104).
    Float32 {
        /// Whether values are logarithmised (in 32 bits) after the division.
        log: bool,
        /// Values are at most 2^exponent.
        exponent: i32,
    },
}

/// What a moment pass does with each cell.
#[derive(Debug, Clone)]
pub struct MomentPlan {
    /// The scale of each cell of the whole matrix; its meaning depends on the arithmetic. 0 for cells that count as empty.
    pub cell_scale: Arc<[f64]>,
    /// How a stored value becomes the integer that is summed.
    pub arithmetic: Arithmetic,
}

impl MomentPlan {
    /// The value of one unit of q.
    pub fn unit(&self) -> f64 {
        match self.arithmetic {
            Arithmetic::Share => 2_f64.powi(-52),
            Arithmetic::Log => 1.0 / TWO_46,
            Arithmetic::Float32 { exponent, .. } => 2_f64.powi(exponent - 52),
        }
    }
}

/// Exact moments of some cells. Summaries merge, in any order, to the same bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MomentSummary {
    n_cells: u64,
    genes: Vec<GeneMoments>,
}

impl MomentSummary {
    /// The summary of no cells.
    pub fn new(n_genes: usize) -> Self {
        Self { n_cells: 0, genes: vec![GeneMoments::default(); n_genes] }
    }

    /// Number of cells seen.
    pub fn n_cells(&self) -> u64 {
        self.n_cells
    }

    /// Exact sums of each gene.
    pub fn genes(&self) -> &[GeneMoments] {
        &self.genes
    }

    /// Adds the cells of a chunk, entry by entry: the specification of every faster kernel.
    pub fn fold(&mut self, chunk: CsrView<'_>, plan: &MomentPlan) {
        with_values!(chunk.values(), |values| self.fold_values(chunk, values, plan));
    }

    fn fold_values<V: Value>(&mut self, chunk: CsrView<'_>, values: &[V], plan: &MomentPlan) {
        for row in 0..chunk.n_cells() {
            let scale = plan.cell_scale[chunk.first_cell() + row];
            let range = chunk.row_range(row);
            for (&gene, &x) in chunk.indices()[range.clone()].iter().zip(&values[range]) {
                let x = x.to_f64();
                let (q, square) = match plan.arithmetic {
                    Arithmetic::Share => squared(share(x, scale)),
                    Arithmetic::Log => squared((log1p(x * scale) * TWO_46).round_ties_even() as u64),
                    Arithmetic::Float32 { log, exponent } => float32_terms(x as f32, scale as f32, log, exponent),
                };
                let sums = &mut self.genes[gene as usize];
                sums.sum += u128::from(q);
                sums.sum_of_squares += square;
            }
        }
        self.n_cells += chunk.n_cells() as u64;
    }

    /// Adds sums that a kernel formed by itself.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) if the number of genes differs;
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for more cells than the sums have room for.
    pub fn add(&mut self, n_cells: u64, genes: &[GeneMoments]) -> Result<()> {
        if genes.len() != self.genes.len() {
            return Err(Error::internal(format!("sums of {} genes for {} genes", genes.len(), self.genes.len())));
        }
        self.n_cells = self.n_cells.saturating_add(n_cells);
        if self.n_cells > MOST_CELLS as u64 {
            return Err(Error::input(format!("{} cells; the exact sums have room for {MOST_CELLS}", self.n_cells)));
        }
        for (to, from) in self.genes.iter_mut().zip(genes) {
            to.sum += from.sum;
            to.sum_of_squares += from.sum_of_squares;
        }
        Ok(())
    }

    /// Adds another summary, of other cells.
    ///
    /// # Errors
    /// As [`MomentSummary::add`].
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.add(other.n_cells, &other.genes)
    }

    /// Mean and variance (ddof 1) of a gene over all cells seen, in units of q and of q².
    pub fn mean_and_variance(&self, gene: usize) -> (f64, f64) {
        mean_and_variance(self.n_cells, self.genes[gene].sum, self.genes[gene].sum_of_squares)
    }

    /// The summary in a form that is the same on every machine.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new(Self::TAG);
        out.u64(self.n_cells);
        out.usize(self.genes.len());
        for gene in &self.genes {
            out.u128(gene.sum);
            out.u128(gene.sum_of_squares);
        }
        out.finish()
    }

    /// Reads what [`MomentSummary::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for other bytes, another version, or a summary that can't be.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new(bytes, Self::TAG)?;
        let n_cells = input.u64()?;
        let genes = (0..input.len(32)?)
            .map(|_| Ok(GeneMoments { sum: input.u128()?, sum_of_squares: input.u128()? }))
            .collect::<Result<Vec<_>>>()?;
        input.finish()?;
        let most = u128::from(n_cells.min(MOST_CELLS as u64 + 1));
        let can_be = |gene: &GeneMoments| gene.sum <= most * MOST_SUM && gene.sum_of_squares <= most * MOST_SQUARES;
        if most > MOST_CELLS as u128 || !genes.iter().all(can_be) {
            return Err(damaged());
        }
        Ok(Self { n_cells, genes })
    }

    const TAG: [u8; 4] = *b"MOMS";
}

/// Mean and variance (ddof 1) from exact sums over `n` cells, in units of q and of q². Each is rounded by one conversion and
/// one division.
pub(crate) fn mean_and_variance(n: u64, sum: u128, sum_of_squares: u128) -> (f64, f64) {
    let variance = scaled_variance(n, sum, sum_of_squares) / (n as f64 * (n as f64 - 1.0));
    (sum as f64 / n as f64, variance)
}

fn squared(q: u64) -> (u64, u128) {
    (q, u128::from(q) * u128::from(q))
}

/// The value x / divisor of scanpy's 32-bit arithmetic.
pub(crate) fn float32_value(x: f32, divisor: f32, log: bool) -> f32 {
    if divisor == 0.0 {
        return 0.0;
    }
    let value = x / divisor;
    // numpy's 32-bit log1p, which is the platform's, is within one ulp of this, the rounded 64-bit one. Where the cutoff falls
    // on genes whose scores are equal but for rounding, that ulp decides which of them scanpy takes.
    if log { log1p(f64::from(value)) as f32 } else { value }
}

fn float32_terms(x: f32, divisor: f32, log: bool, exponent: i32) -> (u64, u128) {
    // The minimum matters only for fractions so small that the total is below one of its terms, and for genes that are removed.
    let value = float32_value(x, divisor, log).min(2_f64.powi(exponent) as f32);
    let square = value * value;
    // Scaling by powers of two is exact; f32 values this small lose nothing but what lies below 2^−52 of the largest.
    let q = (f64::from(value) * 2_f64.powi(52 - exponent)).round_ties_even() as u64;
    (q, (f64::from(square) * 2_f64.powi(104 - 2 * exponent)).round_ties_even() as u128)
}
