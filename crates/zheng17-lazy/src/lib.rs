//! The out-of-core backend: operations only extend a graph, and a reduction streams the chunks of its source through all steps
//! that lead to it, on several threads, in bounded memory.
//!
//! What is worth it is kept after it was first computed: the source as long as memory has room, selected genes in memory or
//! else in a spill file. The rest is computed again. Neither that nor the size of chunks changes a bit of any result.

mod budget;
mod by_genes;
mod graph;
mod session;
mod spill;
mod store;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use budget::{MemoryPlan, WorkingMemory, default_memory, resident_memory, share_of_selected};
use zheng17_core::backend::operations::{ReductionSums, check_concat, check_multiply, check_transform};
use zheng17_core::backend::{
    BackendEntry, ChunkSink, Determinism, GRAM_BLOCK, Gram, Projection, Reduction, Registry, RowSink, Transform,
};
use zheng17_core::exact::{CountSummary, MomentPlan, MomentSummary};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{CsrBuffer, GeneMap, ValueKind};
use zheng17_core::{
    Capabilities, ChunkKernels as _, ChunkSource, Context, Error, Result, Selection, Shape, SparseBackend,
};
use zheng17_kernels::{CountFolder, FastKernels, GramBlock, GramTotal, MomentFolder, Scores};

use crate::graph::{Loaded, Node, Scratch, Step};
use crate::session::Session;

/// The backend.
#[derive(Debug, Clone)]
pub struct Lazy {
    capabilities: Capabilities,
}

impl Default for Lazy {
    fn default() -> Self {
        Self {
            capabilities: Capabilities {
                name: "lazy".to_owned(),
                description: "streams chunks from the file in bounded memory, several threads, vectorised".to_owned(),
                determinism: Determinism::SameBits,
                ordered_fold: true,
                out_of_core: true,
                threads: true,
                devices: false,
            },
        }
    }
}

/// Adds this backend to a registry.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if the name is taken.
pub fn register(registry: &mut Registry) -> Result<()> {
    registry.register(BackendEntry::new(env!("CARGO_PKG_NAME"), Lazy::default))
}

/// A matrix that is computed when it is asked for.
#[derive(Clone)]
pub struct LazyMatrix(Arc<Node>);

impl LazyMatrix {
    fn extend(&self, shape: Shape, step: Step) -> Self {
        Self(Node::new(shape, &self.0.session, step))
    }

    /// Hands on what `make` makes of each chunk, in order.
    fn in_order<T: Default + Send>(
        &self,
        name: &str,
        ctx: &Context,
        make: impl Fn(&CsrBuffer, &mut T) -> Result<()> + Sync,
        mut sink: impl FnMut(&CsrBuffer, &T) -> Result<()> + Send,
    ) -> Result<()> {
        let node = &self.0;
        let state = || (Scratch::default(), CsrBuffer::new(0, ValueKind::F32), T::default());
        node.session.pass(name, node, ctx, || {
            node.session.workers.in_turn(
                node.n_chunks(),
                ctx,
                &state,
                &|(scratch, rows, made), at| {
                    scratch.put_back(Loaded::Rows(std::mem::replace(rows, CsrBuffer::new(0, ValueKind::F32))));
                    *rows = node.load(at, scratch)?.unpacked(scratch);
                    make(rows, made)
                },
                &mut |(_, rows, made), _| {
                    sink(rows, made)?;
                    Ok(rows.n_cells())
                },
            )
        })
    }
}

impl SparseBackend for Lazy {
    type Matrix = LazyMatrix;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<LazyMatrix> {
        let shape = source.shape();
        let plan = MemoryPlan::for_source(source.as_ref(), ctx)?;
        let session = Session::new(plan, ctx)?;
        let step = Step::Source { source, nanoseconds: AtomicU64::new(0), entries: AtomicU64::new(0) };
        Ok(LazyMatrix(Node::new(shape, &session, step)))
    }

    fn shape(&self, matrix: &LazyMatrix) -> Shape {
        matrix.0.shape
    }

    fn select(&self, matrix: &LazyMatrix, cells: &Selection, genes: &Selection) -> Result<LazyMatrix> {
        let Shape { n_cells, n_genes } = matrix.0.shape;
        let mut selected = matrix.clone();
        if *cells != Selection::All {
            let cells = cells.resolve(n_cells, "cell")?;
            let shape = Shape { n_cells: cells.len(), n_genes };
            selected = selected.extend(shape, Step::SelectCells { input: Arc::clone(&selected.0), cells });
        }
        if *genes != Selection::All {
            let genes = genes.resolve(n_genes, "gene")?;
            let shape = Shape { n_cells: selected.0.shape.n_cells, n_genes: genes.len() };
            let map = GeneMap::new(n_genes, &genes);
            matrix.0.session.make_room_for_components(shape);
            selected = selected.extend(shape, Step::SelectGenes { input: Arc::clone(&selected.0), map });
        }
        Ok(selected)
    }

    fn transform(&self, matrix: &LazyMatrix, transform: &Transform) -> Result<LazyMatrix> {
        check_transform(transform, matrix.0.shape)?;
        let step = Step::Transform { input: Arc::clone(&matrix.0), transform: transform.clone() };
        Ok(matrix.extend(matrix.0.shape, step))
    }

    fn multiply(&self, a: &LazyMatrix, b: &LazyMatrix) -> Result<LazyMatrix> {
        check_multiply(a.0.shape, b.0.shape)?;
        Ok(a.extend(a.0.shape, Step::Multiply { a: Arc::clone(&a.0), b: Arc::clone(&b.0) }))
    }

    fn reduce(&self, matrix: &LazyMatrix, wanted: &[Reduction], ctx: &Context) -> Result<Vec<Vec<f64>>> {
        // Sums of floats depend on their order, so cells are added in theirs.
        let mut sums = ReductionSums::new(matrix.0.shape, wanted);
        let sink = |rows: &CsrBuffer, (): &()| {
            sums.fold(rows.view());
            Ok(())
        };
        matrix.in_order("sums", ctx, |_, ()| Ok(()), sink)?;
        Ok(sums.finish())
    }

    fn visit(&self, matrix: &LazyMatrix, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
        matrix.in_order("cells in order", ctx, |_, ()| Ok(()), |rows, ()| f(rows.view()))
    }

    fn explain(&self, matrix: &LazyMatrix) -> Option<String> {
        let mut text = String::new();
        matrix.0.explain(0, &mut text);
        matrix.0.session.explain(&mut text);
        Some(text)
    }

    fn notes(&self, matrix: &LazyMatrix) -> Vec<String> {
        matrix.0.session.notes()
    }

    fn concat(&self, parts: &[&LazyMatrix]) -> Result<LazyMatrix> {
        check_concat(&parts.iter().map(|part| part.0.shape).collect::<Vec<_>>())?;
        let Some(first) = parts.first() else {
            return Err(Error::usage("no matrices to put below each other"));
        };
        let n_cells = parts.iter().map(|part| part.0.shape.n_cells).sum();
        let shape = Shape { n_cells, n_genes: first.0.shape.n_genes };
        Ok(first.extend(shape, Step::Concat { parts: parts.iter().map(|part| Arc::clone(&part.0)).collect() }))
    }

    fn count_summary(
        &self,
        matrix: &LazyMatrix,
        excluded: Option<&Arc<[bool]>>,
        ctx: &Context,
    ) -> Result<CountSummary> {
        let node = &matrix.0;
        let n_genes = node.shape.n_genes;
        node.session.pass("totals and moments", node, ctx, || {
            if let Some(source) = node.source_by_genes() {
                return by_genes::count_summary(&node.session, source.as_ref(), excluded, ctx);
            }
            let folders = node.session.workers.fold(
                node.n_chunks(),
                ctx,
                &|| (CountFolder::new(n_genes, excluded.cloned()), Scratch::default()),
                &|(folder, scratch), at| {
                    let loaded = node.load(at, scratch)?;
                    match &loaded {
                        Loaded::Kept(kept) => folder.fold_kept(kept, kept.first_cell())?,
                        Loaded::Rows(rows) => folder.fold(rows.view())?,
                    }
                    let n_cells = loaded.n_cells();
                    scratch.put_back(loaded);
                    Ok(n_cells)
                },
            )?;
            let mut summary = CountSummary::new(n_genes, excluded.cloned());
            for (folder, _) in folders {
                summary.merge(folder.finish()?)?;
            }
            Ok(summary)
        })
    }

    fn moment_summary(&self, matrix: &LazyMatrix, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary> {
        let node = &matrix.0;
        let n_genes = node.shape.n_genes;
        node.session.pass("moments of normalised values", node, ctx, || {
            let folders = node.session.workers.fold(
                node.n_chunks(),
                ctx,
                &|| (MomentFolder::new(n_genes, plan), Scratch::default()),
                &|(folder, scratch), at| {
                    let rows = node.load(at, scratch)?.unpacked(scratch);
                    folder.fold(rows.view())?;
                    let n_cells = rows.n_cells();
                    scratch.put_back(Loaded::Rows(rows));
                    Ok(n_cells)
                },
            )?;
            let mut summary = MomentSummary::new(n_genes);
            for (folder, _) in folders {
                summary.merge(&folder.finish()?)?;
            }
            Ok(summary)
        })
    }

    fn gram(&self, matrix: &LazyMatrix, plan: &OutputPlan, ctx: &Context) -> Result<Gram> {
        let node = &matrix.0;
        let n_cells = node.shape.n_cells;
        let mut total = GramTotal::new(plan);
        let state = || (GramBlock::new(plan), Scratch::default(), CsrBuffer::new(0, ValueKind::F32));
        node.session.pass("products of gene pairs", node, ctx, || {
            node.session.workers.in_turn(
                n_cells.div_ceil(GRAM_BLOCK),
                ctx,
                &state,
                &|(block, scratch, rows), at| {
                    let first = at * GRAM_BLOCK;
                    node.read(first..(first + GRAM_BLOCK).min(n_cells), scratch, rows)?;
                    block.clear();
                    block.add(rows.view(), plan);
                    block.multiply();
                    Ok(())
                },
                &mut |(block, _, rows), _| {
                    total.add(block);
                    Ok(rows.n_cells())
                },
            )
        })?;
        Ok(total.finish())
    }

    fn project(
        &self,
        matrix: &LazyMatrix,
        plan: &OutputPlan,
        projection: &Projection,
        ctx: &Context,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let projection = Scores::new(projection, plan);
        let make = |rows: &CsrBuffer, scores: &mut Vec<f32>| {
            projection.of(rows.view(), scores);
            Ok(())
        };
        matrix.in_order("scores", ctx, make, |rows, scores| sink(rows.first_cell, scores))
    }

    fn scaled(&self, matrix: &LazyMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        let make = |rows: &CsrBuffer, scaled: &mut Vec<f32>| {
            scaled.resize(rows.n_cells() * rows.n_genes, 0.0);
            FastKernels::default().affine_into(rows.view(), plan, scaled)
        };
        matrix.in_order("scaled values", ctx, make, |rows, scaled| sink(rows.first_cell, scaled))
    }
}
