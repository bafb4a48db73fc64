//! What the entries of a row add to the scaled row of a cell without entries: the input of everything that PCA sums.

use zheng17_core::kernels::OutputPlan;
use zheng17_core::{CsrView, with_values};

use crate::rows::normalise;

/// Computes corrections row by row, as [`zheng17_core::backend::GramBuilder`] and
/// [`Projection::scores`](zheng17_core::backend::Projection::scores) do.
pub(crate) struct Corrections {
    arch: pulp::Arch,
    zero_values: Vec<f64>,
    values: Vec<f64>,
    /// The row by increasing gene, where it isn't so stored.
    sorted: Vec<(u32, f64)>,
    sorted_genes: Vec<u32>,
}

impl Corrections {
    pub(crate) fn new(plan: &OutputPlan) -> Self {
        Self {
            arch: pulp::Arch::new(),
            zero_values: plan.zero_values(),
            values: Vec::new(),
            sorted: Vec::new(),
            sorted_genes: Vec::new(),
        }
    }

    /// The genes of a row, increasing, and the correction of each.
    pub(crate) fn of_row<'a>(
        &'a mut self,
        chunk: CsrView<'a>,
        row: usize,
        plan: &OutputPlan,
    ) -> (&'a [u32], &'a [f64]) {
        let genes = chunk.row_indices(row);
        let scale = plan.cell_scale[chunk.first_cell() + row];
        with_values!(chunk.row_values(row), |values| {
            normalise(self.arch, values, scale, plan.log, &mut self.values);
        });
        for (&gene, value) in genes.iter().zip(&mut self.values) {
            let gene = gene as usize;
            *value = match plan.max_value {
                None => *value * plan.inverse_deviation[gene],
                Some(_) => plan.scaled(*value, gene) - self.zero_values[gene],
            };
        }
        if genes.is_sorted() {
            return (genes, &self.values);
        }
        self.sorted.clear();
        self.sorted.extend(genes.iter().copied().zip(self.values.iter().copied()));
        self.sorted.sort_by_key(|entry| entry.0);
        self.sorted_genes.clear();
        self.values.clear();
        for &(gene, value) in &self.sorted {
            self.sorted_genes.push(gene);
            self.values.push(value);
        }
        (&self.sorted_genes, &self.values)
    }
}
