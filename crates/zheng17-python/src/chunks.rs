//! The chunk functions of the recipe, for those who bring their own engine: summarise chunks, merge, plan, apply. Each works on one
//! chunk with one thread and knows nothing of the others.

use std::sync::Arc;

use numpy::{PyArray1, PyArray2, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sha2::{Digest as _, Sha256};
use zheng17_core::backend::{GRAM_BLOCK, Gram, Projection};
use zheng17_core::exact::{Arithmetic, CountSummary, GeneCounts, MomentPlan, MomentSummary};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{GeneMap, ValueKind};
use zheng17_core::recipe::pca;
use zheng17_core::recipe::{Components, plan};
use zheng17_core::source::CheckedSource;
use zheng17_core::{ChunkKernels as _, ChunkSource as _, CsrBuffer, CsrView, Error, Result, Shape};
use zheng17_kernels::{CountFolder, FastKernels, GramBlock, GramTotal, MomentFolder, Scores};

use crate::arrays::Copied;
use crate::errors::{OrException as _, exception, of_caller};
use crate::recipe::{Matrix, fill, scaled_f64, zeros};
use crate::sources::Source;

/// Cells of a matrix in memory that are worked on at a time: so few that they stay in the processor's cache.
const FEW_ROWS: usize = 256;

/// Exact sums over some cells: totals, and moments of shares. Summaries of different cells merge, in any order, to the same bits.
#[pyclass(frozen, module = "zheng17")]
pub(crate) struct Summary {
    pub(crate) sums: CountSummary,
    /// Entries that were summed into others of the same cell and gene.
    pub(crate) duplicates: u64,
}

#[pymethods]
impl Summary {
    /// The summary whose bytes these are.
    #[staticmethod]
    #[pyo3(signature = (bytes, duplicates=0))]
    fn from_bytes(bytes: &[u8], duplicates: u64) -> PyResult<Self> {
        Ok(Self { sums: CountSummary::from_bytes(bytes).or_exception()?, duplicates })
    }

    /// Bytes that are the same on every machine.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.sums.to_bytes()))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>, u64))> {
        let py = slf.py();
        Ok((slf.get_type().getattr("from_bytes")?, (slf.get().to_bytes(py), slf.get().duplicates)))
    }

    /// About how many bytes of memory it takes.
    fn __sizeof__(&self) -> usize {
        size_of::<GeneCounts>() * self.sums.n_genes() + size_of::<f64>() * self.sums.n_cells()
    }

    /// The summary of the cells of all of these.
    #[staticmethod]
    fn merge(py: Python<'_>, summaries: Vec<PyRef<'_, Summary>>) -> PyResult<Self> {
        let duplicates = summaries.iter().map(|summary| summary.duplicates).sum();
        let parts: Vec<&CountSummary> = summaries.iter().map(|summary| &summary.sums).collect();
        py.detach(|| {
            let (first, rest) = parts.split_first().ok_or_else(|| Error::usage("there is no summary to merge"))?;
            let mut sums = (*first).clone();
            rest.iter().try_for_each(|part| sums.merge((*part).clone()))?;
            Ok(Self { sums, duplicates })
        })
        .map_err(of_caller)
        .or_exception()
    }

    /// Whether the sums are the same, to the last bit.
    fn __eq__(&self, py: Python<'_>, other: &Self) -> bool {
        py.detach(|| self.duplicates == other.duplicates && self.sums.to_bytes() == other.sums.to_bytes())
    }

    /// SHA-256 of the bytes, in hexadecimal digits.
    #[getter]
    fn digest(&self, py: Python<'_>) -> String {
        py.detach(|| format!("{:x}", Sha256::digest(self.sums.to_bytes())))
    }

    /// Cells that were summarised.
    #[getter]
    fn n_cells(&self) -> usize {
        self.sums.n_cells()
    }

    /// Genes.
    #[getter]
    fn n_genes(&self) -> usize {
        self.sums.n_genes()
    }

    /// The total of each gene.
    #[getter]
    fn gene_totals<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_vec(py, plan::gene_totals(&self.sums))
    }

    /// The total of each cell that was summarised, in cell order.
    #[getter]
    fn cell_totals<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_iter(py, self.sums.seen_cell_totals())
    }

    /// Genes whose totals are fractions below 1, which cell totals must leave out: the cells have to be summarised again without
    /// them. `None` if there is none.
    fn genes_to_exclude<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<bool>>> {
        plan::genes_to_exclude(&self.sums).map(|flags| PyArray1::from_slice(py, &flags))
    }

    fn __repr__(&self) -> String {
        format!("Summary of {} cells x {} genes", self.sums.n_cells(), self.sums.n_genes())
    }
}

/// Exact moments of each gene over some cells, after they were scaled. They merge, in any order, to the same bits.
#[pyclass(frozen, module = "zheng17")]
pub(crate) struct Moments(pub(crate) MomentSummary);

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
        rest.iter().try_for_each(|part| merged.merge(&part.0)).map_err(of_caller).or_exception()?;
        Ok(Self(merged))
    }

    fn __repr__(&self) -> String {
        format!("Moments of {} genes over {} cells", self.0.genes().len(), self.0.n_cells())
    }
}

/// Visits the cells of a chunk, checked, a few at a time, each with its place in the whole matrix. Returns the number of entries
/// that were summed into others.
fn for_each_part(source: &Source, f: &mut dyn FnMut(CsrView<'_>) -> Result<()>) -> Result<u64> {
    for_each_rows(source, if source.in_memory { FEW_ROWS } else { GRAM_BLOCK }, f)
}

/// As [`for_each_part`], in the blocks that results depend on in their last bits.
fn for_each_block(source: &Source, f: &mut dyn FnMut(CsrView<'_>) -> Result<()>) -> Result<u64> {
    for_each_rows(source, GRAM_BLOCK, f)
}

fn for_each_rows(source: &Source, rows: usize, f: &mut dyn FnMut(CsrView<'_>) -> Result<()>) -> Result<u64> {
    let checked = CheckedSource::of_cells_from(source.first_cell, Arc::clone(&source.inner));
    let Shape { n_cells, n_genes } = checked.shape();
    let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
    let mut start = source.first_cell;
    while start < n_cells {
        // Parts end where blocks of the whole matrix end.
        let end = (start / rows * rows + rows).min(n_cells);
        checked.read_cells(start..end, &mut buffer)?;
        f(buffer.view())?;
        start = end;
    }
    Ok(checked.duplicates())
}

/// Sums over the cells of a chunk. `excluded` has a flag for each gene that cell totals leave out.
#[pyfunction]
#[pyo3(signature = (source, excluded=None))]
pub(crate) fn summarize(py: Python<'_>, source: &Source, excluded: Option<Copied<bool>>) -> PyResult<Summary> {
    let excluded: Option<Arc<[bool]>> = excluded.map(|flags| flags.values.into());
    let n_genes = source.inner.shape().n_genes;
    if excluded.as_ref().is_some_and(|flags| flags.len() != n_genes) {
        return Err(exception(&Error::usage("one flag for each gene is needed")));
    }
    py.detach(|| {
        let mut folder = CountFolder::new(n_genes, excluded);
        let duplicates = for_each_part(source, &mut |part| folder.fold(part))?;
        Ok(Summary { sums: folder.finish()?, duplicates })
    })
    .or_exception()
}

/// The chunk with only some genes, or all: row pointers, column indices, values.
#[pyfunction]
#[pyo3(signature = (source, genes=None))]
pub(crate) fn select<'py>(
    py: Python<'py>,
    source: &Source,
    genes: Option<Copied<i64>>,
) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i32>>, Bound<'py, PyAny>)> {
    let n_genes = source.inner.shape().n_genes;
    let genes: Vec<usize> = match genes {
        Some(genes) => genes.values.iter().map(|&gene| gene as usize).collect(),
        None => (0..n_genes).collect(),
    };
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
    cell_scale: Copied<f64>,
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
    let plan = MomentPlan { cell_scale: factors(source, cell_scale)?, arithmetic };
    py.detach(|| {
        let mut folder = MomentFolder::new(source.inner.shape().n_genes, &plan);
        for_each_part(source, &mut |part| folder.fold(local(source, part)))?;
        Ok(Moments(folder.finish()?))
    })
    .or_exception()
}

/// The factors of the cells of a chunk.
fn factors(source: &Source, cell_scale: Copied<f64>) -> PyResult<Arc<[f64]>> {
    let (found, wanted) = (cell_scale.values.len(), source.inner.shape().n_cells - source.first_cell);
    if found != wanted {
        return Err(exception(&Error::usage(format!("{found} factors for {wanted} cells"))));
    }
    Ok(cell_scale.values.into())
}

/// A part with its place in the chunk, for plans that have only the chunk's cells.
fn local<'a>(source: &Source, part: CsrView<'a>) -> CsrView<'a> {
    part.with_first_cell(part.first_cell() - source.first_cell)
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
        factors: Copied<f64>,
        log: bool,
        mean: Copied<f64>,
        std: Copied<f64>,
        max_value: Option<f64>,
    ) -> PyResult<Self> {
        if mean.values.len() != std.values.len() {
            return Err(exception(&Error::usage("one mean and one standard deviation for each gene is needed")));
        }
        let inverse = |&deviation: &f64| if deviation > 0.0 { 1.0 / deviation } else { 0.0 };
        Ok(Self(OutputPlan {
            cell_scale: factors.values.into(),
            log,
            mean: mean.values,
            inverse_deviation: std.values.iter().map(inverse).collect(),
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
                for_each_block(source, &mut |part| {
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
        products: Copied<f64>,
        sums: Copied<f64>,
        n_cells: usize,
        n_comps: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let n_genes = self.0.n_genes();
        if products.shape != [n_genes, n_genes] || sums.values.len() != n_genes {
            return Err(exception(&Error::usage(format!("products of {n_genes} genes are needed"))));
        }
        let gram = Gram { n_genes, products: products.values, sums: sums.values };
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
        loadings: Copied<f64>,
        offset: Copied<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let n_components = offset.values.len();
        if loadings.shape != [self.0.n_genes(), n_components] {
            return Err(exception(&Error::usage(
                "loadings are genes x components, and offsets one for each component",
            )));
        }
        let projection = Projection { n_components, weights: loadings.values, offset: offset.values };
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
