//! The recipe as it runs: summaries from the backend, plans from summaries, the plan applied to the few selected genes.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::ordered_f32;
use super::params::{Components, Params, Statistics};
use super::pca::{self, Pca};
use super::plan::{self, GeneStatistics};
use super::result::{RecipeResult, Warning};
use crate::backend::{ChunkSink, RowSink, SparseBackend};
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::CountSummary;
use crate::kernels::OutputPlan;
use crate::matrix::{Selection, Shape};
use crate::source::{CheckedSource, ChunkSource};

/// A finished run: what was found out, and the selected genes ready to be written.
pub struct Outcome<B: SparseBackend> {
    /// What was found out.
    pub result: RecipeResult,
    /// The raw counts of the result's cells and selected genes.
    pub matrix: B::Matrix,
    /// How they become results.
    pub output: OutputPlan,
    backend: Arc<B>,
}

impl<B: SparseBackend> Outcome<B> {
    /// Hands on the scaled values: dense rows of cells × selected genes, in cell order. See [`SparseBackend::scaled`].
    ///
    /// # Errors
    /// Those of reading and of `sink`.
    pub fn scaled(&self, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        ctx.pass("scaled values", self.result.cells.len(), || {
            self.backend.scaled(&self.matrix, &self.output, ctx, sink)
        })
    }

    /// The scaled values in one dense matrix in memory: cells × selected genes. See [`SparseBackend::scaled_into`].
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a matrix of another size; those of reading.
    pub fn scaled_into(&self, ctx: &Context, out: &mut [f32]) -> Result<()> {
        ctx.pass("scaled values", self.result.cells.len(), || {
            self.backend.scaled_into(&self.matrix, &self.output, ctx, out)
        })
    }

    /// Hands on the values before centring and scaling: sparse rows, in cell order. See [`SparseBackend::normalised`].
    ///
    /// # Errors
    /// Those of reading and of `sink`.
    pub fn normalised(&self, ctx: &Context, sink: &mut ChunkSink<'_>) -> Result<()> {
        ctx.pass("normalised values", self.result.cells.len(), || {
            self.backend.normalised(&self.matrix, &self.output, ctx, sink)
        })
    }

    /// Shows the raw counts of the result's cells and selected genes, in cell order. See [`SparseBackend::visit`].
    ///
    /// # Errors
    /// Those of reading and of `sink`.
    pub fn visit(&self, ctx: &Context, sink: &mut ChunkSink<'_>) -> Result<()> {
        self.backend.visit(&self.matrix, ctx, sink)
    }

    /// How the matrix of selected genes came about and what was done with it, for people. See [`SparseBackend::explain`].
    pub fn explain(&self) -> Option<String> {
        self.backend.explain(&self.matrix)
    }

    /// What a user should know of how it was computed. See [`SparseBackend::notes`].
    pub fn notes(&self) -> Vec<String> {
        self.backend.notes(&self.matrix)
    }

    /// Hands on the scores of all cells on the principal components: rows of cells × components, in cell order.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if no components were asked for; those of reading and of `sink`.
    pub fn scores(&self, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        let Some(pca) = &self.result.pca else {
            return Err(Error::usage("no principal components were asked for"));
        };
        ctx.pass("principal component scores", self.result.cells.len(), || {
            self.backend.project(&self.matrix, &self.output, &pca.projection(), ctx, sink)
        })
    }
}

/// Runs the recipe on a source with a backend.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for parameters that make no sense or that the backend can't serve;
/// [`ErrorKind::Input`](crate::ErrorKind::Input) for data that the version refuses, naming cell and gene;
/// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled); those of reading.
pub fn run<B: SparseBackend>(
    backend: Arc<B>,
    source: Arc<dyn ChunkSource>,
    params: &Params,
    ctx: &Context,
) -> Result<Outcome<B>> {
    let name = source.name();
    let outcome = run_checked(backend, source, params, None, ctx);
    outcome.map_err(|error| {
        // Errors of reading carry the name already, and what a backend or the system refuses is not the fault of the data.
        let of_data = matches!(error.kind(), ErrorKind::Input | ErrorKind::Internal);
        if of_data && !error.to_string().starts_with(&name) { error.at(name) } else { error }
    })
}

/// [`run`] with T′ set from outside, to compare with other programs step by step.
///
/// # Errors
/// As [`run`].
pub fn run_with_hvg_target<B: SparseBackend>(
    backend: Arc<B>,
    source: Arc<dyn ChunkSource>,
    params: &Params,
    hvg_target_sum: f64,
    ctx: &Context,
) -> Result<Outcome<B>> {
    run_checked(backend, source, params, Some(hvg_target_sum), ctx)
}

fn run_checked<B: SparseBackend>(
    backend: Arc<B>,
    source: Arc<dyn ChunkSource>,
    params: &Params,
    hvg_target_sum: Option<f64>,
    ctx: &Context,
) -> Result<Outcome<B>> {
    params.check()?;
    let version = params.version;
    if version.statistics == Statistics::OrderedFloat32 && !backend.capabilities().ordered_fold {
        return Err(Error::usage(format!(
            "the backend {} can't run {}, which sums in cell order; those on the CPU can",
            backend.capabilities().name,
            version.name
        )));
    }
    let source = Arc::new(CheckedSource::new(source)?);
    let shape = source.shape();
    let matrix = ctx.pass("reading", shape.n_cells, || backend.open(Arc::clone(&source) as _, ctx))?;

    // Summarise: totals, and moments of shares.
    let mut summary = summarise(backend.as_ref(), &matrix, None, &source, ctx)?;
    let excluded = plan::genes_to_exclude(&summary);
    if excluded.is_some() {
        summary = summarise(backend.as_ref(), &matrix, excluded.as_ref(), &source, ctx)?;
    }
    let kept_genes = plan::kept_genes(&summary)?;
    let facts = *summary.facts();
    let mut warnings = plan::input_warnings(params, &summary, source.duplicates());

    // Score and select.
    let scored =
        score_statistics(backend.as_ref(), matrix, &summary, excluded.as_ref(), shape, &kept_genes, params, ctx)?;
    let ScoredOn { matrix, mut cells, statistics } = scored;
    if cells.len() < 2 {
        return Err(Error::input(format!("{} cells left; a variance needs two", cells.len())));
    }
    let selection = plan::select_genes(params, &kept_genes, &statistics)?;

    // The second visit keeps the selected genes; from here on nothing touches the full matrix.
    let genes = Selection::Indices(selection.selected.clone());
    let (mut selected, mut hvg) = ctx.pass("selected genes", cells.len(), || {
        let selected = backend.select(&matrix, &Selection::All, &genes)?;
        drop(matrix);
        let hvg = backend.count_summary(&selected, None, ctx)?;
        Ok((selected, hvg))
    })?;
    let all_totals = summary.cell_totals(shape.n_cells)?;
    if version.drops_small_cells {
        let totals = hvg.cell_totals(cells.len())?;
        let large: Vec<bool> =
            cells.iter().zip(totals).map(|(&cell, h)| h * statistics.target_sum / all_totals[cell] >= 1.0).collect();
        if large.contains(&false) {
            cells = cells.into_iter().zip(&large).filter(|(_, large)| **large).map(|(cell, _)| cell).collect();
            selected = backend.select(&selected, &Selection::Mask(large), &Selection::All)?;
            hvg = ctx.pass("selected genes", cells.len(), || backend.count_summary(&selected, None, ctx))?;
        }
        if cells.len() < 2 {
            return Err(Error::input(format!("{} cells left; a variance needs two", cells.len())));
        }
    }
    if cells.len() < shape.n_cells {
        warnings.push(Warning::DroppedCells { cells: shape.n_cells - cells.len(), version: version.name });
    }
    let cell_totals: Vec<f64> = cells.iter().map(|&cell| all_totals[cell]).collect();
    let hvg_totals = hvg.cell_totals(cells.len())?.to_vec();
    warnings.extend(plan::cell_warnings(&cell_totals, &hvg_totals));

    // Renormalise, log1p, scale: an affine map per gene over scaled cells.
    let scaling = plan::cell_scaling(params, statistics.target_sum, &cell_totals, &hvg_totals, hvg_target_sum);
    if scaling.log && !params.log {
        warnings.push(Warning::LoggedAnyway { version: version.name });
    }
    let moments =
        ctx.pass("means and deviations", cells.len(), || backend.moment_summary(&selected, &scaling.moments, ctx))?;
    let (output, scale_deviation) = plan::output_plan(params, &scaling, &moments);

    let pca = match params.components {
        Some(wanted) => {
            Some(components(backend.as_ref(), &selected, &output, wanted, cells.len(), &mut warnings, ctx)?)
        }
        None => None,
    };
    warnings.extend(selection.warnings);
    let result = RecipeResult {
        params: params.clone(),
        shape,
        cells,
        gene_totals: plan::gene_totals(&summary),
        kept_genes,
        cell_totals,
        target_sum: statistics.target_sum,
        means: statistics.means,
        variances: statistics.variances,
        dispersions: selection.scores.dispersions,
        bins: selection.scores.bins,
        scores: selection.scores.scores,
        ranks: selection.scores.ranks,
        selected: selection.selected,
        hvg_totals,
        hvg_target_sum: scaling.target_sum,
        scale_mean: output.mean.clone(),
        scale_deviation,
        pca,
        facts,
        digest: digest(&summary),
        warnings,
    };
    Ok(Outcome { result, matrix: selected, output, backend })
}

fn summarise<B: SparseBackend>(
    backend: &B,
    matrix: &B::Matrix,
    excluded: Option<&Arc<[bool]>>,
    source: &CheckedSource,
    ctx: &Context,
) -> Result<CountSummary> {
    let summary =
        ctx.pass("totals and moments", source.shape().n_cells, || backend.count_summary(matrix, excluded, ctx))?;
    // A backend that lost a cell must not go unnoticed.
    summary.cell_totals(source.shape().n_cells)?;
    Ok(summary)
}

/// What genes are scored on: the cells that count, and statistics over them.
struct ScoredOn<M> {
    matrix: M,
    cells: Vec<usize>,
    statistics: GeneStatistics,
}

#[allow(clippy::too_many_arguments, reason = "one step of the run, with all that the run knows")]
fn score_statistics<B: SparseBackend>(
    backend: &B,
    matrix: B::Matrix,
    summary: &CountSummary,
    excluded: Option<&Arc<[bool]>>,
    shape: Shape,
    kept: &[usize],
    params: &Params,
    ctx: &Context,
) -> Result<ScoredOn<B::Matrix>> {
    let cells: Vec<usize> = (0..shape.n_cells).collect();
    match params.version.statistics {
        Statistics::Exact => {
            let statistics = plan::exact_statistics(summary, shape, kept)?;
            Ok(ScoredOn { matrix, cells, statistics })
        }
        Statistics::Float32Values => {
            let totals = summary.cell_totals(shape.n_cells)?;
            let target = plan::float32_target(totals);
            let moment_plan = plan::float32_moments(&params.version, target, totals);
            let moments = ctx.pass("moments of 32-bit values", shape.n_cells, || {
                backend.moment_summary(&matrix, &moment_plan, ctx)
            })?;
            let statistics = plan::float32_statistics(target, &moment_plan, &moments, kept);
            Ok(ScoredOn { matrix, cells, statistics })
        }
        Statistics::OrderedFloat32 => {
            let totals = ctx.pass("32-bit totals in cell order", shape.n_cells, || {
                ordered_f32::cell_totals(backend, &matrix, excluded, ctx)
            })?;
            let large: Vec<bool> = totals.iter().map(|&total| total >= 1.0).collect();
            let cells: Vec<usize> = cells.into_iter().filter(|&cell| large[cell]).collect();
            let totals: Vec<f32> = cells.iter().map(|&cell| totals[cell]).collect();
            let matrix = if cells.len() < shape.n_cells {
                backend.select(&matrix, &Selection::Mask(large), &Selection::All)?
            } else {
                matrix
            };
            if cells.len() < 2 {
                return Err(Error::input(format!(
                    "{} cells have a total of at least 1; a variance needs two",
                    cells.len()
                )));
            }
            let statistics = ctx.pass("32-bit moments in cell order", cells.len(), || {
                ordered_f32::statistics(backend, &matrix, &totals, kept, ctx)
            })?;
            Ok(ScoredOn { matrix, cells, statistics })
        }
    }
}

fn components<B: SparseBackend>(
    backend: &B,
    selected: &B::Matrix,
    output: &OutputPlan,
    wanted: Components,
    n_cells: usize,
    warnings: &mut Vec<Warning>,
    ctx: &Context,
) -> Result<Pca> {
    let (n_components, warning) = pca::number_of_components(wanted, n_cells, output.n_genes())?;
    warnings.extend(warning);
    let gram = ctx.pass("products of gene pairs", n_cells, || backend.gram(selected, output, ctx))?;
    // It knows no cells, so its progress is only its time.
    ctx.pass("eigenproblem", 0, || pca::principal_components(&gram, output, n_cells, n_components))
}

/// SHA-256 of a summary's bytes, in hexadecimal digits.
fn digest(summary: &CountSummary) -> String {
    format!("{:x}", Sha256::digest(summary.to_bytes()))
}
