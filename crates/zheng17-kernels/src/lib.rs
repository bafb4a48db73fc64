//! The chunk functions of the recipe for today's CPUs: bit for bit those of `zheng17-core`, several times as fast.
//!
//! Instructions are chosen while the program runs, so one binary serves every machine. Workers that see many chunks keep a
//! folder each ([`CountFolder`], [`MomentFolder`]); [`FastKernels`] serves whoever has one chunk at a time. Matrices are kept as
//! [`KeptChunk`]s, two bytes an entry where that is possible, and summed and selected from as they are kept.

#![allow(
    clippy::inline_always,
    reason = "only what is inlined into a dispatched function is compiled for its instructions"
)]

mod bytes;
mod corrections;
mod counts;
mod gram;
mod kept;
mod lanes;
mod log1p;
mod moments;
mod packed;
mod rows;
mod scores;

pub use counts::CountFolder;
pub use gram::{GramBlock, GramTotal};
pub use kept::KeptChunk;
pub use lanes::{Lanes, ROWS_PER_FLUSH};
pub use moments::MomentFolder;
pub use packed::PackedChunk;
pub use rows::select_kept_into;
pub use scores::Scores;
use zheng17_core::exact::{CountSummary, MomentPlan, MomentSummary};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::GeneMap;
use zheng17_core::{ChunkKernels, CsrBuffer, CsrView, Result};

/// The vectorised kernels.
#[derive(Debug, Clone, Copy)]
pub struct FastKernels {
    arch: pulp::Arch,
}

impl Default for FastKernels {
    fn default() -> Self {
        Self { arch: pulp::Arch::new() }
    }
}

impl ChunkKernels for FastKernels {
    fn fold_counts(&self, into: &mut CountSummary, chunk: CsrView<'_>) -> Result<()> {
        let mut folder = CountFolder::new(into.n_genes(), into.shared_exclusions());
        folder.fold(chunk)?;
        into.merge(folder.finish()?)
    }

    fn fold_moments(&self, into: &mut MomentSummary, chunk: CsrView<'_>, plan: &MomentPlan) -> Result<()> {
        let mut folder = MomentFolder::new(into.genes().len(), plan);
        folder.fold(chunk)?;
        into.merge(&folder.finish()?)
    }

    fn select_into(&self, chunk: CsrView<'_>, genes: &GeneMap, out: &mut CsrBuffer) -> Result<()> {
        rows::select_into(chunk, genes, out);
        Ok(())
    }

    fn affine_into(&self, chunk: CsrView<'_>, plan: &OutputPlan, out: &mut [f32]) -> Result<()> {
        rows::affine_into(self.arch, chunk, plan, out);
        Ok(())
    }
}
