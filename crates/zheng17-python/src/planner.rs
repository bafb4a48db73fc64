//! What merged summaries decide, step by step: target sum, genes, factors of cells, means and deviations. Knows no chunk and no
//! engine; every number comes from the functions that the recipe itself uses.

use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use zheng17_core::exact::{Arithmetic, CountSummary};
use zheng17_core::recipe::plan::{self, CellScaling};
use zheng17_core::recipe::{Params, RecipeVersion, Statistics, Warning};
use zheng17_core::{Error, Result, Shape};

use crate::arrays::Copied;
use crate::chunks::{Moments, Summary};
use crate::errors::{OrException as _, exception, of_caller};
use crate::recipe::params;

/// The recipe's decisions from the summary of all cells.
#[pyclass(frozen, module = "zheng17._zheng17")]
pub(crate) struct Planner {
    params: Params,
    summary: CountSummary,
    duplicates: u64,
}

#[pymethods]
impl Planner {
    /// A planner for a run of the recipe from the summary of all cells.
    #[new]
    #[pyo3(signature = (summary, *, version, n_top_genes, log, max_value))]
    fn new(summary: &Summary, version: &str, n_top_genes: usize, log: bool, max_value: Option<f64>) -> PyResult<Self> {
        let params = params(version, n_top_genes, log, max_value, None).or_exception()?;
        if params.version.statistics == Statistics::OrderedFloat32 {
            let complaint = format!(
                "{version} sums in cell order, which summaries of chunks that merge in any order can't do; zheng17.run and \
                 recipe_zheng17 on a matrix in memory can"
            );
            return Err(exception(&Error::unsupported(complaint)));
        }
        // Also says which cell is missing.
        summary.sums.cell_totals(summary.sums.n_cells()).map_err(of_caller).or_exception()?;
        if summary.sums.n_cells() < 2 {
            let complaint = format!("{} cells; a variance needs two", summary.sums.n_cells());
            return Err(exception(&Error::input(complaint)));
        }
        Ok(Self { params, summary: summary.sums.clone(), duplicates: summary.duplicates })
    }

    /// The target sum that [`float32_factors`] needs before genes can be selected, in versions with scanpy's 32-bit values. `None`
    /// in the exact version.
    fn float32_target(&self) -> PyResult<Option<f64>> {
        let float32 = self.params.version.statistics == Statistics::Float32Values;
        Ok(if float32 { Some(plan::float32_target(self.cell_totals().or_exception()?)) } else { None })
    }

    /// Scores and selects genes: a dict of arrays and numbers. Versions with scanpy's 32-bit values need moments of them.
    #[pyo3(signature = (moments=None))]
    fn select_genes<'py>(&self, py: Python<'py>, moments: Option<&Moments>) -> PyResult<Bound<'py, PyDict>> {
        let (kept, statistics, selection) = py
            .detach(|| {
                let kept = plan::kept_genes(&self.summary)?;
                let statistics = match (self.params.version.statistics, moments) {
                    (Statistics::Exact, _) => plan::exact_statistics(&self.summary, self.shape(), &kept)?,
                    (_, Some(moments)) => {
                        self.check_cells(moments)?;
                        let totals = self.cell_totals()?;
                        let target = plan::float32_target(totals);
                        let moment_plan = plan::float32_moments(&self.params.version, target, totals);
                        plan::float32_statistics(target, &moment_plan, &moments.0, &kept)
                    }
                    (_, None) => return Err(Error::usage(format!("{} needs moments", self.params.version.name))),
                };
                let selection = plan::select_genes(&self.params, &kept, &statistics)?;
                Ok((kept, statistics, selection))
            })
            .or_exception()?;
        let positions = |positions: &[usize]| PyArray1::from_iter(py, positions.iter().map(|&at| at as i64));
        let among_kept: Vec<usize> =
            selection.selected.iter().filter_map(|gene| kept.binary_search(gene).ok()).collect();
        let totals = self.cell_totals().or_exception()?;
        let divisor = if self.params.version.counts_over_target { statistics.target_sum } else { 1.0 };
        let ranks = selection.scores.ranks.iter().map(|rank| rank.map_or(0, |rank| rank as i64));
        let dict = PyDict::new(py);
        dict.set_item("version", self.params.version.name)?;
        dict.set_item("target_sum", statistics.target_sum)?;
        dict.set_item("kept_genes", positions(&kept))?;
        dict.set_item("selected", positions(&selection.selected))?;
        dict.set_item("selected_among_kept", positions(&among_kept))?;
        dict.set_item("bins", positions(&selection.scores.bins))?;
        dict.set_item("ranks", PyArray1::from_iter(py, ranks))?;
        dict.set_item("cell_totals", PyArray1::from_slice(py, totals))?;
        dict.set_item("n_counts_all", PyArray1::from_iter(py, totals.iter().map(|total| total / divisor)))?;
        dict.set_item("gene_totals", PyArray1::from_vec(py, plan::gene_totals(&self.summary)))?;
        dict.set_item("means", PyArray1::from_vec(py, statistics.means))?;
        dict.set_item("variances", PyArray1::from_vec(py, statistics.variances))?;
        dict.set_item("dispersions", PyArray1::from_vec(py, selection.scores.dispersions))?;
        dict.set_item("scores", PyArray1::from_vec(py, selection.scores.scores))?;
        dict.set_item("warnings", texts(&selection.warnings))?;
        Ok(dict)
    }

    /// How cells are scaled, from the summary of all cells with only the selected genes: their totals, the target sum that cells are
    /// renormalised to, whether values are logarithmised, and what a user should know of cells and values.
    fn scale_cells<'py>(&self, py: Python<'py>, target_sum: f64, selected: &Summary) -> PyResult<Bound<'py, PyDict>> {
        let scaling = self.scaling(target_sum, selected).or_exception()?;
        let totals = self.cell_totals().or_exception()?;
        let hvg_totals: Vec<f64> = selected.sums.seen_cell_totals().collect();
        let mut warnings = plan::input_warnings(&self.params, &self.summary, self.duplicates);
        warnings.extend(plan::cell_warnings(totals, &hvg_totals));
        if scaling.log && !self.params.log {
            warnings.push(Warning::LoggedAnyway { version: self.params.version.name });
        }
        let dict = PyDict::new(py);
        dict.set_item("hvg_target_sum", scaling.target_sum)?;
        dict.set_item("hvg_totals", PyArray1::from_vec(py, hvg_totals))?;
        dict.set_item("logged", scaling.log)?;
        dict.set_item("warnings", texts(&warnings))?;
        Ok(dict)
    }

    /// Mean and standard deviation of each selected gene before scaling, from the moments of all cells.
    fn scale_genes<'py>(
        &self,
        py: Python<'py>,
        target_sum: f64,
        selected: &Summary,
        moments: &Moments,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
        self.check_cells(moments).or_exception()?;
        let scaling = self.scaling(target_sum, selected).or_exception()?;
        let (output, deviation) = plan::output_plan(&self.params, &scaling, &moments.0);
        Ok((PyArray1::from_vec(py, output.mean), PyArray1::from_vec(py, deviation)))
    }
}

impl Planner {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.summary.n_cells(), n_genes: self.summary.n_genes() }
    }

    fn cell_totals(&self) -> Result<&[f64]> {
        self.summary.cell_totals(self.summary.n_cells()).map_err(of_caller)
    }

    /// Whether moments are of as many cells as were summarised.
    fn check_cells(&self, moments: &Moments) -> Result<()> {
        let (found, wanted) = (moments.0.n_cells(), self.summary.n_cells());
        if found == wanted as u64 {
            return Ok(());
        }
        Err(Error::usage(format!("moments of {found} cells, but {wanted} cells were summarised")))
    }

    fn scaling(&self, target_sum: f64, selected: &Summary) -> Result<CellScaling> {
        let hvg_totals = selected.sums.cell_totals(self.summary.n_cells()).map_err(of_caller)?;
        Ok(plan::cell_scaling(&self.params, target_sum, self.cell_totals()?, hvg_totals, None))
    }
}

fn texts(warnings: &[Warning]) -> Vec<String> {
    warnings.iter().map(ToString::to_string).collect()
}

/// How `moments` takes the cells of a chunk as scanpy's 32-bit values, given their totals and the target sum: factor of each cell,
/// arithmetic, exponent.
#[pyfunction]
pub(crate) fn float32_factors<'py>(
    py: Python<'py>,
    version: &str,
    target_sum: f64,
    cell_totals: Copied<f64>,
) -> PyResult<(Bound<'py, PyArray1<f64>>, &'static str, i32)> {
    let version = RecipeVersion::from_name(version).or_exception()?;
    let plan = plan::float32_moments(&version, target_sum, &cell_totals.values);
    let Arithmetic::Float32 { log, exponent } = plan.arithmetic else {
        return Err(exception(&Error::internal("32-bit values have an arithmetic of their own")));
    };
    Ok((PyArray1::from_slice(py, &plan.cell_scale), if log { "float32-log" } else { "float32" }, exponent))
}

/// How the cells of a chunk of selected genes are scaled, given their totals and the target sums, before and after genes were
/// selected: what values are multiplied with, whether they are logarithmised after, and scale and arithmetic for `moments`.
#[pyfunction]
pub(crate) fn cell_factors<'py>(
    py: Python<'py>,
    version: &str,
    log: bool,
    target_sum: f64,
    hvg_target_sum: f64,
    cell_totals: Copied<f64>,
    hvg_totals: Copied<f64>,
) -> PyResult<(Bound<'py, PyArray1<f64>>, bool, Bound<'py, PyArray1<f64>>, &'static str)> {
    let params = Params { version: RecipeVersion::from_name(version).or_exception()?, log, ..Params::default() };
    let (totals, hvg_totals) = (&cell_totals.values, &hvg_totals.values);
    if totals.len() != hvg_totals.len() {
        return Err(exception(&Error::usage("totals of the same cells are needed")));
    }
    let scaling = plan::cell_scaling(&params, target_sum, totals, hvg_totals, Some(hvg_target_sum));
    let arithmetic = if scaling.log { "log" } else { "share" };
    let factors = PyArray1::from_slice(py, &scaling.factors);
    Ok((factors, scaling.log, PyArray1::from_slice(py, &scaling.moments.cell_scale), arithmetic))
}
