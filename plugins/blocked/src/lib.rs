//! A backend that stores blocks of cells gene by gene, so that the first pass over all counts writes nothing but results.
//!
//! **The idea.** The backend rayon stores cells one after another, so each entry is added to the sums of another gene: 32 bytes
//! read, added to and written, of 1.9 MB of sums for 60,000 genes. Here the entries of a gene within a block of 1,024 cells follow
//! each other. The sums of a gene stay in a register until its last entry. What an entry adds, its share and the square of it,
//! depends on its cell and its count alone, so it is looked up in a table that is made once for each block: 1,024 cells × 8 counts
//! × 32 bytes. An entry is the 16-bit place in this table and nothing else. There is no gene to be worked out and nothing to wait for.
//!
//! **Memory.** Two bytes an entry, as with rayon; 4 bytes for each gene and block, which is 0.09 bytes an entry for 60,000 genes;
//! 12 bytes for each count above 8. The table takes 256 KB for each thread.
//!
//! **What it costs.** Entries are sorted by gene when a matrix is opened, and put together to cells again when genes are selected.
//! Together that takes longer than the first pass gains, so from a file to principal components rayon is faster. The bench shows
//! all three. It pays where one matrix is summed several times.
//!
//! **What it doesn't do.** Fractions, unsorted cells and counts from 2^23 on stay as rayon holds them. All other work, and all work
//! on what was selected, is left to rayon.

#![allow(
    clippy::inline_always,
    reason = "only what is inlined into a dispatched function is compiled for its instructions"
)]

mod block;
mod matrix;

use std::sync::Arc;

use zheng17_core::backend::{BackendEntry, ChunkSink, Gram, Projection, Reduction, Registry, RowSink, Transform};
use zheng17_core::exact::{CountSummary, MomentPlan, MomentSummary};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::GeneMap;
use zheng17_core::{Capabilities, ChunkSource, Context, Result, Selection, Shape, SparseBackend};
use zheng17_rayon::{ChunkedMatrix, Rayon};

pub use matrix::Blocks;
use matrix::Selected;

/// The backend.
#[derive(Debug, Clone)]
pub struct Blocked {
    capabilities: Capabilities,
    rayon: Rayon,
}

impl Default for Blocked {
    fn default() -> Self {
        let rayon = Rayon::default();
        let capabilities = Capabilities {
            name: "blocked".to_owned(),
            description: "blocks of cells in memory, gene by gene".to_owned(),
            ..rayon.capabilities().clone()
        };
        Self { capabilities, rayon }
    }
}

fn entry() -> BackendEntry {
    BackendEntry::new(env!("CARGO_PKG_NAME"), Blocked::default)
}

// Programs that name this package, if only with `use zheng17_blocked as _;`, have the backend.
zheng17_core::link_backend!(entry);

/// Adds the backend to a registry, for programs that make their own.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if the name is taken.
pub fn register(registry: &mut Registry) -> Result<()> {
    registry.register(entry())
}

/// A matrix: blocks as long as it is whole, then one of the backend rayon.
pub enum BlockedMatrix {
    /// What was opened.
    Blocks(Arc<Blocks>),
    /// What came of it, with the threads that it was made with.
    Rows(ChunkedMatrix),
}

impl Blocked {
    /// Some genes of blocks as a matrix of the backend rayon.
    fn rows(&self, blocks: &Arc<Blocks>, genes: GeneMap) -> Result<ChunkedMatrix> {
        let ctx = blocks.context();
        self.rayon.open(Arc::new(Selected { blocks: Arc::clone(blocks), genes }), ctx)
    }

    /// Lets the backend rayon do something with a matrix.
    fn by_rayon<T>(&self, matrix: &BlockedMatrix, f: impl FnOnce(&ChunkedMatrix) -> Result<T>) -> Result<T> {
        match matrix {
            BlockedMatrix::Rows(rows) => f(rows),
            BlockedMatrix::Blocks(blocks) => f(&self.rows(blocks, all_genes(blocks.shape().n_genes))?),
        }
    }
}

fn all_genes(n_genes: usize) -> GeneMap {
    GeneMap::new(n_genes, &(0..n_genes).collect::<Vec<_>>())
}

impl SparseBackend for Blocked {
    type Matrix = BlockedMatrix;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<BlockedMatrix> {
        Ok(BlockedMatrix::Blocks(Arc::new(Blocks::read(source.as_ref(), ctx)?)))
    }

    fn shape(&self, matrix: &BlockedMatrix) -> Shape {
        match matrix {
            BlockedMatrix::Blocks(blocks) => blocks.shape(),
            BlockedMatrix::Rows(rows) => self.rayon.shape(rows),
        }
    }

    fn select(&self, matrix: &BlockedMatrix, cells: &Selection, genes: &Selection) -> Result<BlockedMatrix> {
        let rows = match matrix {
            BlockedMatrix::Rows(rows) => self.rayon.select(rows, cells, genes)?,
            BlockedMatrix::Blocks(blocks) => {
                let n_genes = blocks.shape().n_genes;
                let rows = self.rows(blocks, GeneMap::new(n_genes, &genes.resolve(n_genes, "gene")?))?;
                if *cells == Selection::All { rows } else { self.rayon.select(&rows, cells, &Selection::All)? }
            }
        };
        Ok(BlockedMatrix::Rows(rows))
    }

    fn transform(&self, matrix: &BlockedMatrix, transform: &Transform) -> Result<BlockedMatrix> {
        self.by_rayon(matrix, |rows| self.rayon.transform(rows, transform)).map(BlockedMatrix::Rows)
    }

    fn multiply(&self, a: &BlockedMatrix, b: &BlockedMatrix) -> Result<BlockedMatrix> {
        let product = self.by_rayon(a, |a| self.by_rayon(b, |b| self.rayon.multiply(a, b)))?;
        Ok(BlockedMatrix::Rows(product))
    }

    fn reduce(&self, matrix: &BlockedMatrix, wanted: &[Reduction], ctx: &Context) -> Result<Vec<Vec<f64>>> {
        self.by_rayon(matrix, |rows| self.rayon.reduce(rows, wanted, ctx))
    }

    fn visit(&self, matrix: &BlockedMatrix, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
        self.by_rayon(matrix, |rows| self.rayon.visit(rows, ctx, f))
    }

    fn concat(&self, parts: &[&BlockedMatrix]) -> Result<BlockedMatrix> {
        let read: Vec<Option<ChunkedMatrix>> = parts
            .iter()
            .map(|part| match part {
                BlockedMatrix::Rows(_) => Ok(None),
                BlockedMatrix::Blocks(blocks) => self.rows(blocks, all_genes(blocks.shape().n_genes)).map(Some),
            })
            .collect::<Result<_>>()?;
        let rows: Vec<&ChunkedMatrix> = parts
            .iter()
            .zip(&read)
            .filter_map(|(part, read)| match part {
                BlockedMatrix::Rows(rows) => Some(rows),
                BlockedMatrix::Blocks(_) => read.as_ref(),
            })
            .collect();
        self.rayon.concat(&rows).map(BlockedMatrix::Rows)
    }

    fn count_summary(
        &self,
        matrix: &BlockedMatrix,
        excluded: Option<&Arc<[bool]>>,
        ctx: &Context,
    ) -> Result<CountSummary> {
        match matrix {
            BlockedMatrix::Blocks(blocks) => blocks.count_summary(excluded, ctx),
            BlockedMatrix::Rows(rows) => self.rayon.count_summary(rows, excluded, ctx),
        }
    }

    fn moment_summary(&self, matrix: &BlockedMatrix, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary> {
        self.by_rayon(matrix, |rows| self.rayon.moment_summary(rows, plan, ctx))
    }

    fn gram(&self, matrix: &BlockedMatrix, plan: &OutputPlan, ctx: &Context) -> Result<Gram> {
        self.by_rayon(matrix, |rows| self.rayon.gram(rows, plan, ctx))
    }

    fn project(
        &self,
        matrix: &BlockedMatrix,
        plan: &OutputPlan,
        projection: &Projection,
        ctx: &Context,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        self.by_rayon(matrix, |rows| self.rayon.project(rows, plan, projection, ctx, sink))
    }

    fn scaled(&self, matrix: &BlockedMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        self.by_rayon(matrix, |rows| self.rayon.scaled(rows, plan, ctx, sink))
    }

    fn scaled_into(&self, matrix: &BlockedMatrix, plan: &OutputPlan, ctx: &Context, out: &mut [f32]) -> Result<()> {
        self.by_rayon(matrix, |rows| self.rayon.scaled_into(rows, plan, ctx, out))
    }
}
