//! Products of gene pairs over a block of cells, fast: genes in tiles that stay in cache.
//!
//! Each pair's products are added in cell order, as [`zheng17_core::backend::GramBuilder`] adds them, so the bits are the same.

use zheng17_core::backend::Gram;
use zheng17_core::kernels::OutputPlan;
use zheng17_core::{CsrView, with_values};

use crate::rows::normalise;

/// Bytes of the products that one tile covers.
const TILE_BYTES: usize = 256 << 10;

/// The corrections of some cells (see [`Gram`]) and the sums of their products.
pub struct GramBlock {
    arch: pulp::Arch,
    sums: Gram,
    zero_values: Vec<f64>,
    indptr: Vec<usize>,
    genes: Vec<u32>,
    corrections: Vec<f64>,
    normalised: Vec<f64>,
}

impl GramBlock {
    /// No cells yet.
    pub fn new(plan: &OutputPlan) -> Self {
        Self {
            arch: pulp::Arch::new(),
            sums: Gram::new(plan.n_genes()),
            zero_values: plan.zero_values(),
            indptr: vec![0],
            genes: Vec::new(),
            corrections: Vec::new(),
            normalised: Vec::new(),
        }
    }

    /// Forgets all cells.
    pub fn clear(&mut self) {
        self.sums.products.fill(0.0);
        self.sums.sums.fill(0.0);
        self.indptr.truncate(1);
        self.genes.clear();
        self.corrections.clear();
    }

    /// Adds the next cells. Rows that are sorted, as those of selected genes are, cost nothing more.
    pub fn add(&mut self, chunk: CsrView<'_>, plan: &OutputPlan) {
        with_values!(chunk.values(), |values| {
            for row in 0..chunk.n_cells() {
                let range = chunk.row_range(row);
                let scale = plan.cell_scale[chunk.first_cell() + row];
                normalise(self.arch, &values[range.clone()], scale, plan.log, &mut self.normalised);
                let first = self.genes.len();
                for (&gene, &value) in chunk.indices()[range].iter().zip(&self.normalised) {
                    let at = gene as usize;
                    let correction = match plan.max_value {
                        None => value * plan.inverse_deviation[at],
                        Some(_) => plan.scaled(value, at) - self.zero_values[at],
                    };
                    self.genes.push(gene);
                    self.corrections.push(correction);
                    self.sums.sums[at] += correction;
                }
                if !self.genes[first..].is_sorted() {
                    sort_row(&mut self.genes[first..], &mut self.corrections[first..]);
                }
                self.indptr.push(self.genes.len());
            }
        });
    }

    /// Sums the products of all cells added since [`GramBlock::clear`].
    pub fn multiply(&mut self) {
        let n_genes = self.sums.n_genes;
        let n_rows = self.indptr.len() - 1;
        let tile_genes = (TILE_BYTES / (8 * n_genes.max(1))).max(1);
        // How far each row has got.
        let mut next = self.indptr[..n_rows].to_vec();
        for first in (0..n_genes).step_by(tile_genes) {
            let end = (first + tile_genes).min(n_genes) as u32;
            let tile = &mut self.sums.products[first * n_genes..end as usize * n_genes];
            for (row, next) in next.iter_mut().enumerate() {
                let (start, stop) = (self.indptr[row], self.indptr[row + 1]);
                while *next < stop && self.genes[*next] < end {
                    let d = self.corrections[*next];
                    let products = &mut tile[(self.genes[*next] as usize - first) * n_genes..][..n_genes];
                    let below = start..=*next;
                    for (&gene, &e) in self.genes[below.clone()].iter().zip(&self.corrections[below]) {
                        products[gene as usize] += d * e;
                    }
                    *next += 1;
                }
            }
        }
    }

    /// The sums.
    pub fn sums(&self) -> &Gram {
        &self.sums
    }
}

fn sort_row(genes: &mut [u32], corrections: &mut [f64]) {
    let mut entries: Vec<(u32, f64)> = genes.iter().copied().zip(corrections.iter().copied()).collect();
    entries.sort_by_key(|entry| entry.0);
    for (at, (gene, correction)) in entries.into_iter().enumerate() {
        (genes[at], corrections[at]) = (gene, correction);
    }
}
