//! What PCA sums over cells: products of pairs of genes, and projections of cells onto components.
//!
//! The scaled matrix is dense, but each of its rows is the row of a cell without entries plus a correction where something is
//! stored. Only the corrections are summed; the rest is arithmetic on means.

use crate::kernels::OutputPlan;
use crate::matrix::CsrView;

/// Cells whose products are summed before they are added to the total: fixed, so that chunks never change a bit.
pub const GRAM_BLOCK: usize = 4096;

/// Sums over cells of the corrections dᵢ and of their products: LᵀL for the correction matrix L of cells × genes.
#[derive(Debug, Clone, PartialEq)]
pub struct Gram {
    /// Number of genes.
    pub n_genes: usize,
    /// Σ dₐ·d_b for b ≤ a at `a * n_genes + b`; what stands above the diagonal is never looked at.
    pub products: Vec<f64>,
    /// Σ dₐ.
    pub sums: Vec<f64>,
}

impl Gram {
    /// The sums over no cells.
    pub fn new(n_genes: usize) -> Self {
        Self { n_genes, products: vec![0.0; n_genes * n_genes], sums: vec![0.0; n_genes] }
    }

    /// Adds the sums over another block of cells. Blocks must be added in cell order to keep the bits.
    ///
    /// # Panics
    /// If the numbers of genes differ.
    pub fn add(&mut self, block: &Self) {
        assert_eq!(self.n_genes, block.n_genes, "sums over the same genes");
        for gene in 0..self.n_genes {
            let products = gene * self.n_genes..=gene * self.n_genes + gene;
            for (total, block) in self.products[products.clone()].iter_mut().zip(&block.products[products]) {
                *total += block;
            }
        }
        for (total, block) in self.sums.iter_mut().zip(&block.sums) {
            *total += block;
        }
    }
}

/// Sums a [`Gram`] from chunks in cell order.
pub struct GramBuilder {
    total: Gram,
    block: Gram,
    current_block: usize,
    zero_values: Vec<f64>,
    row: Vec<(usize, f64)>,
}

impl GramBuilder {
    /// No cells yet.
    pub fn new(plan: &OutputPlan) -> Self {
        let empty = Gram::new(plan.n_genes());
        Self { total: empty.clone(), block: empty, current_block: 0, zero_values: plan.zero_values(), row: Vec::new() }
    }

    /// Adds the next cells. They must come in order; where chunks are cut makes no difference.
    pub fn fold(&mut self, chunk: CsrView<'_>, plan: &OutputPlan) {
        let n_genes = self.total.n_genes;
        for row in 0..chunk.n_cells() {
            let cell = chunk.first_cell() + row;
            if cell / GRAM_BLOCK != self.current_block {
                self.add_block();
                self.current_block = cell / GRAM_BLOCK;
            }
            corrections(chunk, row, plan, &self.zero_values, &mut self.row);
            for (at, &(gene, d)) in self.row.iter().enumerate() {
                self.block.sums[gene] += d;
                let products = &mut self.block.products[gene * n_genes..][..n_genes];
                for &(other, e) in &self.row[..=at] {
                    products[other] += d * e;
                }
            }
        }
    }

    /// The sums over all cells.
    pub fn finish(mut self) -> Gram {
        self.add_block();
        self.total
    }

    fn add_block(&mut self) {
        self.total.add(&self.block);
        self.block.products.fill(0.0);
        self.block.sums.fill(0.0);
    }
}

/// What the entries of a row add to the scaled row of a cell without entries, by increasing gene.
fn corrections(chunk: CsrView<'_>, row: usize, plan: &OutputPlan, zero_values: &[f64], out: &mut Vec<(usize, f64)>) {
    let scale = plan.cell_scale[chunk.first_cell() + row];
    let values = chunk.row_values(row);
    out.clear();
    out.extend(chunk.row_indices(row).iter().enumerate().map(|(at, &gene)| {
        let gene = gene as usize;
        let normalised = plan.normalised(values.get(at), scale);
        let correction = match plan.max_value {
            None => normalised * plan.inverse_deviation[gene],
            Some(_) => plan.scaled(normalised, gene) - zero_values[gene],
        };
        (gene, correction)
    }));
    if !out.is_sorted_by_key(|entry| entry.0) {
        out.sort_by_key(|entry| entry.0);
    }
}

/// A linear map from cells to scores.
#[derive(Debug, Clone, PartialEq)]
pub struct Projection {
    /// Number of components.
    pub n_components: usize,
    /// The weight of each gene in each component, at `gene * n_components + component`.
    pub weights: Vec<f64>,
    /// What is taken off each component: the projection of the mean correction.
    pub offset: Vec<f64>,
}

impl Projection {
    /// The scores of a chunk: rows of cells × components.
    pub fn scores(&self, chunk: CsrView<'_>, plan: &OutputPlan, out: &mut Vec<f32>) {
        let zero_values = plan.zero_values();
        let mut row_corrections = Vec::new();
        let mut scores = vec![0.0; self.n_components];
        out.clear();
        for row in 0..chunk.n_cells() {
            corrections(chunk, row, plan, &zero_values, &mut row_corrections);
            scores.fill(0.0);
            for &(gene, d) in &row_corrections {
                let weights = &self.weights[gene * self.n_components..][..self.n_components];
                for (score, weight) in scores.iter_mut().zip(weights) {
                    *score += d * weight;
                }
            }
            out.extend(scores.iter().zip(&self.offset).map(|(score, offset)| (score - offset) as f32));
        }
    }
}
