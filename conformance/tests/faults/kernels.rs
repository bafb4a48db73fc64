//! Chunk kernels with a fault.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use zheng17_core::exact::{CountSummary, GeneMoments, MomentPlan, MomentSummary};
use zheng17_core::kernels::{OutputPlan, ScalarKernels};
use zheng17_core::matrix::{CsrBuffer, CsrView, GeneMap};
use zheng17_core::{ChunkKernels, Result};

/// What is wrong with a backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The last cell of a chunk is counted with one entry less.
    LosesAnEntry,
    /// One square is off by one unit of 2^−104.
    SquareOffByOne,
    /// Scaled values are off by one unit in the last place of `f32`.
    ScaledOffByOneUlp,
    /// The last selected gene is forgotten.
    LosesAGene,
    /// Genes are selected one column too far to the right.
    ColumnOffByOne,
    /// The last of several chunks has no moments.
    DropsLastChunk,
    /// Rows are taken for sorted.
    TakesRowsForSorted,
    /// Totals of cells are summed in 32 bits.
    Float32Sums,
    /// Means of the first plan are used for all that follow with as many genes.
    StaleCache,
    /// Genes without deviation are divided by it.
    NanOnConstantGenes,
    /// Cells of every chunk are scaled by the factors of the first one's.
    FactorsOfTheFirstChunk,
    /// Of a chunk only so many rows are scaled as a buffer has room for.
    CutsLargeChunks,
    /// Genes are scaled four at a time; those left over are not.
    LosesGenesLeftOver,
    Panics,
}

/// Kernels with a fault, and means that they should not keep.
pub(crate) struct Faulty(Fault, Mutex<HashMap<usize, Vec<f64>>>);

impl Faulty {
    pub(crate) fn new(fault: Fault) -> Self {
        Self(fault, Mutex::default())
    }
}

impl ChunkKernels for Faulty {
    fn fold_counts(&self, into: &mut CountSummary, chunk: CsrView<'_>) -> Result<()> {
        match self.0 {
            Fault::Panics => panic!("a kernel that panics"),
            Fault::LosesAnEntry if chunk.n_entries() > 0 => {
                let indptr: Vec<u64> =
                    chunk.indptr().iter().map(|&p| p.min(chunk.indptr()[0] + chunk.n_entries() as u64 - 1)).collect();
                let (indices, values) = (chunk.indices(), chunk.values());
                let kept = 0..chunk.n_entries() - 1;
                into.fold(CsrView::trusted(
                    chunk.first_cell(),
                    chunk.n_genes(),
                    &indptr,
                    &indices[kept.clone()],
                    values.slice(kept),
                ))
            }
            Fault::Float32Sums => {
                let mut sums = CountSummary::new(into.n_genes(), into.shared_exclusions());
                sums.fold(chunk)?;
                let total = |row: usize| {
                    let (genes, values) = (chunk.row_indices(row), chunk.row_values(row));
                    let counts = |gene: u32| into.excluded().is_none_or(|flags| !flags[gene as usize]);
                    let counted = genes.iter().enumerate().filter(|(_, gene)| counts(**gene));
                    f64::from(counted.map(|(at, _)| values.get(at) as f32).sum::<f32>())
                };
                let totals = (0..chunk.n_cells()).map(total).collect();
                into.add(chunk.first_cell(), totals, sums.genes(), sums.facts())
            }
            _ => ScalarKernels.fold_counts(into, chunk),
        }
    }

    fn fold_moments(&self, into: &mut MomentSummary, chunk: CsrView<'_>, plan: &MomentPlan) -> Result<()> {
        if self.0 == Fault::SquareOffByOne {
            let mut one = vec![GeneMoments::default(); chunk.n_genes()];
            if let Some(first) = one.first_mut() {
                first.sum_of_squares = 1;
            }
            into.add(0, &one)?;
        }
        let is_last = chunk.first_cell() + chunk.n_cells() == plan.cell_scale.len();
        if self.0 == Fault::DropsLastChunk && is_last && chunk.first_cell() > 0 {
            return into.add(chunk.n_cells() as u64, &vec![GeneMoments::default(); chunk.n_genes()]);
        }
        ScalarKernels.fold_moments(into, chunk, plan)
    }

    fn select_into(&self, chunk: CsrView<'_>, genes: &GeneMap, out: &mut CsrBuffer) -> Result<()> {
        if self.0 == Fault::LosesAGene && genes.n_selected() > 1 {
            let selected: Vec<usize> =
                (0..chunk.n_genes()).filter(|&gene| genes.new_index()[gene] != GeneMap::NOT_SELECTED).collect();
            let fewer = GeneMap::new(chunk.n_genes(), &selected[..selected.len() - 1]);
            return ScalarKernels.select_into(chunk, &fewer, out);
        }
        if self.0 == Fault::ColumnOffByOne {
            let mut shifted = genes.new_index().to_vec();
            let by = usize::from(!shifted.is_empty());
            shifted.rotate_right(by);
            return ScalarKernels.select_into(chunk, &GeneMap::from_new_index(shifted), out);
        }
        if self.0 == Fault::TakesRowsForSorted {
            for row in 0..chunk.n_cells() {
                let (row_genes, values) = (chunk.row_indices(row), chunk.row_values(row));
                for (gene, &new) in
                    genes.new_index().iter().enumerate().filter(|(_, new)| **new != GeneMap::NOT_SELECTED)
                {
                    if let Ok(at) = row_genes.binary_search(&(gene as u32)) {
                        out.indices.push(new);
                        out.values.push(values.get(at));
                    }
                }
                out.end_row();
            }
            return Ok(());
        }
        ScalarKernels.select_into(chunk, genes, out)
    }

    fn affine_into(&self, chunk: CsrView<'_>, plan: &OutputPlan, out: &mut [f32]) -> Result<()> {
        if self.0 == Fault::StaleCache {
            let mut cache = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            let mean = cache.entry(plan.n_genes()).or_insert_with(|| plan.mean.clone()).clone();
            return ScalarKernels.affine_into(chunk, &OutputPlan { mean, ..plan.clone() }, out);
        }
        if self.0 == Fault::FactorsOfTheFirstChunk {
            let first = CsrView::trusted(0, chunk.n_genes(), chunk.indptr(), chunk.indices(), chunk.values());
            return ScalarKernels.affine_into(first, plan, out);
        }
        ScalarKernels.affine_into(chunk, plan, out)?;
        if self.0 == Fault::CutsLargeChunks {
            out.iter_mut().skip(1000 * chunk.n_genes()).for_each(|value| *value = 0.0);
        }
        if self.0 == Fault::LosesGenesLeftOver {
            for row in out.chunks_exact_mut(chunk.n_genes().max(1)) {
                let whole = row.len() / 4 * 4;
                row[whole..].fill(0.0);
            }
        }
        if self.0 == Fault::NanOnConstantGenes {
            for row in out.chunks_exact_mut(chunk.n_genes().max(1)) {
                for (value, deviation) in row.iter_mut().zip(&plan.inverse_deviation) {
                    *value = if *deviation == 0.0 { f32::NAN } else { *value };
                }
            }
        }
        if let (Fault::ScaledOffByOneUlp, Some(first)) = (self.0, out.first_mut()) {
            *first = first.next_up();
        }
        Ok(())
    }
}
