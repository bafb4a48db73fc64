//! The graph: matrices that know how their cells come about, and give them chunk by chunk.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use zheng17_core::backend::{Transform, operations};
use zheng17_core::matrix::{GeneMap, ValueKind};
use zheng17_core::{ChunkKernels as _, ChunkSource, Context, CsrBuffer, CsrView, Result, Shape};
use zheng17_kernels::{FastKernels, KeptChunk, select_kept_into};

use crate::by_genes;
use crate::session::Session;
use crate::store::Store;

/// Reading that takes longer than this for an entry is worth a place in the spill file; reading the source again is as good
/// otherwise.
const SLOW_NANOSECONDS: u64 = 100;

/// How the cells of a matrix come about.
pub(crate) enum Step {
    /// They are read.
    Source { source: Arc<dyn ChunkSource>, nanoseconds: AtomicU64, entries: AtomicU64 },
    /// All cells of a matrix, some of its genes.
    SelectGenes { input: Arc<Node>, map: GeneMap },
    /// Some cells of a matrix.
    SelectCells { input: Arc<Node>, cells: Vec<usize> },
    /// Each value of a matrix changed.
    Transform { input: Arc<Node>, transform: Transform },
    /// Two matrices multiplied, element by element.
    Multiply { a: Arc<Node>, b: Arc<Node> },
    /// The cells of several matrices, one after another.
    Concat { parts: Vec<Arc<Node>> },
}

/// A matrix of the graph.
pub(crate) struct Node {
    pub(crate) shape: Shape,
    pub(crate) session: Arc<Session>,
    /// `None` once all chunks are kept.
    step: RwLock<Option<Arc<Step>>>,
    store: Option<Store>,
    /// Whether selected genes of a source that is stored by genes were gathered.
    gathered: AtomicBool,
    description: String,
}

/// Buffers of one worker, used again and again.
#[derive(Default)]
pub(crate) struct Scratch {
    free: Vec<CsrBuffer>,
    bytes: Vec<u8>,
}

impl Scratch {
    fn take(&mut self) -> CsrBuffer {
        self.free.pop().unwrap_or_else(|| CsrBuffer::new(0, ValueKind::F32))
    }

    pub(crate) fn put_back(&mut self, loaded: Loaded) {
        if let Loaded::Rows(buffer) = loaded {
            self.free.push(buffer);
        }
    }
}

/// A chunk, as it is kept or just computed.
pub(crate) enum Loaded {
    Kept(Arc<KeptChunk>),
    Rows(CsrBuffer),
}

impl Loaded {
    pub(crate) fn n_cells(&self) -> usize {
        match self {
            Self::Kept(kept) => kept.n_cells(),
            Self::Rows(rows) => rows.n_cells(),
        }
    }

    /// The rows themselves.
    pub(crate) fn unpacked(self, scratch: &mut Scratch) -> CsrBuffer {
        match self {
            Self::Rows(rows) => rows,
            Self::Kept(kept) => {
                let mut rows = scratch.take();
                rows.reset(kept.first_cell(), kept.n_genes(), kept.kind());
                kept.append_rows_to(0..kept.n_cells(), &mut rows);
                rows
            }
        }
    }

    fn append_rows_to(&self, rows: Range<usize>, out: &mut CsrBuffer) {
        match self {
            Self::Kept(kept) => kept.append_rows_to(rows, out),
            Self::Rows(buffer) => out.append(buffer.view().rows(rows)),
        }
    }
}

impl Node {
    pub(crate) fn new(shape: Shape, session: &Arc<Session>, step: Step) -> Arc<Self> {
        let n_chunks = shape.n_cells.div_ceil(session.chunk_rows());
        let budget = session.keeper().budget.limit();
        let (limit, description) = match &step {
            Step::Source { source, .. } => {
                // A little is left for the selected genes; as they come, the chunks that they were taken from go.
                (Some(budget - budget / 8), source.name())
            }
            Step::SelectGenes { map, .. } => (Some(budget), format!("{} selected genes", map.n_selected())),
            Step::SelectCells { cells, .. } => (None, format!("{} selected cells", cells.len())),
            Step::Transform { transform, .. } => (None, describe(transform)),
            Step::Multiply { .. } => (None, "product of two matrices".to_owned()),
            Step::Concat { parts } => (None, format!("{} matrices, one below the other", parts.len())),
        };
        let store = limit.map(|limit| Store::new(n_chunks, Arc::clone(session.keeper()), limit));
        let (session, step) = (Arc::clone(session), RwLock::new(Some(Arc::new(step))));
        Arc::new(Self { shape, session, step, store, gathered: AtomicBool::new(false), description })
    }

    fn step(&self) -> Option<Arc<Step>> {
        self.step.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn n_chunks(&self) -> usize {
        self.shape.n_cells.div_ceil(self.session.chunk_rows())
    }

    fn chunk_cells(&self, at: usize) -> Range<usize> {
        let rows = self.session.chunk_rows();
        at * rows..((at + 1) * rows).min(self.shape.n_cells)
    }

    /// A chunk, from where it is kept or computed, and then kept if there is room.
    pub(crate) fn load(&self, at: usize, scratch: &mut Scratch) -> Result<Loaded> {
        self.load_and_keep(at, true, scratch)
    }

    /// A chunk, which is worth keeping or not.
    fn load_and_keep(&self, at: usize, keep: bool, scratch: &mut Scratch) -> Result<Loaded> {
        if let Some(kept) = self.kept(at, scratch)? {
            return Ok(Loaded::Kept(kept));
        }
        let mut out = scratch.take();
        let may_spill = self.compute(self.chunk_cells(at), scratch, &mut out)?;
        if let Some(store) = self.store.as_ref().filter(|_| keep) {
            store.offer(at, out.view(), may_spill, &mut scratch.bytes);
        }
        Ok(Loaded::Rows(out))
    }

    fn kept(&self, at: usize, scratch: &mut Scratch) -> Result<Option<Arc<KeptChunk>>> {
        match &self.store {
            Some(store) => store.get(at, &mut scratch.bytes),
            None => Ok(None),
        }
    }

    /// Any cells, in order.
    pub(crate) fn read(&self, cells: Range<usize>, scratch: &mut Scratch, out: &mut CsrBuffer) -> Result<()> {
        out.reset(cells.start, self.shape.n_genes, ValueKind::F32);
        let mut start = cells.start;
        while start < cells.end {
            let at = start / self.session.chunk_rows();
            let chunk = self.chunk_cells(at);
            let end = cells.end.min(chunk.end);
            if (start..end) == chunk {
                let loaded = self.load(at, scratch)?;
                loaded.append_rows_to(0..loaded.n_cells(), out);
                scratch.put_back(loaded);
            } else if let Some(kept) = self.kept(at, scratch)? {
                kept.append_rows_to(start - chunk.start..end - chunk.start, out);
            } else {
                let mut part = scratch.take();
                self.compute(start..end, scratch, &mut part)?;
                out.append(part.view());
                scratch.free.push(part);
            }
            start = end;
        }
        Ok(())
    }

    /// Computes cells from what they come from; says whether that is so dear that they deserve a place in the spill file.
    fn compute(&self, cells: Range<usize>, scratch: &mut Scratch, out: &mut CsrBuffer) -> Result<bool> {
        let Some(step) = self.step() else {
            return Err(zheng17_core::Error::internal("a chunk that was kept is gone"));
        };
        let worth = match step.as_ref() {
            Step::Source { source, nanoseconds, entries } => {
                let started = Instant::now();
                source.read_cells(cells.clone(), out)?;
                self.session.count_reading(cells.len(), out.indices.len());
                let spent = nanoseconds.fetch_add(as_nanoseconds(started.elapsed()), Ordering::Relaxed);
                let read = entries.fetch_add(out.indices.len() as u64, Ordering::Relaxed);
                spent > read.saturating_mul(SLOW_NANOSECONDS)
            }
            Step::SelectGenes { input, map } => {
                self.select_genes(input, map, cells.clone(), scratch, out)?;
                true
            }
            Step::SelectCells { input, cells: selected } => {
                select_cells(input, &selected[cells.clone()], scratch, out)?;
                false
            }
            Step::Transform { input, transform } => {
                let mut before = scratch.take();
                input.read(cells.clone(), scratch, &mut before)?;
                *out = match transform {
                    Transform::ScaleCells(factors) => {
                        operations::transform(before.view(), &Transform::ScaleCells(factors[cells.clone()].into()))?
                    }
                    other => operations::transform(before.view(), other)?,
                };
                scratch.free.push(before);
                false
            }
            Step::Multiply { a, b } => {
                let (mut of_a, mut of_b) = (scratch.take(), scratch.take());
                a.read(cells.clone(), scratch, &mut of_a)?;
                b.read(cells.clone(), scratch, &mut of_b)?;
                *out = operations::multiply(of_a.view(), of_b.view())?;
                scratch.free.extend([of_a, of_b]);
                false
            }
            Step::Concat { parts } => {
                out.reset(cells.start, self.shape.n_genes, ValueKind::F32);
                let mut first = 0;
                for part in parts {
                    let end = first + part.shape.n_cells;
                    let (from, to) = (cells.start.max(first), cells.end.min(end));
                    if from < to {
                        let mut piece = scratch.take();
                        part.read(from - first..to - first, scratch, &mut piece)?;
                        out.append(piece.view());
                        scratch.free.push(piece);
                    }
                    first = end;
                }
                false
            }
        };
        out.first_cell = cells.start;
        Ok(worth)
    }

    fn select_genes(
        &self,
        input: &Arc<Self>,
        map: &GeneMap,
        cells: Range<usize>,
        scratch: &mut Scratch,
        out: &mut CsrBuffer,
    ) -> Result<()> {
        out.reset(cells.start, map.n_selected(), ValueKind::F32);
        let at = cells.start / self.session.chunk_rows();
        if cells != input.chunk_cells(at) {
            let mut before = scratch.take();
            input.read(cells, scratch, &mut before)?;
            FastKernels::default().select_into(before.view(), map, out)?;
            scratch.free.push(before);
            return Ok(());
        }
        // If nobody else has the input any more, what is about to be selected of this chunk is all that is left to know of it.
        let last_use = Arc::strong_count(input) == 1;
        let loaded = input.load_and_keep(at, !last_use, scratch)?;
        match &loaded {
            Loaded::Kept(kept) => select_kept_into(kept, map, out),
            Loaded::Rows(rows) => FastKernels::default().select_into(rows.view(), map, out)?,
        }
        scratch.put_back(loaded);
        if let Some(store) = input.store.as_ref().filter(|_| last_use) {
            store.forget(at);
        }
        Ok(())
    }

    /// The source, if this matrix is one that is stored by genes.
    pub(crate) fn source_by_genes(&self) -> Option<Arc<dyn ChunkSource>> {
        match self.step()?.as_ref() {
            Step::Source { source, .. } if source.stored_by_genes() => Some(Arc::clone(source)),
            _ => None,
        }
    }

    /// Before a pass: selected genes of sources that are stored by genes are gathered once, in this node or those before it.
    pub(crate) fn prepare(&self, ctx: &Context) -> Result<()> {
        let Some(step) = self.step() else { return Ok(()) };
        match step.as_ref() {
            Step::Source { .. } => Ok(()),
            Step::SelectGenes { input, map } => match input.source_by_genes() {
                None => input.prepare(ctx),
                Some(_) if self.gathered.swap(true, Ordering::Relaxed) => Ok(()),
                Some(source) => {
                    let is_selected = |&gene: &usize| map.new_index()[gene] != GeneMap::NOT_SELECTED;
                    let selected: Vec<usize> = (0..input.shape.n_genes).filter(is_selected).collect();
                    by_genes::keep_selected(self, source.as_ref(), &selected, ctx)
                }
            },
            Step::SelectCells { input, .. } | Step::Transform { input, .. } => input.prepare(ctx),
            Step::Multiply { a, b } => a.prepare(ctx).and_then(|()| b.prepare(ctx)),
            Step::Concat { parts } => parts.iter().try_for_each(|part| part.prepare(ctx)),
        }
    }

    /// Keeps rows that make whole chunks.
    pub(crate) fn keep_rows(&self, rows: CsrView<'_>) {
        let Some(store) = &self.store else { return };
        let mut bytes = Vec::new();
        for start in (0..rows.n_cells()).step_by(self.session.chunk_rows()) {
            let end = (start + self.session.chunk_rows()).min(rows.n_cells());
            let chunk = rows.rows(start..end);
            store.offer(chunk.first_cell() / self.session.chunk_rows(), chunk, true, &mut bytes);
        }
    }

    /// After a pass: what is kept whole needs no past.
    pub(crate) fn forget_past_if_kept(&self) {
        if self.store.as_ref().is_some_and(Store::is_complete) && self.n_chunks() > 0 {
            *self.step.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// The graph that leads here, one step a line, the last one first.
    pub(crate) fn explain(&self, depth: usize, out: &mut String) {
        let Shape { n_cells, n_genes } = self.shape;
        let indent = "  ".repeat(depth);
        let kept = match self.store.as_ref().map(Store::bytes) {
            None => "computed when asked for".to_owned(),
            Some((0, 0)) => "nothing kept".to_owned(),
            Some((memory, 0)) => format!("{} MB kept in memory", megabytes(memory)),
            Some((0, spilled)) => format!("{} MB kept in the spill file", megabytes(spilled)),
            Some((memory, spilled)) => {
                format!("{} MB kept in memory, {} MB in the spill file", megabytes(memory), megabytes(spilled))
            }
        };
        // Writing to a string can't fail.
        let _ = writeln!(out, "{indent}{}: {n_cells} cells x {n_genes} genes; {kept}", self.description);
        match self.step().as_deref() {
            None | Some(Step::Source { .. }) => {}
            Some(Step::SelectGenes { input, .. } | Step::SelectCells { input, .. } | Step::Transform { input, .. }) => {
                input.explain(depth + 1, out);
            }
            Some(Step::Multiply { a, b }) => {
                a.explain(depth + 1, out);
                b.explain(depth + 1, out);
            }
            Some(Step::Concat { parts }) => parts.iter().for_each(|part| part.explain(depth + 1, out)),
        }
    }
}

/// Cells of a matrix at increasing positions; each of its chunks is looked at once.
fn select_cells(input: &Node, cells: &[usize], scratch: &mut Scratch, out: &mut CsrBuffer) -> Result<()> {
    out.reset(0, input.shape.n_genes, ValueKind::F32);
    let rows = input.session.chunk_rows();
    for in_chunk in cells.chunk_by(|a, b| a / rows == b / rows) {
        let Some(&first) = in_chunk.first() else { continue };
        let loaded = input.load(first / rows, scratch)?;
        let top = first / rows * rows;
        for run in in_chunk.chunk_by(|a, b| a + 1 == *b) {
            if let (Some(&from), Some(&to)) = (run.first(), run.last()) {
                loaded.append_rows_to(from - top..to + 1 - top, out);
            }
        }
        scratch.put_back(loaded);
    }
    Ok(())
}

fn describe(transform: &Transform) -> String {
    match transform {
        Transform::ScaleCells(_) => "cells scaled".to_owned(),
        Transform::ScaleGenes(_) => "genes scaled".to_owned(),
        Transform::Map(map) => format!("{map:?} of each value").to_lowercase(),
        Transform::Cast(kind) => format!("as {kind:?}").to_lowercase(),
    }
}

fn as_nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}
