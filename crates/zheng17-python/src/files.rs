//! The whole job from file to file, what it would take, and which backends there are.

use std::path::PathBuf;

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use zheng17::job::{self, Finished, Job};

use crate::call::{Limits, interruptible};
use crate::errors::OrException as _;
use crate::recipe::{params, values_of};
use crate::sources::open_options;

/// Runs the recipe on a file and writes an h5ad file. Returns what was found out, as a dict.
#[pyfunction]
#[pyo3(signature = (input, output, *, version, n_top_genes, log, max_value, n_comps, backend, threads, memory, chunk_rows, values, gene_table, force, layer, raw, genome, feature_type, progress))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "all that can be asked for")]
pub(crate) fn run<'py>(
    py: Python<'py>,
    input: PathBuf,
    output: PathBuf,
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
    gene_table: Option<PathBuf>,
    force: bool,
    layer: Option<String>,
    raw: bool,
    genome: Option<String>,
    feature_type: Option<String>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let params = params(version, n_top_genes, log, max_value, n_comps).or_exception()?;
    let values = values_of(values).or_exception()?;
    let options = open_options(layer, raw, genome, feature_type, None);
    let limits = Limits { threads, memory, chunk_rows };
    let finished = interruptible(py, &limits, progress, move |ctx| {
        let job = Job {
            input: &input,
            options,
            params,
            backend: &backend,
            output: &output,
            values,
            gene_table: gene_table.as_deref(),
            force,
        };
        job.execute(ctx)
    })?;
    as_dict(py, &finished)
}

fn as_dict<'py>(py: Python<'py>, finished: &Finished) -> PyResult<Bound<'py, PyDict>> {
    let result = &finished.outcome.result;
    let dict = PyDict::new(py);
    dict.set_item("input", &finished.dataset.path)?;
    dict.set_item("format", finished.dataset.format.to_string())?;
    dict.set_item("version", result.params.version.name)?;
    dict.set_item("backend", &finished.backend)?;
    dict.set_item("backend_reason", &finished.reason)?;
    dict.set_item("n_cells", result.shape.n_cells)?;
    dict.set_item("n_genes", result.shape.n_genes)?;
    dict.set_item("n_kept_genes", result.kept_genes.len())?;
    let names: Vec<&str> = result.selected.iter().filter_map(|&gene| finished.dataset.var.index.get(gene)).collect();
    dict.set_item("selected", PyArray1::from_iter(py, result.selected.iter().map(|&gene| gene as i64)))?;
    dict.set_item("selected_names", names)?;
    dict.set_item("target_sum", result.target_sum)?;
    dict.set_item("hvg_target_sum", result.hvg_target_sum)?;
    let ratios = result.pca.as_ref().map(|pca| PyArray1::from_slice(py, &pca.variance_ratios));
    dict.set_item("pca_variance_ratio", ratios)?;
    dict.set_item("digest", &result.digest)?;
    dict.set_item("seconds", finished.time.as_secs_f64())?;
    dict.set_item("warnings", finished.warnings())?;
    dict.set_item("notes", &finished.notes)?;
    Ok(dict)
}

/// What a run would do and take, as a dict; sizes in bytes, estimated.
#[pyfunction]
#[pyo3(signature = (input, *, version, n_top_genes, log, max_value, n_comps, backend, threads, memory, chunk_rows, values, layer, raw, genome, feature_type))]
#[allow(clippy::too_many_arguments, reason = "all that can be asked for")]
pub(crate) fn plan<'py>(
    py: Python<'py>,
    input: PathBuf,
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
    layer: Option<String>,
    raw: bool,
    genome: Option<String>,
    feature_type: Option<String>,
) -> PyResult<Bound<'py, PyDict>> {
    let params = params(version, n_top_genes, log, max_value, n_comps).or_exception()?;
    let values = values_of(values).or_exception()?;
    let options = open_options(layer, raw, genome, feature_type, None);
    let limits = Limits { threads, memory, chunk_rows };
    let (plan, shape) = interruptible(py, &limits, None, move |ctx| {
        let dataset = job::open(&input, options, &backend, ctx)?;
        let plan = zheng17::plan(&backend, &dataset.source, &params, values, ctx)?;
        Ok((plan, dataset.source.shape()))
    })?;
    let dict = PyDict::new(py);
    dict.set_item("n_cells", shape.n_cells)?;
    dict.set_item("n_genes", shape.n_genes)?;
    dict.set_item("n_entries", plan.n_entries)?;
    dict.set_item("backend", plan.backend)?;
    dict.set_item("backend_reason", plan.reason)?;
    dict.set_item("threads", plan.threads)?;
    dict.set_item("chunk_rows", plan.chunk_rows)?;
    dict.set_item("passes", plan.passes)?;
    dict.set_item("matrix_bytes", plan.matrix)?;
    dict.set_item("on_devices_bytes", plan.on_devices)?;
    dict.set_item("spilled_bytes", plan.spilled)?;
    dict.set_item("peak_bytes", plan.peak)?;
    dict.set_item("output_bytes", plan.output)?;
    Ok(dict)
}

/// The backends of this build and what they can do, as a list of dicts.
#[pyfunction]
pub(crate) fn backends(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for entry in zheng17::registry().or_exception()?.entries() {
        let about = &entry.capabilities;
        let dict = PyDict::new(py);
        dict.set_item("name", &about.name)?;
        dict.set_item("description", &about.description)?;
        dict.set_item("threads", about.threads)?;
        dict.set_item("beyond_memory", about.out_of_core)?;
        dict.set_item("scanpy_1_4", about.ordered_fold)?;
        list.append(dict)?;
    }
    Ok(list)
}

/// Loads a backend from a shared library and returns its name.
#[pyfunction]
pub(crate) fn load_plugin(path: PathBuf) -> PyResult<String> {
    Ok(zheng17::load_plugin(&path).or_exception()?.name)
}
