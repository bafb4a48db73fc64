//! The chunk functions of the recipe, for those who bring their own engine: summarise chunks, merge, plan, apply. Each works on one
//! chunk with one thread and knows nothing of the others.

use std::sync::Arc;

use numpy::{PyArray1, PyArray2, PyArrayMethods as _, PyReadonlyArray1, PyUntypedArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sha2::{Digest as _, Sha256};
use zheng17_core::backend::{GRAM_BLOCK, Gram, Projection};
use zheng17_core::exact::{Arithmetic, CountSummary, MomentPlan, MomentSummary};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{GeneMap, ValueKind};
use zheng17_core::recipe::pca;
use zheng17_core::recipe::{Components, Params, Statistics, plan};
use zheng17_core::source::CheckedSource;
use zheng17_core::{ChunkKernels as _, ChunkSource as _, CsrBuffer, CsrView, Error, Result, Shape, ValuesRef};
use zheng17_kernels::{CountFolder, FastKernels, GramBlock, GramTotal, MomentFolder, Scores};

use crate::errors::{OrException as _, exception};
use crate::recipe::{Matrix, fill, params, scaled_f64, zeros};
use crate::sources::Source;

/// Cells that are worked on at a time: results that depend on it in their last bits (products of genes) have fixed blocks.
const ROWS: usize = GRAM_BLOCK;

/// Exact sums over some cells: totals, and moments of shares. Summaries of different cells merge, in any order, to the same bits.
#[pyclass(frozen, module = "zheng17")]
pub(crate) struct Summary(CountSummary);

#[pymethods]
impl Summary {
    /// The summary whose bytes these are.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        Ok(Self(CountSummary::from_bytes(bytes).or_exception()?))
    }

    /// Bytes that are the same on every machine.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.0.to_bytes()))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let py = slf.py();
        Ok((slf.get_type().getattr("from_bytes")?, (slf.get().to_bytes(py),)))
    }

    /// The summary of the cells of all of these.
    #[staticmethod]
    fn merge(py: Python<'_>, summaries: Vec<PyRef<'_, Summary>>) -> PyResult<Self> {
        let parts: Vec<&CountSummary> = summaries.iter().map(|summary| &summary.0).collect();
        py.detach(|| {
            let (first, rest) = parts.split_first().ok_or_else(|| Error::usage("there is no summary to merge"))?;
            let mut merged = (*first).clone();
            rest.iter().try_for_each(|part| merged.merge((*part).clone()))?;
            Ok(Self(merged))
        })
        .or_exception()
    }

    /// SHA-256 of the bytes, in hexadecimal digits.
    #[getter]
    fn digest(&self, py: Python<'_>) -> String {
        py.detach(|| format!("{:x}", Sha256::digest(self.0.to_bytes())))
    }

    /// Cells that were summarised.
    #[getter]
    fn n_cells(&self) -> usize {
        self.0.n_cells()
    }

    /// Genes.
    #[getter]
    fn n_genes(&self) -> usize {
        self.0.n_genes()
    }

    /// The total of each gene.
    #[getter]
    fn gene_totals<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_vec(py, plan::gene_totals(&self.0))
    }

    /// The total of each cell, if none is missing.
    #[getter]
    fn cell_totals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        Ok(PyArray1::from_slice(py, self.0.cell_totals(self.0.n_cells()).or_exception()?))
    }

    /// Genes whose totals are fractions below 1, which cell totals must leave out: the cells have to be summarised again without
    /// them. `None` if there is none.
    fn genes_to_exclude<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<bool>>> {
        plan::genes_to_exclude(&self.0).map(|flags| PyArray1::from_slice(py, &flags))
    }

    fn __repr__(&self) -> String {
        format!("Summary of {} cells x {} genes", self.0.n_cells(), self.0.n_genes())
    }
}

/// Exact moments of each gene over some cells, after they were scaled. They merge, in any order, to the same bits.
#[pyclass(frozen, module = "zheng17")]
pub(crate) struct Moments(MomentSummary);

#[pymethods]
impl Moments {
    /// The moments whose bytes these are.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        Ok(Self(MomentSummary::from_bytes(bytes).or_exception()?))
    }

    /// Bytes that are the same on every machine.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let py = slf.py();
        Ok((slf.get_type().getattr("from_bytes")?, (slf.get().to_bytes(py),)))
    }

    /// The moments over the cells of all of these.
    #[staticmethod]
    fn merge(moments: Vec<PyRef<'_, Moments>>) -> PyResult<Self> {
        let (first, rest) =
            moments.split_first().ok_or_else(|| exception(&Error::usage("there are no moments to merge")))?;
        let mut merged = first.0.clone();
        rest.iter().try_for_each(|part| merged.merge(&part.0)).or_exception()?;
        Ok(Self(merged))
    }

    fn __repr__(&self) -> String {
        format!("Moments of {} genes over {} cells", self.0.genes().len(), self.0.n_cells())
    }
}

/// Visits the cells of a chunk, checked, a few at a time, each with its place in the whole matrix.
fn for_each_part(source: &Source, f: &mut dyn FnMut(CsrView<'_>) -> Result<()>) -> Result<()> {
    let checked = CheckedSource::of_part(Arc::clone(&source.inner));
    let Shape { n_cells, n_genes } = checked.shape();
    let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
    let mut start = source.first_cell;
    while start < n_cells {
        // Parts end where blocks of the whole matrix end.
        let end = (start / ROWS * ROWS + ROWS).min(n_cells);
        checked.read_cells(start..end, &mut buffer)?;
        f(buffer.view())?;
        start = end;
    }
    Ok(())
}

/// Sums over the cells of a chunk. `excluded` has a flag for each gene that cell totals leave out.
#[pyfunction]
#[pyo3(signature = (source, excluded=None))]
pub(crate) fn summarize(
    py: Python<'_>,
    source: &Source,
    excluded: Option<PyReadonlyArray1<'_, bool>>,
) -> PyResult<Summary> {
    let excluded: Option<Arc<[bool]>> =
        excluded.map(|flags| flags.as_array().iter().copied().collect::<Vec<bool>>().into());
    let n_genes = source.inner.shape().n_genes;
    if excluded.as_ref().is_some_and(|flags| flags.len() != n_genes) {
        return Err(exception(&Error::usage("one flag for each gene is needed")));
    }
    py.detach(|| {
        let mut folder = CountFolder::new(n_genes, excluded);
        for_each_part(source, &mut |part| folder.fold(part))?;
        Ok(Summary(folder.finish()?))
    })
    .or_exception()
}

/// The chunk with only some genes: row pointers, column indices, values.
#[pyfunction]
pub(crate) fn select<'py>(
    py: Python<'py>,
    source: &Source,
    genes: PyReadonlyArray1<'_, i64>,
) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i32>>, Bound<'py, PyAny>)> {
    let n_genes = source.inner.shape().n_genes;
    let genes: Vec<usize> = genes.as_array().iter().map(|&gene| gene as usize).collect();
    if !genes.is_sorted_by(|a, b| a < b) || genes.last().is_some_and(|&last| last >= n_genes) {
        return Err(exception(&Error::usage(format!("genes must increase, and be below {n_genes}"))));
    }
    let map = GeneMap::new(n_genes, &genes);
    let kernels = FastKernels::default();
    let selected = py
        .detach(|| {
            let mut selected = CsrBuffer::new(genes.len(), ValueKind::F32);
            for_each_part(source, &mut |part| kernels.select_into(part, &map, &mut selected))?;
            Ok(selected)
        })
        .or_exception()?;
    let indptr = PyArray1::from_iter(py, selected.indptr.iter().map(|&pointer| pointer as i64));
    let indices = PyArray1::from_iter(py, selected.indices.iter().map(|&index| index.cast_signed()));
    let values = match selected.values {
        zheng17_core::Values::F32(values) => PyArray1::from_vec(py, values).into_any(),
        zheng17_core::Values::F64(values) => PyArray1::from_vec(py, values).into_any(),
    };
    Ok((indptr, indices, values))
}

/// Moments over the cells of a chunk. `cell_scale` has one factor for each of its cells, and `arithmetic` says what it is: "share",
/// "log", or with an `exponent` "float32" and "float32-log".
#[pyfunction]
#[pyo3(signature = (source, cell_scale, arithmetic, exponent=0))]
pub(crate) fn moments(
    py: Python<'_>,
    source: &Source,
    cell_scale: PyReadonlyArray1<'_, f64>,
    arithmetic: &str,
    exponent: i32,
) -> PyResult<Moments> {
    let arithmetic = match arithmetic {
        "share" => Arithmetic::Share,
        "log" => Arithmetic::Log,
        "float32" => Arithmetic::Float32 { log: false, exponent },
        "float32-log" => Arithmetic::Float32 { log: true, exponent },
        other => return Err(exception(&Error::usage(format!("there is no arithmetic \"{other}\"")))),
    };
    let plan = MomentPlan { cell_scale: factors(source, &cell_scale)?, arithmetic };
    py.detach(|| {
        let mut folder = MomentFolder::new(source.inner.shape().n_genes, &plan);
        for_each_part(source, &mut |part| folder.fold(local(source, part)))?;
        Ok(Moments(folder.finish()?))
    })
    .or_exception()
}

/// The factors of the cells of a chunk.
fn factors(source: &Source, cell_scale: &PyReadonlyArray1<'_, f64>) -> PyResult<Arc<[f64]>> {
    let (found, wanted) = (cell_scale.len(), source.inner.shape().n_cells - source.first_cell);
    if found != wanted {
        return Err(exception(&Error::usage(format!("{found} factors for {wanted} cells"))));
    }
    Ok(cell_scale.as_array().iter().copied().collect::<Vec<f64>>().into())
}

/// A part with its place in the chunk, for plans that have only the chunk's cells.
fn local<'a>(source: &Source, part: CsrView<'a>) -> CsrView<'a> {
    part.with_first_cell(part.first_cell() - source.first_cell)
}

/// What merged summaries decide: which genes are selected, how cells are scaled, how genes are centred and scaled.
#[pyclass(frozen, module = "zheng17._zheng17")]
pub(crate) struct Planner {
    params: Params,
    summary: CountSummary,
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
        Ok(Self { params, summary: summary.0.clone() })
    }

    /// What [`moments`] needs before genes can be selected, in versions with scanpy's 32-bit values: factor of each cell, arithmetic,
    /// exponent. `None` in the exact version.
    fn moments_needed<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyArray1<f64>>, &'static str, i32)>> {
        let Some((_, plan)) = self.float32().or_exception()? else {
            return Ok(None);
        };
        let (name, exponent) = arithmetic_name(plan.arithmetic);
        Ok(Some((PyArray1::from_slice(py, &plan.cell_scale), name, exponent)))
    }

    /// Scores and selects genes: a dict of arrays and numbers.
    #[pyo3(signature = (moments=None))]
    fn select_genes<'py>(&self, py: Python<'py>, moments: Option<&Moments>) -> PyResult<Bound<'py, PyDict>> {
        let shape = self.shape();
        let (kept, statistics, selection) = py
            .detach(|| {
                let kept = plan::kept_genes(&self.summary)?;
                let statistics = match (self.float32()?, moments) {
                    (None, _) => plan::exact_statistics(&self.summary, shape, &kept)?,
                    (Some((target, plan)), Some(moments)) => plan::float32_statistics(target, &plan, &moments.0, &kept),
                    (Some(_), None) => {
                        return Err(Error::usage(format!("{} needs moments", self.params.version.name)));
                    }
                };
                let selection = plan::select_genes(&self.params, &kept, &statistics)?;
                Ok((kept, statistics, selection))
            })
            .or_exception()?;
        let positions = |positions: &[usize]| PyArray1::from_iter(py, positions.iter().map(|&at| at as i64));
        let among_kept: Vec<usize> =
            selection.selected.iter().filter_map(|gene| kept.binary_search(gene).ok()).collect();
        let totals = self.summary.cell_totals(shape.n_cells).or_exception()?;
        let over_target = |&total: &f64| total / statistics.target_sum;
        let counts: Vec<f64> = if self.params.version.counts_over_target {
            totals.iter().map(over_target).collect()
        } else {
            totals.to_vec()
        };
        let dict = PyDict::new(py);
        dict.set_item("version", self.params.version.name)?;
        dict.set_item("target_sum", statistics.target_sum)?;
        dict.set_item("kept_genes", positions(&kept))?;
        dict.set_item("selected", positions(&selection.selected))?;
        dict.set_item("selected_among_kept", positions(&among_kept))?;
        dict.set_item("bins", positions(&selection.scores.bins))?;
        dict.set_item("n_counts_all", PyArray1::from_vec(py, counts))?;
        dict.set_item("gene_totals", PyArray1::from_vec(py, plan::gene_totals(&self.summary)))?;
        dict.set_item("means", PyArray1::from_vec(py, statistics.means))?;
        dict.set_item("variances", PyArray1::from_vec(py, statistics.variances))?;
        dict.set_item("dispersions", PyArray1::from_vec(py, selection.scores.dispersions))?;
        dict.set_item("scores", PyArray1::from_vec(py, selection.scores.scores))?;
        dict.set_item("warnings", selection.warnings.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let facts = self.summary.facts();
        dict.set_item("n_entries", facts.n_entries)?;
        dict.set_item("n_fractional", facts.n_fractional)?;
        dict.set_item("largest", facts.largest)?;
        Ok(dict)
    }

    /// How cells are scaled, from the summary of all cells with only the selected genes: what [`moments`] needs, the factors that
    /// values are multiplied with, whether they are logarithmised after, and the target sum.
    fn cell_scaling<'py>(&self, py: Python<'py>, target_sum: f64, selected: &Summary) -> PyResult<Bound<'py, PyDict>> {
        let n_cells = self.shape().n_cells;
        let totals = self.summary.cell_totals(n_cells).or_exception()?;
        let hvg_totals = selected.0.cell_totals(n_cells).or_exception()?;
        let scaling = plan::cell_scaling(&self.params, target_sum, totals, hvg_totals, None);
        let dict = PyDict::new(py);
        dict.set_item("target_sum", scaling.target_sum)?;
        dict.set_item("factors", PyArray1::from_slice(py, &scaling.factors))?;
        dict.set_item("log", scaling.log)?;
        dict.set_item("cell_scale", PyArray1::from_slice(py, &scaling.moments.cell_scale))?;
        dict.set_item("arithmetic", arithmetic_name(scaling.moments.arithmetic).0)?;
        Ok(dict)
    }

    /// Mean and standard deviation of each selected gene before scaling, from the moments of all cells.
    fn gene_scaling<'py>(
        &self,
        py: Python<'py>,
        target_sum: f64,
        selected: &Summary,
        moments: &Moments,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>)> {
        let n_cells = self.shape().n_cells;
        let totals = self.summary.cell_totals(n_cells).or_exception()?;
        let hvg_totals = selected.0.cell_totals(n_cells).or_exception()?;
        let scaling = plan::cell_scaling(&self.params, target_sum, totals, hvg_totals, None);
        let (output, deviation) = plan::output_plan(&self.params, &scaling, &moments.0);
        Ok((PyArray1::from_vec(py, output.mean), PyArray1::from_vec(py, deviation)))
    }
}

impl Planner {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.summary.n_cells(), n_genes: self.summary.n_genes() }
    }

    /// Target sum and plan of scanpy's 32-bit values, where the version has them.
    fn float32(&self) -> Result<Option<(f64, MomentPlan)>> {
        match self.params.version.statistics {
            Statistics::Float32Values => {
                plan::float32_moments(&self.params.version, &self.summary, self.shape()).map(Some)
            }
            _ => Ok(None),
        }
    }
}

fn arithmetic_name(arithmetic: Arithmetic) -> (&'static str, i32) {
    match arithmetic {
        Arithmetic::Share => ("share", 0),
        Arithmetic::Log => ("log", 0),
        Arithmetic::Float32 { log: false, exponent } => ("float32", exponent),
        Arithmetic::Float32 { log: true, exponent } => ("float32-log", exponent),
    }
}

/// How the values of a chunk of selected genes become results.
#[pyclass(frozen, module = "zheng17._zheng17")]
pub(crate) struct Scaling(OutputPlan);

#[pymethods]
impl Scaling {
    /// Factors of the chunk's cells, and mean and standard deviation of each gene.
    #[new]
    #[pyo3(signature = (factors, log, mean, std, max_value=None))]
    fn new(
        factors: PyReadonlyArray1<'_, f64>,
        log: bool,
        mean: PyReadonlyArray1<'_, f64>,
        std: PyReadonlyArray1<'_, f64>,
        max_value: Option<f64>,
    ) -> PyResult<Self> {
        if mean.len() != std.len() {
            return Err(exception(&Error::usage("one mean and one standard deviation for each gene is needed")));
        }
        let cell_scale: Vec<f64> = factors.as_array().iter().copied().collect();
        let inverse = |&deviation: &f64| if deviation > 0.0 { 1.0 / deviation } else { 0.0 };
        Ok(Self(OutputPlan {
            cell_scale: cell_scale.into(),
            log,
            mean: mean.as_array().to_vec(),
            inverse_deviation: std.as_array().iter().map(inverse).collect(),
            max_value,
        }))
    }

    /// The scaled values of a chunk, dense.
    #[pyo3(signature = (source, float64=false))]
    fn apply<'py>(&self, py: Python<'py>, source: &Source, float64: bool) -> PyResult<Bound<'py, PyAny>> {
        let shape = [self.n_cells(source)?, self.0.n_genes()];
        let kernels = FastKernels::default();
        let matrix = py
            .detach(|| {
                if !float64 {
                    let array = zeros::<f32>(shape)?;
                    fill(&array, |out| {
                        for_each_part(source, &mut |part| {
                            let part = local(source, part);
                            let place = &mut out[part.first_cell() * shape[1]..][..part.n_cells() * shape[1]];
                            kernels.affine_into(part, &self.0, place)
                        })
                    })?;
                    return Ok(Matrix::F32(array));
                }
                let array = zeros::<f64>(shape)?;
                let zero_values = self.0.zero_values();
                fill(&array, |out| {
                    for_each_part(source, &mut |part| {
                        let part = local(source, part);
                        let place = &mut out[part.first_cell() * shape[1]..][..part.n_cells() * shape[1]];
                        scaled_f64(part, &self.0, &zero_values, place);
                        Ok(())
                    })
                })?;
                Ok(Matrix::F64(array))
            })
            .or_exception()?;
        Ok(matrix.into_any(py))
    }

    /// Sums over a chunk of the products of all pairs of genes, and of the genes themselves: what principal components are made of.
    /// Such sums are added, over all chunks in one order.
    fn gram<'py>(
        &self,
        py: Python<'py>,
        source: &Source,
    ) -> PyResult<(Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<f64>>)> {
        self.n_cells(source)?;
        let gram = py
            .detach(|| {
                let mut total = GramTotal::new(&self.0);
                let mut block = GramBlock::new(&self.0);
                for_each_part(source, &mut |part| {
                    block.clear();
                    block.add(local(source, part), &self.0);
                    block.multiply();
                    total.add(&block);
                    Ok(())
                })?;
                Ok(total.finish())
            })
            .or_exception()?;
        let products = PyArray1::from_vec(py, gram.products).reshape([gram.n_genes, gram.n_genes])?;
        Ok((products, PyArray1::from_vec(py, gram.sums)))
    }

    /// Principal components from the sums over all cells: loadings (genes × components), variances, their ratios, and what is taken
    /// off the scores of each.
    fn components<'py>(
        &self,
        py: Python<'py>,
        products: &Bound<'py, PyArray2<f64>>,
        sums: PyReadonlyArray1<'py, f64>,
        n_cells: usize,
        n_comps: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let n_genes = self.0.n_genes();
        if products.shape() != [n_genes, n_genes] || sums.len() != n_genes {
            return Err(exception(&Error::usage(format!("products of {n_genes} genes are needed"))));
        }
        let gram = Gram { n_genes, products: products.to_vec()?, sums: sums.as_array().to_vec() };
        let pca = py
            .detach(|| {
                let (n_components, _) = pca::number_of_components(Components::Exactly(n_comps), n_cells, n_genes)?;
                pca::principal_components(&gram, &self.0, n_cells, n_components)
            })
            .or_exception()?;
        let dict = PyDict::new(py);
        let offset = pca.projection().offset;
        dict.set_item("loadings", PyArray1::from_vec(py, pca.loadings).reshape([n_genes, pca.n_components])?)?;
        dict.set_item("variance", PyArray1::from_vec(py, pca.variances))?;
        dict.set_item("variance_ratio", PyArray1::from_vec(py, pca.variance_ratios))?;
        dict.set_item("offset", PyArray1::from_vec(py, offset))?;
        Ok(dict)
    }

    /// The scores of a chunk's cells on components.
    fn project<'py>(
        &self,
        py: Python<'py>,
        source: &Source,
        loadings: &Bound<'py, PyArray2<f64>>,
        offset: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let n_components = offset.len();
        if loadings.shape() != [self.0.n_genes(), n_components] {
            return Err(exception(&Error::usage(
                "loadings are genes x components, and offsets one for each component",
            )));
        }
        let weights = loadings.to_vec()?;
        let projection = Projection { n_components, weights, offset: offset.as_array().to_vec() };
        let shape = [self.n_cells(source)?, n_components];
        let array = py
            .detach(|| {
                let array = zeros::<f32>(shape)?;
                let scores = Scores::new(&projection, &self.0);
                fill(&array, |out| {
                    let mut rows = Vec::new();
                    for_each_part(source, &mut |part| {
                        let part = local(source, part);
                        scores.of(part, &mut rows);
                        out[part.first_cell() * n_components..][..rows.len()].copy_from_slice(&rows);
                        Ok(())
                    })
                })?;
                Ok(array)
            })
            .or_exception()?;
        Ok(array.into_bound(py).into_any())
    }
}

impl Scaling {
    /// The number of cells of a chunk, if this is about them.
    fn n_cells(&self, source: &Source) -> PyResult<usize> {
        let Shape { n_cells, n_genes } = source.inner.shape();
        let n_cells = n_cells - source.first_cell;
        if n_cells != self.0.cell_scale.len() || n_genes != self.0.n_genes() {
            let complaint = format!(
                "a chunk of {n_cells} cells x {n_genes} genes, but factors for {} and means of {}",
                self.0.cell_scale.len(),
                self.0.n_genes()
            );
            return Err(exception(&Error::usage(complaint)));
        }
        Ok(n_cells)
    }
}

/// Whether the values of a chunk are what they should be, without doing anything with them: the kind they are kept in.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, source: &Source) -> PyResult<&'static str> {
    py.detach(|| {
        let mut kind = "float32";
        for_each_part(source, &mut |part| {
            if matches!(part.values(), ValuesRef::F64(_)) {
                kind = "float64";
            }
            Ok(())
        })?;
        Ok(kind)
    })
    .or_exception()
}
