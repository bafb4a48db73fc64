//! What is done to one chunk of cells: the small trait where speed lives, and its scalar specification.
//!
//! A kernel sees a chunk, a plan and an accumulator, and nothing else: no files, no threads, no other chunks. The provided
//! methods are the specification, and an override gives the same bits; only a backend that declares
//! [`SameBitsUpToLog`](crate::backend::Determinism::SameBitsUpToLog) may scale with another log1p, within one unit in the last place of
//! 64 bits.

use std::sync::Arc;

use crate::error::Result;
use crate::exact::{CountSummary, MomentPlan, MomentSummary};
use crate::log1p::log1p;
use crate::matrix::{CsrBuffer, CsrView, GeneMap, Value};
use crate::with_values;

/// Chunk functions of the recipe. Chunks keep the invariants of [`crate::matrix`]; their rows may be unsorted.
pub trait ChunkKernels: Send + Sync {
    /// Adds the totals and exact moments of a chunk.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for a cell whose total is above 2^53.
    fn fold_counts(&self, into: &mut CountSummary, chunk: CsrView<'_>) -> Result<()> {
        into.fold(chunk)
    }

    /// Adds the moments of a chunk after its cells were scaled as the plan says.
    ///
    /// # Errors
    /// None by the scalar kernels.
    fn fold_moments(&self, into: &mut MomentSummary, chunk: CsrView<'_>, plan: &MomentPlan) -> Result<()> {
        into.fold(chunk, plan);
        Ok(())
    }

    /// Appends the chunk's cells with only the selected genes, renumbered; rows come out sorted.
    ///
    /// # Errors
    /// None by the scalar kernels.
    fn select_into(&self, chunk: CsrView<'_>, genes: &GeneMap, out: &mut CsrBuffer) -> Result<()> {
        let first_row = out.n_cells();
        for row in 0..chunk.n_cells() {
            let values = chunk.row_values(row);
            for (at, &gene) in chunk.row_indices(row).iter().enumerate() {
                let new = genes.new_index()[gene as usize];
                if new != GeneMap::NOT_SELECTED {
                    out.indices.push(new);
                    out.values.push(values.get(at));
                }
            }
            out.end_row();
        }
        out.sort_rows_from(first_row);
        Ok(())
    }

    /// Writes the scaled values of a chunk of selected genes, dense, row by row: cells × genes.
    ///
    /// # Errors
    /// None by the scalar kernels.
    fn affine_into(&self, chunk: CsrView<'_>, plan: &OutputPlan, out: &mut [f32]) -> Result<()> {
        let zero_row: Vec<f32> = plan.zero_values().iter().map(|&y| y as f32).collect();
        with_values!(chunk.values(), |values| affine(chunk, values, plan, &zero_row, out));
        Ok(())
    }
}

fn affine<V: Value>(chunk: CsrView<'_>, values: &[V], plan: &OutputPlan, zero_row: &[f32], out: &mut [f32]) {
    for (row, out_row) in out.chunks_exact_mut(chunk.n_genes().max(1)).take(chunk.n_cells()).enumerate() {
        out_row.copy_from_slice(zero_row);
        let scale = plan.cell_scale[chunk.first_cell() + row];
        let range = chunk.row_range(row);
        for (&gene, &x) in chunk.indices()[range.clone()].iter().zip(&values[range]) {
            out_row[gene as usize] = plan.scaled(plan.normalised(x.to_f64(), scale), gene as usize) as f32;
        }
    }
}

/// The scalar kernels: every provided method as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScalarKernels;

impl ChunkKernels for ScalarKernels {}

/// How stored values of the selected genes become results: scale the cell, perhaps log1p, then centre and scale the gene.
#[derive(Debug, Clone)]
pub struct OutputPlan {
    /// The factor of each cell; 0 for cells without selected genes.
    pub cell_scale: Arc<[f64]>,
    /// Whether values are logarithmised after that.
    pub log: bool,
    /// The mean of each selected gene.
    pub mean: Vec<f64>,
    /// One over the standard deviation of each selected gene; 0 for genes without deviation, whose column is then 0.
    pub inverse_deviation: Vec<f64>,
    /// Scaled values are clipped to ± this.
    pub max_value: Option<f64>,
}

impl OutputPlan {
    /// Number of selected genes.
    pub fn n_genes(&self) -> usize {
        self.mean.len()
    }

    /// The normalised, perhaps logarithmised value of an entry.
    #[inline]
    pub fn normalised(&self, value: f64, cell_scale: f64) -> f64 {
        let value = value * cell_scale;
        if self.log { log1p(value) } else { value }
    }

    /// The scaled value of a normalised one.
    #[inline]
    pub fn scaled(&self, normalised: f64, gene: usize) -> f64 {
        // Adding zero turns −0 into 0.
        let scaled = (normalised - self.mean[gene]) * self.inverse_deviation[gene] + 0.0;
        match self.max_value {
            Some(largest) => scaled.clamp(-largest, largest),
            None => scaled,
        }
    }

    /// What each gene has where nothing is stored.
    pub fn zero_values(&self) -> Vec<f64> {
        (0..self.n_genes()).map(|gene| self.scaled(0.0, gene)).collect()
    }
}
