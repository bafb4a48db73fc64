//! The whole recipe on a matrix, with its results as arrays of numpy.

use std::sync::Arc;

use numpy::{PyArray1, PyArray2, PyArrayMethods as _, PyUntypedArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use zheng17::{Choice, Values};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::recipe::{Components, Outcome, Params, RecipeResult, RecipeVersion};
use zheng17_core::{AnyBackend, Context, CsrView, Error, Result, SparseBackend as _};

use crate::call::{Limits, interruptible};
use crate::errors::OrException as _;
use crate::sources::Source;

/// What the recipe should do.
pub(crate) fn params(
    version: &str,
    n_top_genes: usize,
    log: bool,
    max_value: Option<f64>,
    n_comps: Option<usize>,
) -> Result<Params> {
    let components = n_comps.map(Components::Exactly);
    let params = Params { version: RecipeVersion::from_name(version)?, n_top_genes, log, max_value, components };
    params.check()?;
    Ok(params)
}

/// What the values of the output are.
pub(crate) fn values_of(name: &str) -> Result<Values> {
    [Values::Scaled, Values::Normalised, Values::None]
        .into_iter()
        .find(|values| values.name() == name)
        .ok_or_else(|| Error::usage(format!("there are no values \"{name}\"; there are scaled, lognorm and none")))
}

/// Runs the recipe on a source.
///
/// Returns a dict of arrays and numbers. `values` is "scaled" (`x` is cells × selected genes, of 64 bits with `float64`) or "none".
#[pyfunction]
#[pyo3(signature = (source, *, version, n_top_genes, log, max_value, n_comps, backend, threads, memory, chunk_rows, values, float64, progress))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "all that can be asked for")]
pub(crate) fn recipe<'py>(
    py: Python<'py>,
    source: &Source,
    version: &str,
    n_top_genes: usize,
    log: bool,
    max_value: Option<f64>,
    n_comps: Option<usize>,
    backend: String,
    threads: Option<usize>,
    memory: Option<u64>,
    chunk_rows: Option<usize>,
    values: &str,
    float64: bool,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let params = params(version, n_top_genes, log, max_value, n_comps).or_exception()?;
    let values = values_of(values).or_exception()?;
    let source = Arc::clone(&source.inner);
    let limits = Limits { threads, memory, chunk_rows };
    let ran = interruptible(py, &limits, progress, move |ctx| {
        let choice = zheng17::choose(&backend, &source, &params, ctx)?;
        let ctx = &choice.context(ctx);
        let Choice { backend, reason, .. } = choice;
        let name = backend.capabilities().name.clone();
        let outcome = zheng17_core::recipe::run(Arc::new(backend), source, &params, ctx)?;
        let x = match values {
            Values::Scaled => Some(scaled(&outcome, float64, ctx)?),
            _ => None,
        };
        let mut scores = Vec::new();
        if outcome.result.pca.is_some() {
            outcome.scores(ctx, &mut |_, rows| {
                scores.extend_from_slice(rows);
                Ok(())
            })?;
        }
        let notes = outcome.notes();
        Ok(Ran { backend: name, reason, explanation: outcome.explain(), notes, result: outcome.result, x, scores })
    })?;
    ran.into_dict(py)
}

/// A run that is over.
struct Ran {
    backend: String,
    reason: Option<String>,
    explanation: Option<String>,
    notes: Vec<String>,
    result: RecipeResult,
    x: Option<Matrix>,
    scores: Vec<f32>,
}

/// A dense matrix of numpy, in either number type.
pub(crate) enum Matrix {
    F32(Py<PyArray2<f32>>),
    F64(Py<PyArray2<f64>>),
}

impl Matrix {
    pub(crate) fn into_any(self, py: Python<'_>) -> Bound<'_, PyAny> {
        match self {
            Self::F32(array) => array.into_bound(py).into_any(),
            Self::F64(array) => array.into_bound(py).into_any(),
        }
    }
}

/// The scaled values in an array that numpy allocates, which takes large pages where the system has them.
fn scaled(outcome: &Outcome<AnyBackend>, float64: bool, ctx: &Context) -> Result<Matrix> {
    let shape = [outcome.result.cells.len(), outcome.result.selected.len()];
    if !float64 {
        let array = zeros::<f32>(shape)?;
        fill(&array, |out| outcome.scaled_into(ctx, out))?;
        return Ok(Matrix::F32(array));
    }
    let array = zeros::<f64>(shape)?;
    let zero_values = outcome.output.zero_values();
    fill(&array, |out| {
        ctx.pass("scaled values", shape[0], || {
            outcome.visit(ctx, &mut |chunk| {
                let place = &mut out[chunk.first_cell() * shape[1]..][..chunk.n_cells() * shape[1]];
                scaled_f64(chunk, &outcome.output, &zero_values, place);
                Ok(())
            })
        })
    })?;
    Ok(Matrix::F64(array))
}

/// As the 32-bit values, without the last rounding.
pub(crate) fn scaled_f64(chunk: CsrView<'_>, plan: &OutputPlan, zero_values: &[f64], out: &mut [f64]) {
    for (row, out_row) in out.chunks_exact_mut(plan.n_genes().max(1)).enumerate() {
        out_row.copy_from_slice(zero_values);
        let scale = plan.cell_scale[chunk.first_cell() + row];
        let values = chunk.row_values(row);
        for (at, &gene) in chunk.row_indices(row).iter().enumerate() {
            out_row[gene as usize] = plan.scaled(plan.normalised(values.get(at), scale), gene as usize);
        }
    }
}

/// A new array.
///
/// # Errors
/// [`Error::system`] if there is no memory for it.
pub(crate) fn zeros<T: numpy::Element>(shape: [usize; 2]) -> Result<Py<PyArray2<T>>> {
    Python::attach(|py| {
        let numpy = py.import("numpy").and_then(|numpy| numpy.getattr("zeros"));
        let array = numpy.and_then(|zeros| zeros.call1((shape, T::get_dtype(py))));
        let typed = array.and_then(|array| Ok(array.cast_into::<PyArray2<T>>()?.unbind()));
        typed.map_err(|error| Error::system(format!("no memory for {} x {} values: {error}", shape[0], shape[1])))
    })
}

/// Works on the memory of an array that nobody else has seen yet, without the interpreter's lock.
pub(crate) fn fill<T: numpy::Element, R>(array: &Py<PyArray2<T>>, work: impl FnOnce(&mut [T]) -> R) -> R {
    let (start, len) = Python::attach(|py| (array.bind(py).data(), array.bind(py).shape().iter().product()));
    // SAFETY: the array was made by `zeros`, so it is contiguous; nobody else knows it yet; it lives as long as its owner, which
    // is borrowed here.
    work(unsafe { std::slice::from_raw_parts_mut(start, len) })
}

impl Ran {
    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        let result = self.result;
        let positions = |positions: &[usize]| PyArray1::from_iter(py, positions.iter().map(|&at| at as i64));
        dict.set_item("version", result.params.version.name)?;
        dict.set_item("backend", self.backend)?;
        dict.set_item("backend_reason", self.reason)?;
        dict.set_item("explanation", self.explanation)?;
        dict.set_item("notes", self.notes)?;
        dict.set_item("warnings", result.warnings.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        dict.set_item("digest", &result.digest)?;
        dict.set_item("n_cells", result.shape.n_cells)?;
        dict.set_item("n_genes", result.shape.n_genes)?;
        dict.set_item("logged", result.params.log || !result.params.version.renormalises)?;
        dict.set_item("target_sum", result.target_sum)?;
        dict.set_item("hvg_target_sum", result.hvg_target_sum)?;
        dict.set_item("cells", positions(&result.cells))?;
        dict.set_item("kept_genes", positions(&result.kept_genes))?;
        dict.set_item("selected", positions(&result.selected))?;
        dict.set_item("selected_among_kept", positions(&result.selected_among_kept()))?;
        dict.set_item("bins", positions(&result.bins))?;
        let ranks = result.ranks.iter().map(|rank| rank.map_or(0, |rank| rank as i64));
        dict.set_item("ranks", PyArray1::from_iter(py, ranks))?;
        dict.set_item("n_counts_all", PyArray1::from_vec(py, result.n_counts_all()))?;
        for (name, values) in [
            ("gene_totals", result.gene_totals),
            ("cell_totals", result.cell_totals),
            ("means", result.means),
            ("variances", result.variances),
            ("dispersions", result.dispersions),
            ("scores", result.scores),
            ("hvg_totals", result.hvg_totals),
            ("mean", result.scale_mean),
            ("std", result.scale_deviation),
        ] {
            dict.set_item(name, PyArray1::from_vec(py, values))?;
        }
        dict.set_item("x", self.x.map(|x| x.into_any(py)))?;
        if let Some(pca) = result.pca {
            let scores = PyArray1::from_vec(py, self.scores).reshape([result.cells.len(), pca.n_components])?;
            let loadings = PyArray1::from_vec(py, pca.loadings).reshape([result.selected.len(), pca.n_components])?;
            dict.set_item("pca_scores", scores)?;
            dict.set_item("pca_loadings", loadings)?;
            dict.set_item("pca_variance", PyArray1::from_vec(py, pca.variances))?;
            dict.set_item("pca_variance_ratio", PyArray1::from_vec(py, pca.variance_ratios))?;
        }
        Ok(dict)
    }
}
