//! A matrix as blocks of cells: reading it from a source, being read as one, and its summary.

use std::ops::Range;
use std::sync::Arc;

use zheng17_core::context::NoProgress;
use zheng17_core::exact::{CountFacts, CountSummary, GeneCounts};
use zheng17_core::matrix::{CsrBuffer, GeneMap, ValueKind};
use zheng17_core::{ChunkSource, Context, Result, Shape};
use zheng17_kernels::{CountFolder, KeptChunk};
use zheng17_rayon::{Workers, rows_at_once};

use crate::block::{Block, MOST_CELLS, Table};
use zheng17_kernels::{Lanes, ROWS_PER_FLUSH};

/// Consecutive cells: a block, or what can't be one.
enum Part {
    Block(Block),
    Other(KeptChunk),
}

/// A matrix in memory, gene by gene within blocks of cells.
pub struct Blocks {
    shape: Shape,
    n_entries: u64,
    /// Cells in each part but the last.
    step: usize,
    parts: Vec<Part>,
    /// What was asked for when it was read; nobody is told of progress.
    ctx: Context,
}

impl Blocks {
    /// Reads all cells of a source.
    pub(crate) fn read(source: &dyn ChunkSource, ctx: &Context) -> Result<Self> {
        let shape = source.shape();
        let step = ctx.chunk_rows.map_or(MOST_CELLS, |rows| rows.get().min(MOST_CELLS));
        let workers = Workers::new(ctx.threads)?;
        let step = rows_at_once(step, shape.n_cells, workers.number());
        let read = workers.fold(
            shape.n_cells.div_ceil(step),
            ctx,
            &|| (CsrBuffer::new(shape.n_genes, ValueKind::F32), Vec::new()),
            &|(buffer, parts): &mut (CsrBuffer, Vec<(usize, u64, Part)>), at| {
                let cells = at * step..((at + 1) * step).min(shape.n_cells);
                source.read_cells(cells.clone(), buffer)?;
                let part = match Block::pack(buffer.view()) {
                    Some(block) => Part::Block(block),
                    None => Part::Other(KeptChunk::keep(buffer.view())),
                };
                parts.push((at, buffer.indices.len() as u64, part));
                Ok(cells.len())
            },
        )?;
        let mut parts: Vec<_> = read.into_iter().flat_map(|(_, parts)| parts).collect();
        parts.sort_unstable_by_key(|&(at, ..)| at);
        let n_entries = parts.iter().map(|(_, n_entries, _)| n_entries).sum();
        Ok(Self {
            shape,
            n_entries,
            step,
            parts: parts.into_iter().map(|(.., part)| part).collect(),
            ctx: Context { progress: Arc::new(NoProgress), ..ctx.clone() },
        })
    }

    /// What was asked for when it was read; nobody is told of progress.
    pub(crate) fn context(&self) -> &Context {
        &self.ctx
    }

    /// Cells × genes.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Totals and exact moments of all cells.
    pub(crate) fn count_summary(&self, excluded: Option<&Arc<[bool]>>, ctx: &Context) -> Result<CountSummary> {
        let n_genes = self.shape.n_genes;
        let make = || Folder::new(n_genes, excluded.cloned());
        let folders = Workers::new(ctx.threads)?.fold(self.parts.len(), ctx, &make, &|folder, at| {
            folder.fold(&self.parts[at], &self.cells(at))?;
            Ok(self.cells(at).len())
        })?;
        let mut summary = CountSummary::new(n_genes, excluded.cloned());
        for folder in folders {
            summary.merge(folder.finish()?)?;
        }
        Ok(summary)
    }

    /// The cells of a part.
    fn cells(&self, at: usize) -> Range<usize> {
        at * self.step..((at + 1) * self.step).min(self.shape.n_cells)
    }

    /// Appends some cells with the genes that a map keeps.
    fn read_selected(&self, cells: Range<usize>, genes: &GeneMap, out: &mut CsrBuffer) {
        out.reset(cells.start, genes.n_selected(), ValueKind::F32);
        let mut start = cells.start;
        while start < cells.end {
            let at = start / self.step;
            let part = self.cells(at);
            let end = part.end.min(cells.end);
            let rows = start - part.start..end - part.start;
            match &self.parts[at] {
                Part::Block(block) => block.append_to(rows, genes, out),
                Part::Other(kept) => {
                    let mut all = CsrBuffer::new(self.shape.n_genes, ValueKind::F32);
                    kept.append_rows_to(rows, &mut all);
                    let mut selected = CsrBuffer::new(genes.n_selected(), all.values.kind());
                    zheng17_kernels::select_kept_into(&KeptChunk::Rows(all), genes, &mut selected);
                    out.append(selected.view());
                }
            }
            start = end;
        }
    }
}

/// Some genes of a matrix, as a source of cells for another backend.
pub(crate) struct Selected {
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) genes: GeneMap,
}

impl ChunkSource for Selected {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.blocks.shape.n_cells, n_genes: self.genes.n_selected() }
    }

    fn n_entries(&self) -> Option<u64> {
        (self.genes.n_selected() == self.blocks.shape.n_genes).then_some(self.blocks.n_entries)
    }

    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        self.blocks.read_selected(cells, &self.genes, out);
        Ok(())
    }

    fn name(&self) -> String {
        "blocks of cells in memory".to_owned()
    }
}

/// Sums one worker's parts.
struct Folder {
    summary: CountSummary,
    /// Sums over the blocks since the last flush.
    lanes: Vec<Lanes>,
    cells: usize,
    facts: CountFacts,
    table: Table,
    /// Sums what is no block, if there is any.
    others: Option<CountFolder>,
}

impl Folder {
    fn new(n_genes: usize, excluded: Option<Arc<[bool]>>) -> Self {
        Self {
            summary: CountSummary::new(n_genes, excluded),
            lanes: vec![Lanes::default(); n_genes],
            cells: 0,
            facts: CountFacts::default(),
            table: Table::default(),
            others: None,
        }
    }

    fn fold(&mut self, part: &Part, cells: &Range<usize>) -> Result<()> {
        let n_genes = self.summary.n_genes();
        match part {
            Part::Other(kept) => {
                let excluded = self.summary.shared_exclusions();
                let others = self.others.get_or_insert_with(|| CountFolder::new(n_genes, excluded));
                others.fold_kept(kept, cells.start)
            }
            Part::Block(block) if self.summary.excluded().is_some() => {
                // Rare, and then the totals are others: a second look at data with fractions.
                let mut rows = CsrBuffer::new(n_genes, ValueKind::F32);
                rows.reset(cells.start, n_genes, ValueKind::F32);
                block.append_to(0..cells.len(), &GeneMap::new(n_genes, &(0..n_genes).collect::<Vec<_>>()), &mut rows);
                self.summary.fold(rows.view())
            }
            Part::Block(block) => {
                if self.cells + cells.len() > ROWS_PER_FLUSH {
                    self.flush()?;
                }
                self.cells += cells.len();
                block.add_to(&mut self.lanes, &mut self.table);
                self.facts.n_entries += block.n_entries() as u64;
                self.facts.largest = self.facts.largest.max(f64::from(block.largest()));
                self.summary.add_cell_totals(cells.start, block.totals().to_vec())
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        let genes: Vec<GeneCounts> = self
            .lanes
            .iter()
            .map(|lanes| GeneCounts {
                total: u128::from(lanes.count()) << 40,
                sum: lanes.sum(),
                sum_of_squares: lanes.sum_of_squares(),
            })
            .collect();
        self.lanes.fill(Lanes::default());
        self.cells = 0;
        self.summary.add(0, Vec::new(), &genes, &std::mem::take(&mut self.facts))
    }

    fn finish(mut self) -> Result<CountSummary> {
        self.flush()?;
        if let Some(others) = self.others {
            self.summary.merge(others.finish()?)?;
        }
        Ok(self.summary)
    }
}
