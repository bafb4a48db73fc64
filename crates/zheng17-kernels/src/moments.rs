//! Exact moments of logarithms, fast: a row's logarithms at once, then one vector addition for each entry.

use zheng17_core::exact::{Arithmetic, GeneMoments, MomentPlan, MomentSummary, TWO_46};
use zheng17_core::matrix::Value;
use zheng17_core::{CsrView, Result, with_values};

use crate::lanes::{Lanes, ROWS_PER_FLUSH};
use crate::log1p::log1p;

/// 2^52: adding it rounds a smaller number to an integer, ties to even, in the low bits.
const TWO_52: f64 = 4_503_599_627_370_496.0;

/// Sums one worker's chunks. Finishing it gives the summary that [`MomentSummary::fold`] would.
pub struct MomentFolder<'a> {
    arch: pulp::Arch,
    plan: &'a MomentPlan,
    summary: MomentSummary,
    lanes: Vec<Lanes>,
    rows: usize,
    integers: Vec<u64>,
}

impl<'a> MomentFolder<'a> {
    /// The folder of no cells.
    pub fn new(n_genes: usize, plan: &'a MomentPlan) -> Self {
        let fast = matches!(plan.arithmetic, Arithmetic::Log);
        Self {
            arch: pulp::Arch::new(),
            plan,
            summary: MomentSummary::new(n_genes),
            lanes: vec![Lanes::default(); if fast { n_genes } else { 0 }],
            rows: 0,
            integers: Vec::new(),
        }
    }

    /// Adds the cells of a chunk.
    ///
    /// # Errors
    /// None that an honest caller meets.
    pub fn fold(&mut self, chunk: CsrView<'_>) -> Result<()> {
        if self.lanes.is_empty() {
            // Shares over selected genes and scanpy's 32-bit values: few runs ask for them.
            self.summary.fold(chunk, self.plan);
            return Ok(());
        }
        with_values!(chunk.values(), |values| self.fold_logs(chunk, values))
    }

    fn fold_logs<V: Value>(&mut self, chunk: CsrView<'_>, values: &[V]) -> Result<()> {
        for row in 0..chunk.n_cells() {
            if self.rows == ROWS_PER_FLUSH {
                self.flush()?;
            }
            self.rows += 1;
            let range = chunk.row_range(row);
            let scale = self.plan.cell_scale[chunk.first_cell() + row];
            let (genes, values) = (&chunk.indices()[range.clone()], &values[range]);
            self.integers.resize(genes.len(), 0);
            self.arch.dispatch(LogIntegers { values, scale, out: &mut self.integers });
            for (&gene, &q) in genes.iter().zip(&self.integers) {
                self.lanes[gene as usize].add(Lanes::of(q, 0));
            }
        }
        Ok(())
    }

    /// The summary of all cells added.
    ///
    /// # Errors
    /// None that an honest caller meets.
    pub fn finish(mut self) -> Result<MomentSummary> {
        self.flush()?;
        Ok(self.summary)
    }

    fn flush(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let genes: Vec<GeneMoments> = self
            .lanes
            .iter()
            .map(|lanes| GeneMoments { sum: lanes.sum(), sum_of_squares: lanes.sum_of_squares() })
            .collect();
        self.lanes.fill(Lanes::default());
        self.summary.add(std::mem::take(&mut self.rows) as u64, &genes)
    }
}

/// rint(log1p(x · scale) · 2^46) for the entries of a row.
struct LogIntegers<'a, V> {
    values: &'a [V],
    scale: f64,
    out: &'a mut [u64],
}

impl<V: Value> pulp::NullaryFnOnce for LogIntegers<'_, V> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (out, &x) in self.out.iter_mut().zip(self.values) {
            let scaled = log1p(x.to_f64() * self.scale) * TWO_46;
            *out = (scaled + TWO_52).to_bits() & ((1 << 52) - 1);
        }
    }
}
