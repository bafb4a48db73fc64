//! A backend that a program links: kernels for one chunk of cells, and their place among the backends.

use zheng17_core::backend::chunked::KernelBackend;
use zheng17_core::backend::{BackendEntry, Determinism, Registry};
use zheng17_core::matrix::GeneMap;
use zheng17_core::{Capabilities, ChunkKernels, CsrBuffer, CsrView, Result};

/// The kernels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernels;

/// A method that is not written here is the specification itself: right, and not fast.
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

/// The backend: chunks of cells in memory, handed to the kernels one after another.
pub fn backend() -> KernelBackend<Kernels> {
    let capabilities = Capabilities {
        name: "template-static".to_owned(),
        description: "a backend that programs link".to_owned(),
        determinism: Determinism::SameBits,
        ordered_fold: true,
        out_of_core: false,
        threads: false,
        devices: false,
    };
    KernelBackend::new(Kernels, capabilities)
}

fn entry() -> BackendEntry {
    BackendEntry::new(env!("CARGO_PKG_NAME"), backend)
}

// Programs that name this package, if only with `use zheng17_template_static as _;`, have the backend.
zheng17_core::link_backend!(entry);

/// Adds the backend to a registry, for programs that make their own.
///
/// # Errors
/// If the name is taken.
pub fn register(registry: &mut Registry) -> Result<()> {
    registry.register(entry())
}
