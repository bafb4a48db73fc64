//! Scores of cells, fast: a row's components are summed in registers, by increasing gene as the scalar function does.

use zheng17_core::CsrView;
use zheng17_core::backend::Projection;
use zheng17_core::kernels::OutputPlan;

use crate::corrections::Corrections;

/// Components are summed in multiples of this.
const STEP: usize = 8;

/// Most components that are summed together: as many as registers hold.
const WIDTH: usize = 4 * STEP;

/// A projection and a plan, made ready for many chunks. Gives the bits of [`Projection::scores`].
pub struct Scores<'a> {
    arch: pulp::Arch,
    plan: &'a OutputPlan,
    projection: &'a Projection,
    /// The weights, genes × components, each gene's filled up with zeros to a multiple of the step.
    weights: Vec<f64>,
    stride: usize,
}

impl<'a> Scores<'a> {
    /// Makes ready.
    pub fn new(projection: &'a Projection, plan: &'a OutputPlan) -> Self {
        let n_components = projection.n_components;
        let stride = n_components.next_multiple_of(STEP);
        let mut weights = vec![0.0; plan.n_genes() * stride];
        if n_components > 0 {
            for (to, from) in weights.chunks_exact_mut(stride).zip(projection.weights.chunks_exact(n_components)) {
                to[..n_components].copy_from_slice(from);
            }
        }
        Self { arch: pulp::Arch::new(), plan, projection, weights, stride }
    }

    /// The scores of a chunk, instead of what `scores` holds: rows of cells × components.
    pub fn of(&self, chunk: CsrView<'_>, scores: &mut Vec<f32>) {
        let Self { arch, plan, projection, weights, stride } = self;
        scores.clear();
        let mut corrections = Corrections::new(plan);
        let mut row_scores = vec![0.0; *stride];
        for row in 0..chunk.n_cells() {
            let (genes, corrections) = corrections.of_row(chunk, row, plan);
            arch.dispatch(RowScores { genes, corrections, weights, scores: &mut row_scores });
            scores.extend(row_scores.iter().zip(&projection.offset).map(|(score, offset)| (score - offset) as f32));
        }
    }
}

/// Sums a row's corrections times weights.
struct RowScores<'a> {
    genes: &'a [u32],
    corrections: &'a [f64],
    weights: &'a [f64],
    scores: &'a mut [f64],
}

impl pulp::NullaryFnOnce for RowScores<'_> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        let stride = self.scores.len();
        let mut first = 0;
        while stride - first >= WIDTH {
            self.sum::<WIDTH>(first);
            first += WIDTH;
        }
        match (stride - first) / STEP {
            0 => {}
            1 => self.sum::<STEP>(first),
            2 => self.sum::<{ 2 * STEP }>(first),
            _ => self.sum::<{ 3 * STEP }>(first),
        }
    }
}

impl RowScores<'_> {
    #[inline(always)]
    fn sum<const N: usize>(&mut self, first: usize) {
        let stride = self.scores.len();
        let mut sums = [0.0; N];
        for (&gene, &d) in self.genes.iter().zip(self.corrections) {
            let weights = &self.weights[gene as usize * stride + first..][..N];
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += d * weight;
            }
        }
        self.scores[first..first + N].copy_from_slice(&sums);
    }
}
