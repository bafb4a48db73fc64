//! A whole backend with a mistake in one of its operations.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::time::Duration;

use zheng17_core::backend::chunked::KernelBackend;
use zheng17_core::backend::{Axis, ChunkSink, Gram, Projection, Reduction, RowSink, Statistic, Transform};
use zheng17_core::context::{CancelToken, NoProgress};
use zheng17_core::exact::{CountSummary, GeneCounts, MomentPlan, MomentSummary};
use zheng17_core::kernels::{OutputPlan, ScalarKernels};
use zheng17_core::matrix::{CsrBuffer, CsrView, GeneMap, ValueKind};
use zheng17_core::{Capabilities, ChunkKernels as _, ChunkSource, Context, Result, Selection, Shape, SparseBackend};

/// What is wrong with a backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// Of two genes with the same counts in different cells, the later one is kept.
    TiesTheOtherWay,
    /// Variances are sums over n instead of n − 1.
    ReducesWithDdof0,
    /// Values are scaled by a deviation of its own, over n instead of n − 1.
    ScalesWithDdof0,
    /// Cells are normalised to the upper one of the two totals in the middle.
    UpperMedian,
    /// Two threads add to one counter without synchronisation.
    CounterWithoutSynchronisation,
    /// Calls share memory that each takes for its own.
    SharedScratch,
    LeavesOutLogarithms,
    LeavesOutClipping,
    CountsExcludedGenes,
    ScoresNotCentred,
    CannotBeCancelled,
    /// Errors of whom results are handed to are dropped.
    SwallowsErrors,
    /// Progress is reported at the end of a pass.
    ProgressJumps,
    PanicsWithoutGenes,
    SelectsAllCells,
    /// Matrices are put together from the last to the first.
    PartsTheOtherWay,
}

/// Core's backend of scalar kernels with a mistake.
pub(crate) struct Mistaken {
    inner: KernelBackend<ScalarKernels>,
    mistake: Mistake,
    /// The number of calls so far, and what the last one works on.
    scratch: Mutex<(usize, CsrBuffer)>,
    called: Condvar,
}

impl Mistaken {
    pub(crate) fn new(mistake: Mistake, capabilities: Capabilities) -> Self {
        let scratch = Mutex::new((0, CsrBuffer::new(0, ValueKind::F32)));
        Self { inner: KernelBackend::new(ScalarKernels, capabilities), mistake, scratch, called: Condvar::new() }
    }

    /// A pass with what is wrong in each.
    fn pass<T>(&self, matrix: &CsrBuffer, ctx: &Context, work: impl FnOnce(&Context) -> Result<T>) -> Result<T> {
        assert!(self.mistake != Mistake::PanicsWithoutGenes || matrix.n_genes > 0, "no genes");
        match self.mistake {
            Mistake::CannotBeCancelled => work(&Context { cancel: CancelToken::default(), ..ctx.clone() }),
            Mistake::ProgressJumps => {
                let result = work(&Context { progress: Arc::new(NoProgress), ..ctx.clone() });
                ctx.progress.advance(matrix.n_cells());
                result
            }
            _ => work(ctx),
        }
    }

    /// What becomes of an error of whom results are handed to.
    fn handed_on(&self, result: Result<()>) -> Result<()> {
        if self.mistake == Mistake::SwallowsErrors { Ok(()) } else { result }
    }

    fn plan(&self, matrix: &CsrBuffer, plan: &OutputPlan) -> OutputPlan {
        let mut plan = plan.clone();
        let n = matrix.n_cells() as f64;
        match self.mistake {
            Mistake::LeavesOutLogarithms => plan.log = false,
            Mistake::LeavesOutClipping => plan.max_value = None,
            Mistake::ScalesWithDdof0 => plan.inverse_deviation.iter_mut().for_each(|d| *d *= (n / (n - 1.0)).sqrt()),
            Mistake::UpperMedian => {
                let view = matrix.view();
                let total = |row: usize| (0..view.row_values(row).len()).map(|at| view.row_values(row).get(at)).sum();
                let mut totals: Vec<f64> = (0..view.n_cells()).map(total).filter(|&total| total > 0.0).collect();
                totals.sort_by(f64::total_cmp);
                if totals.len() >= 2 && totals.len().is_multiple_of(2) {
                    let (lower, upper) = (totals[totals.len() / 2 - 1], totals[totals.len() / 2]);
                    let factor = upper / f64::midpoint(lower, upper);
                    plan.cell_scale = plan.cell_scale.iter().map(|scale| scale * factor).collect();
                }
            }
            _ => {}
        }
        plan
    }
}

/// The counts of a gene, sorted.
fn sorted_counts(matrix: &CsrBuffer, gene: usize) -> Vec<f64> {
    let at = |at: usize| matrix.values.as_ref().get(at);
    let mut counts: Vec<f64> =
        matrix.indices.iter().enumerate().filter(|(_, g)| **g as usize == gene).map(|(entry, _)| at(entry)).collect();
    counts.sort_by(f64::total_cmp);
    counts
}

/// Selects genes, but for each that has an unselected later one with the same counts, that one.
fn select_later_twins(matrix: &CsrBuffer, selected: &[usize]) -> Result<CsrBuffer> {
    let counts: Vec<Vec<f64>> = (0..matrix.n_genes).map(|gene| sorted_counts(matrix, gene)).collect();
    let mut new_index = vec![GeneMap::NOT_SELECTED; matrix.n_genes];
    for (column, &gene) in selected.iter().enumerate() {
        let later =
            (gene + 1..matrix.n_genes).find(|other| !selected.contains(other) && counts[*other] == counts[gene]);
        let free = later.filter(|&twin| new_index[twin] == GeneMap::NOT_SELECTED);
        new_index[free.unwrap_or(gene)] = column as u32;
    }
    let mut out = CsrBuffer::new(selected.len(), matrix.values.kind());
    ScalarKernels.select_into(matrix.view(), &GeneMap::from_new_index(new_index), &mut out)?;
    Ok(out)
}

/// Two threads summarise half of the cells each, and add totals of genes to counters that both load before either stores.
fn losing_updates(matrix: &CsrBuffer, excluded: Option<&Arc<[bool]>>) -> Result<CountSummary> {
    let view = matrix.view();
    let middle = view.n_cells() / 2;
    let counters: Vec<AtomicU64> = (0..matrix.n_genes).map(|_| AtomicU64::new(0)).collect();
    let both = Barrier::new(2);
    let half = |cells: Range<usize>| {
        let mut summary = CountSummary::new(matrix.n_genes, excluded.cloned());
        let folded = summary.fold(view.rows(cells));
        for (counter, gene) in counters.iter().zip(summary.genes()) {
            let before = counter.load(Ordering::Relaxed);
            both.wait();
            counter.store(before + (gene.total >> 40) as u64, Ordering::Relaxed);
            both.wait();
        }
        folded.map(|()| summary)
    };
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| half(0..middle));
        let second = half(middle..view.n_cells());
        (first.join().expect("no panic"), second)
    });
    let mut all = first?;
    all.merge(second?)?;
    let genes: Vec<GeneCounts> = all
        .genes()
        .iter()
        .zip(&counters)
        .map(|(gene, counter)| GeneCounts { total: u128::from(counter.load(Ordering::Relaxed)) << 40, ..*gene })
        .collect();
    let mut found = CountSummary::new(matrix.n_genes, excluded.cloned());
    found.add(0, all.cell_totals(view.n_cells())?.to_vec(), &genes, all.facts())?;
    Ok(found)
}

impl SparseBackend for Mistaken {
    type Matrix = CsrBuffer;

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<CsrBuffer> {
        self.inner.open(source, ctx)
    }

    fn shape(&self, matrix: &CsrBuffer) -> Shape {
        self.inner.shape(matrix)
    }

    fn select(&self, matrix: &CsrBuffer, cells: &Selection, genes: &Selection) -> Result<CsrBuffer> {
        match (self.mistake, genes) {
            (Mistake::SelectsAllCells, _) => self.inner.select(matrix, &Selection::All, genes),
            (Mistake::TiesTheOtherWay, Selection::Indices(selected)) => {
                // What must be refused still is.
                self.inner.select(matrix, cells, genes)?;
                select_later_twins(&self.inner.select(matrix, cells, &Selection::All)?, selected)
            }
            _ => self.inner.select(matrix, cells, genes),
        }
    }

    fn transform(&self, matrix: &CsrBuffer, transform: &Transform) -> Result<CsrBuffer> {
        self.inner.transform(matrix, transform)
    }

    fn multiply(&self, a: &CsrBuffer, b: &CsrBuffer) -> Result<CsrBuffer> {
        self.inner.multiply(a, b)
    }

    fn reduce(&self, matrix: &CsrBuffer, wanted: &[Reduction], ctx: &Context) -> Result<Vec<Vec<f64>>> {
        let mut results = self.pass(matrix, ctx, |ctx| self.inner.reduce(matrix, wanted, ctx))?;
        if self.mistake == Mistake::ReducesWithDdof0 {
            for (result, reduction) in results.iter_mut().zip(wanted) {
                let n = match reduction.axis {
                    Axis::Cells => matrix.n_genes as f64,
                    Axis::Genes => matrix.n_cells() as f64,
                };
                if reduction.statistic == Statistic::Variance {
                    for variance in result {
                        *variance *= (n - 1.0) / n;
                    }
                }
            }
        }
        Ok(results)
    }

    fn visit(&self, matrix: &CsrBuffer, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
        self.pass(matrix, ctx, |ctx| self.inner.visit(matrix, ctx, &mut |chunk| self.handed_on(f(chunk))))
    }

    fn concat(&self, parts: &[&CsrBuffer]) -> Result<CsrBuffer> {
        let mut parts = parts.to_vec();
        if self.mistake == Mistake::PartsTheOtherWay {
            parts.reverse();
        }
        self.inner.concat(&parts)
    }

    fn count_summary(&self, matrix: &CsrBuffer, excluded: Option<&Arc<[bool]>>, ctx: &Context) -> Result<CountSummary> {
        match self.mistake {
            Mistake::CounterWithoutSynchronisation if ctx.threads.get() > 1 => losing_updates(matrix, excluded),
            Mistake::CountsExcludedGenes => {
                let all = self.inner.count_summary(matrix, None, ctx)?;
                let mut found = CountSummary::new(matrix.n_genes, excluded.cloned());
                found.add(0, all.cell_totals(matrix.n_cells())?.to_vec(), all.genes(), all.facts())?;
                Ok(found)
            }
            Mistake::SharedScratch => {
                // Calls come in pairs: the first of each goes on when the second has put its matrix in the same place.
                let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
                scratch.0 += 1;
                scratch.1.clone_from(matrix);
                let pair = scratch.0.next_multiple_of(2);
                self.called.notify_all();
                let waited =
                    self.called.wait_timeout_while(scratch, Duration::from_secs(2), |scratch| scratch.0 < pair);
                let (scratch, _) = waited.unwrap_or_else(PoisonError::into_inner);
                self.inner.count_summary(&scratch.1, excluded, ctx)
            }
            _ => self.pass(matrix, ctx, |ctx| self.inner.count_summary(matrix, excluded, ctx)),
        }
    }

    fn moment_summary(&self, matrix: &CsrBuffer, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary> {
        self.pass(matrix, ctx, |ctx| self.inner.moment_summary(matrix, plan, ctx))
    }

    fn gram(&self, matrix: &CsrBuffer, plan: &OutputPlan, ctx: &Context) -> Result<Gram> {
        self.pass(matrix, ctx, |ctx| self.inner.gram(matrix, &self.plan(matrix, plan), ctx))
    }

    fn project(
        &self,
        matrix: &CsrBuffer,
        plan: &OutputPlan,
        projection: &Projection,
        ctx: &Context,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let mut projection = projection.clone();
        if self.mistake == Mistake::ScoresNotCentred {
            projection.offset.fill(0.0);
        }
        let plan = self.plan(matrix, plan);
        let sink = &mut |first: usize, rows: &[f32]| self.handed_on(sink(first, rows));
        self.pass(matrix, ctx, |ctx| self.inner.project(matrix, &plan, &projection, ctx, sink))
    }

    fn scaled(&self, matrix: &CsrBuffer, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        let plan = self.plan(matrix, plan);
        let sink = &mut |first: usize, rows: &[f32]| self.handed_on(sink(first, rows));
        self.pass(matrix, ctx, |ctx| self.inner.scaled(matrix, &plan, ctx, sink))
    }

    fn normalised(&self, matrix: &CsrBuffer, plan: &OutputPlan, ctx: &Context, sink: &mut ChunkSink<'_>) -> Result<()> {
        let plan = self.plan(matrix, plan);
        let sink = &mut |chunk: CsrView<'_>| self.handed_on(sink(chunk));
        self.pass(matrix, ctx, |ctx| self.inner.normalised(matrix, &plan, ctx, sink))
    }
}
