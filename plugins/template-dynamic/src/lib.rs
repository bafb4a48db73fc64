//! A backend in a shared library: kernels for one chunk of cells.

use zheng17_plugin_sdk::{ChunkKernels, CsrBuffer, CsrView, FLAG_CONCURRENT, GeneMap, Result, export_plugin};

/// The kernels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernels;

impl ChunkKernels for Kernels {
    fn select_into(&self, chunk: CsrView<'_>, genes: &GeneMap, out: &mut CsrBuffer) -> Result<()> {
        let mut kept = Vec::new();
        for row in 0..chunk.n_cells() {
            let new_index = chunk.row_indices(row).iter().map(|&gene| genes.new_index()[gene as usize]);
            kept.clear();
            kept.extend(new_index.enumerate().filter(|&(_, new)| new != GeneMap::NOT_SELECTED));
            // Genes come in any order within a cell, and leave it sorted.
            kept.sort_unstable_by_key(|&(_, new)| new);
            for &(at, new) in &kept {
                out.indices.push(new);
                out.values.push(chunk.row_values(row).get(at));
            }
            out.end_row();
        }
        Ok(())
    }
}

export_plugin! {
    name: "template-dynamic",
    description: "a backend in a shared library",
    flags: FLAG_CONCURRENT,
    // The methods that are written above. What is not listed, zheng17 does itself.
    functions: [select_into],
    kernels: Kernels,
    create: || Ok(Kernels),
}
