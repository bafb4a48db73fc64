//! The single steps of `zheng17.pp`: sums of genes and cells, factors, logarithms, scaling, scores, principal components.
//!
//! Each goes over blocks of cells on several threads and takes what they give in cell order, so that the result does not depend
//! on the number of threads. Steps that need counts read them checked; the others take any numbers.

use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use numpy::{Element, PyArray1, PyArray2, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use zheng17_core::backend::operations::ReductionSums;
use zheng17_core::backend::{Axis, GRAM_BLOCK, Reduction, Statistic};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::log1p::log1p;
use zheng17_core::matrix::{Value, ValueKind};
use zheng17_core::recipe::params::{Cutoff, RecipeVersion};
use zheng17_core::recipe::{Components, pca, plan, score};
use zheng17_core::source::{CheckedSource, place};
use zheng17_core::{ChunkSource, Context, CsrBuffer, CsrView, Error, Result, Shape};
use zheng17_kernels::{GramBlock, GramTotal, Scores};

use crate::arrays::{Copied, Numbers, Positions};
use crate::call::{Limits, interruptible};
use crate::errors::{OrException as _, exception};
use crate::recipe::{Matrix, fill, zeros};
use crate::sources::Source;

/// Cells of a block: fixed, so that sums have the same bits with any number of threads.
const ROWS: usize = GRAM_BLOCK;

/// Values of a block, where there are no cells.
const VALUES: usize = 1 << 20;

/// Most genes whose products are made: the work grows with the cube of their number.
const MOST_GENES: usize = 10_000;

const ANY_LIMITS: Limits = Limits { threads: None, memory: None, chunk_rows: None };

/// Does work on each of some blocks, as many at a time as there are threads, and takes the results in order.
fn for_blocks<S: Send, T: Send>(
    ctx: &Context,
    blocks: impl Iterator<Item = S>,
    work: impl Fn(S) -> Result<T> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut blocks = blocks.peekable();
    while blocks.peek().is_some() {
        ctx.check_cancelled()?;
        let results: Vec<Result<T>> = thread::scope(|scope| {
            let work = &work;
            let running: Vec<_> =
                blocks.by_ref().take(ctx.threads.get()).map(|block| scope.spawn(move || work(block))).collect();
            running
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| Err(Error::internal("a fault of zheng17: a thread panicked")))
                })
                .collect()
        });
        for result in results {
            take(result?)?;
        }
    }
    Ok(())
}

fn ranges(len: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(step).map(move |start| start..(start + step).min(len))
}

/// Reads some cells, checked only for indices that are out of range.
fn read<'a>(source: &dyn ChunkSource, cells: Range<usize>, buffer: &'a mut CsrBuffer) -> Result<CsrView<'a>> {
    source.read_cells(cells, buffer)?;
    let CsrBuffer { first_cell, n_genes, indptr, indices, values } = buffer;
    CsrView::checked(*first_cell, *n_genes, indptr, indices, values.as_ref()).map_err(|error| error.at(source.name()))
}

/// The source, checked for counts if they are needed.
fn opened(source: &Source, counts: bool) -> Arc<dyn ChunkSource> {
    let inner = Arc::clone(&source.inner);
    if counts { Arc::new(CheckedSource::of_part(inner)) } else { inner }
}

/// Sums of each gene.
struct GeneSums {
    totals: Vec<f64>,
    means: Vec<f64>,
    variances: Vec<f64>,
    n_positive: Vec<u64>,
}

fn gene_sums(source: &dyn ChunkSource, ctx: &Context) -> Result<GeneSums> {
    let shape = source.shape();
    let wanted = [Statistic::Sum, Statistic::Mean, Statistic::Variance]
        .map(|statistic| Reduction { axis: Axis::Genes, statistic });
    let mut sums = ReductionSums::new(shape, &wanted);
    let mut n_positive = vec![0; shape.n_genes];
    let of_block = |cells: Range<usize>| {
        let mut buffer = CsrBuffer::new(shape.n_genes, ValueKind::F32);
        let chunk = read(source, cells, &mut buffer)?;
        let mut sums = ReductionSums::new(shape, &wanted);
        sums.fold(chunk);
        let mut positive = vec![0_u64; shape.n_genes];
        for (at, &gene) in chunk.indices().iter().enumerate() {
            positive[gene as usize] += u64::from(chunk.values().get(at) > 0.0);
        }
        Ok((sums, positive))
    };
    for_blocks(ctx, ranges(shape.n_cells, ROWS), of_block, |(block, positive)| {
        sums.merge(block);
        for (to, from) in n_positive.iter_mut().zip(positive) {
            *to += from;
        }
        Ok(())
    })?;
    let mut results = sums.finish().into_iter();
    let (Some(totals), Some(means), Some(variances)) = (results.next(), results.next(), results.next()) else {
        return Err(Error::internal("a sum without a result"));
    };
    Ok(GeneSums { totals, means, variances, n_positive })
}

/// Total, mean and variance (ddof 1) over the cells, and the number of cells with a value above 0, of each gene: a dict of arrays.
///
/// With `counts` the values must be finite and not negative.
#[pyfunction]
pub(crate) fn gene_statistics<'py>(py: Python<'py>, source: &Source, counts: bool) -> PyResult<Bound<'py, PyDict>> {
    let source = opened(source, counts);
    let sums = interruptible(py, &ANY_LIMITS, None, move |ctx| gene_sums(&source, ctx))?;
    let dict = PyDict::new(py);
    dict.set_item("totals", PyArray1::from_vec(py, sums.totals))?;
    dict.set_item("means", PyArray1::from_vec(py, sums.means))?;
    dict.set_item("variances", PyArray1::from_vec(py, sums.variances))?;
    dict.set_item("n_positive", PyArray1::from_vec(py, sums.n_positive))?;
    Ok(dict)
}

/// The total of each cell, and their median over the cells that have one; `None` if none has.
///
/// With `max_fraction` also a flag for each gene that has more than this share of a cell's total somewhere; the totals are then
/// without such genes.
#[pyfunction]
#[pyo3(signature = (source, max_fraction=None))]
pub(crate) fn cell_totals<'py>(
    py: Python<'py>,
    source: &Source,
    max_fraction: Option<f64>,
) -> PyResult<(Bound<'py, PyArray1<f64>>, Option<f64>, Option<Bound<'py, PyArray1<bool>>>)> {
    let source = opened(source, true);
    let (totals, excluded) = interruptible(py, &ANY_LIMITS, None, move |ctx| {
        let totals = totals_without(&source, ctx, None)?;
        let Some(max_fraction) = max_fraction else {
            return Ok((totals, None));
        };
        let excluded = highly_expressed(&source, ctx, &totals, max_fraction)?;
        Ok((totals_without(&source, ctx, Some(&excluded))?, Some(excluded)))
    })?;
    let any = totals.iter().any(|&total| total > 0.0);
    let median = any.then(|| plan::target_sum(totals.iter().copied(), |x| x));
    Ok((PyArray1::from_vec(py, totals), median, excluded.map(|flags| PyArray1::from_vec(py, flags))))
}

fn totals_without(source: &dyn ChunkSource, ctx: &Context, excluded: Option<&[bool]>) -> Result<Vec<f64>> {
    let Shape { n_cells, n_genes } = source.shape();
    let mut totals = Vec::with_capacity(n_cells);
    let of_block = |cells: Range<usize>| {
        let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
        let chunk = read(source, cells, &mut buffer)?;
        let total = |row: usize| -> f64 {
            let values = chunk.row_values(row);
            let entries = chunk.row_indices(row).iter().enumerate();
            let wanted = entries.filter(|(_, gene)| excluded.is_none_or(|flags| !flags[**gene as usize]));
            wanted.map(|(at, _)| values.get(at)).sum()
        };
        Ok((0..chunk.n_cells()).map(total).collect::<Vec<f64>>())
    };
    for_blocks(ctx, ranges(n_cells, ROWS), of_block, |block| {
        totals.extend(block);
        Ok(())
    })?;
    Ok(totals)
}

fn highly_expressed(source: &dyn ChunkSource, ctx: &Context, totals: &[f64], max_fraction: f64) -> Result<Vec<bool>> {
    let Shape { n_cells, n_genes } = source.shape();
    let mut flags = vec![false; n_genes];
    let of_block = |cells: Range<usize>| {
        let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
        let chunk = read(source, cells, &mut buffer)?;
        let mut found = Vec::new();
        for row in 0..chunk.n_cells() {
            let most = max_fraction * totals[chunk.first_cell() + row];
            let values = chunk.row_values(row);
            let entries = chunk.row_indices(row).iter().enumerate();
            found.extend(entries.filter(|(at, _)| values.get(*at) > most).map(|(_, &gene)| gene));
        }
        Ok(found)
    };
    for_blocks(ctx, ranges(n_cells, ROWS), of_block, |found| {
        for gene in found {
            flags[gene as usize] = true;
        }
        Ok(())
    })?;
    Ok(flags)
}

/// Changes values into a new array, block by block. `block_ends` is where blocks end; `change` gets the number of the block, where
/// it starts, its values and where results go.
fn changed<V: Value + Element>(
    ctx: &Context,
    values: &[V],
    block_ends: &[usize],
    change: impl Fn(usize, usize, &[V], &mut [V]) + Sync,
) -> Result<Py<PyArray2<V>>> {
    let array = zeros::<V>([1, values.len()])?;
    fill(&array, |mut out| {
        let mut start = 0;
        let blocks = block_ends.iter().enumerate().map(|(at, &end)| {
            let (block, rest) = std::mem::take(&mut out).split_at_mut(end - start);
            out = rest;
            let begun = std::mem::replace(&mut start, end);
            (at, begun, &values[begun..end], block)
        });
        for_blocks(
            ctx,
            blocks,
            |(at, start, from, to)| {
                change(at, start, from, to);
                Ok(())
            },
            |()| Ok(()),
        )
    })?;
    Ok(array)
}

fn ends(len: usize) -> Vec<usize> {
    ranges(len, VALUES).map(|range| range.end).collect()
}

/// Does something with the values of an array of 32 or 64-bit floats.
macro_rules! with_floats {
    ($values:expr, |$slice:ident| $body:expr) => {
        match $values {
            Numbers::F32(borrowed) => {
                let $slice = borrowed.slice();
                Ok(Matrix::F32($body?))
            }
            Numbers::F64(borrowed) => {
                let $slice = borrowed.slice();
                Ok(Matrix::F64($body?))
            }
            _ => Err(Error::usage("values must be floats of 32 or 64 bits")),
        }
    };
}

/// log(1 + x) of floats, over log(base) if there is a base: a new array of the same type, in one row.
#[pyfunction]
#[pyo3(signature = (values, base=None))]
pub(crate) fn log1p_values<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    base: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let values = Numbers::of(values)?;
    let divisor = base.map(f64::ln);
    let logs = interruptible(py, &ANY_LIMITS, None, move |ctx| {
        let ends = ends(values.len());
        with_floats!(&values, |slice| changed(ctx, slice, &ends, |_, _, from, to| {
            for (to, from) in to.iter_mut().zip(from) {
                let log = log1p(from.to_f64());
                *to = Value::from_f64(divisor.map_or(log, |divisor| log / divisor));
            }
        }))
    })?;
    Ok(logs.into_any(py))
}

/// The values of cells times the factor of each: a new array of the same type, in one row. `rows` are row pointers, or the number
/// of values that each cell has.
#[pyfunction]
pub(crate) fn scale_cells<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    rows: &Bound<'py, PyAny>,
    factors: Copied<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let values = Numbers::of(values)?;
    let factors: Vec<f64> = factors.values;
    let n_cells = factors.len();
    let pointers: Vec<usize> = if let Ok(width) = rows.extract::<usize>() {
        (0..=n_cells).map(|row| row * width).collect()
    } else {
        let rows = Positions::of(rows)?;
        (0..rows.len()).map(|row| rows.get(row).map(|at| at as usize)).collect::<Result<_>>().or_exception()?
    };
    let fits = pointers.len() == n_cells + 1 && pointers.is_sorted() && pointers.last() == Some(&values.len());
    if !fits || pointers[0] != 0 {
        return Err(exception(&Error::usage("values, rows and factors don't belong together")));
    }
    let scaled = interruptible(py, &ANY_LIMITS, None, move |ctx| {
        let ends: Vec<usize> = ranges(n_cells, ROWS).map(|cells| pointers[cells.end]).collect();
        with_floats!(&values, |slice| changed(ctx, slice, &ends, |block, start, from, to| {
            let cells = block * ROWS..((block + 1) * ROWS).min(n_cells);
            for cell in cells {
                let range = pointers[cell] - start..pointers[cell + 1] - start;
                for (to, from) in to[range.clone()].iter_mut().zip(&from[range]) {
                    *to = Value::from_f64(from.to_f64() * factors[cell]);
                }
            }
        }))
    })?;
    Ok(scaled.into_any(py))
}

/// The values of entries over the divisor of each one's gene, but at most `max_value`: a new array of the same type, in one row.
#[pyfunction]
#[pyo3(signature = (values, genes, divisors, max_value=None))]
pub(crate) fn divide_genes<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyAny>,
    genes: &Bound<'py, PyAny>,
    divisors: Copied<f64>,
    max_value: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let values = Numbers::of(values)?;
    let mut of_entry = Vec::new();
    let genes = Positions::of(genes)?;
    genes.append(0..genes.len(), &mut of_entry).or_exception()?;
    let divisors: Vec<f64> = divisors.values;
    if of_entry.len() != values.len() || of_entry.iter().any(|&gene| gene as usize >= divisors.len()) {
        return Err(exception(&Error::usage("values, genes and divisors don't belong together")));
    }
    let divided = interruptible(py, &ANY_LIMITS, None, move |ctx| {
        let ends = ends(values.len());
        with_floats!(&values, |slice| changed(ctx, slice, &ends, |_, start, from, to| {
            for ((to, from), &gene) in to.iter_mut().zip(from).zip(&of_entry[start..]) {
                let divided = from.to_f64() / divisors[gene as usize];
                *to = Value::from_f64(max_value.map_or(divided, |most| divided.min(most)));
            }
        }))
    })?;
    Ok(divided.into_any(py))
}

/// Genes centred and divided by their standard deviations, perhaps clipped on both sides: dense, cells × genes.
#[pyfunction]
#[pyo3(signature = (source, mean, std, max_value=None, float64=false))]
pub(crate) fn standardise<'py>(
    py: Python<'py>,
    source: &Source,
    mean: Copied<f64>,
    std: Copied<f64>,
    max_value: Option<f64>,
    float64: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let source = Arc::clone(&source.inner);
    let n_genes = source.shape().n_genes;
    let (mean, std) = (mean.values, std.values);
    if mean.len() != n_genes || std.len() != n_genes {
        return Err(exception(&Error::usage(format!(
            "one mean and one standard deviation for each of {n_genes} genes"
        ))));
    }
    if max_value.is_some_and(|most| most.is_nan() || most < 0.0) {
        return Err(exception(&Error::usage("max_value must not be negative")));
    }
    let inverse_deviation = std.iter().map(|std| 1.0 / std).collect();
    let output = OutputPlan { cell_scale: Arc::from([]), log: false, mean, inverse_deviation, max_value };
    let scaled = interruptible(py, &ANY_LIMITS, None, move |ctx| {
        if float64 {
            standardised::<f64>(&source, ctx, &output).map(Matrix::F64)
        } else {
            standardised::<f32>(&source, ctx, &output).map(Matrix::F32)
        }
    })?;
    Ok(scaled.into_any(py))
}

fn standardised<V: Value + Element>(
    source: &dyn ChunkSource,
    ctx: &Context,
    output: &OutputPlan,
) -> Result<Py<PyArray2<V>>> {
    let Shape { n_cells, n_genes } = source.shape();
    let zero_values: Vec<V> = output.zero_values().into_iter().map(V::from_f64).collect();
    let array = zeros::<V>([n_cells, n_genes])?;
    let of_block = |(cells, out): (Range<usize>, &mut [V])| {
        let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
        let chunk = read(source, cells, &mut buffer)?;
        for (row, out) in out.chunks_exact_mut(n_genes).enumerate() {
            out.copy_from_slice(&zero_values);
            let values = chunk.row_values(row);
            for (at, &gene) in chunk.row_indices(row).iter().enumerate() {
                out[gene as usize] = V::from_f64(output.scaled(values.get(at), gene as usize));
            }
        }
        Ok(())
    };
    fill(&array, |out| {
        let blocks = ranges(n_cells, ROWS).zip(out.chunks_mut((ROWS * n_genes).max(1)));
        for_blocks(ctx, blocks, of_block, |()| Ok(()))
    })?;
    Ok(array)
}

/// Dispersions, scores and the selection from means and variances of genes: a dict of arrays.
///
/// With `absolute` as the recipe has it: by the absolute value of the score, and just as many genes. Without as
/// `scanpy.pp.highly_variable_genes` has it: by the score with its sign, and all genes that are as good as the last. Without
/// `n_top_genes` none is selected.
#[pyfunction]
#[pyo3(signature = (means, variances, n_top_genes, absolute))]
pub(crate) fn score_genes(
    py: Python<'_>,
    means: Copied<f64>,
    variances: Copied<f64>,
    n_top_genes: Option<usize>,
    absolute: bool,
) -> PyResult<Bound<'_, PyDict>> {
    const SIGNED: RecipeVersion = RecipeVersion {
        name: "scanpy.pp.highly_variable_genes",
        signed_score: true,
        cutoff: Cutoff::Nth,
        ..RecipeVersion::EXACT
    };
    let version = if absolute { RecipeVersion::EXACT } else { SIGNED };
    let (means, variances) = (means.values, variances.values);
    if means.len() != variances.len() || means.is_empty() {
        return Err(exception(&Error::usage("one mean and one variance for each gene is needed")));
    }
    let (scores, selected, mut warnings) = py
        .detach(|| {
            let scores = score::score(&version, &means, &variances)?;
            let (selected, warnings) = match n_top_genes {
                Some(n_top_genes) => score::select(&version, &scores.scores, n_top_genes)?,
                None => Default::default(),
            };
            Ok((scores, selected, warnings.iter().map(ToString::to_string).collect::<Vec<_>>()))
        })
        .or_exception()?;
    if scores.collapsed_edges > 0 {
        let collapsed = zheng17_core::recipe::Warning::CollapsedEdges { collapsed: scores.collapsed_edges };
        warnings.push(collapsed.to_string());
    }
    let mut flags = vec![false; means.len()];
    for gene in selected {
        flags[gene] = true;
    }
    let dict = PyDict::new(py);
    dict.set_item("dispersions", PyArray1::from_vec(py, scores.dispersions))?;
    dict.set_item("scores", PyArray1::from_vec(py, scores.scores))?;
    dict.set_item("selected", PyArray1::from_vec(py, flags))?;
    dict.set_item("warnings", warnings)?;
    Ok(dict)
}

/// Principal components of centred genes, of all cells: a dict with `scores` (cells × components), `loadings` (genes × components),
/// `variance` and `variance_ratio`.
#[pyfunction]
pub(crate) fn principal_components<'py>(
    py: Python<'py>,
    source: &Source,
    n_comps: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let source = Arc::clone(&source.inner);
    let Shape { n_cells, n_genes } = source.shape();
    if n_genes > MOST_GENES {
        return Err(exception(&Error::usage(format!(
            "exact components of {n_genes} genes need all their products; at most {MOST_GENES} genes are taken. \
             mask_var chooses genes, and scanpy.pp.pca approximates"
        ))));
    }
    let (scores, pca) = interruptible(py, &ANY_LIMITS, None, move |ctx| {
        let (n_components, _) = pca::number_of_components(Components::Exactly(n_comps), n_cells, n_genes)?;
        let sums = gene_sums(&source, ctx)?;
        if let Some(gene) = sums.variances.iter().position(|variance| !variance.is_finite()) {
            let gene = place("gene", gene, source.gene_name(gene));
            let complaint = format!("{gene} has values that are not finite, of which there are no components");
            return Err(Error::input(complaint).at(source.name()));
        }
        let output = OutputPlan {
            cell_scale: repeat_n(1.0, n_cells).collect(),
            log: false,
            mean: sums.means,
            inverse_deviation: vec![1.0; n_genes],
            // No clip in effect; it says that variances are to be found, for genes that are not of variance 1.
            max_value: Some(f64::MAX),
        };
        let of_block = |cells: Range<usize>| {
            let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
            let mut block = GramBlock::new(&output);
            block.add(read(&source, cells, &mut buffer)?, &output);
            block.multiply();
            Ok(block)
        };
        let mut total = GramTotal::new(&output);
        for_blocks(ctx, ranges(n_cells, ROWS), of_block, |block| {
            total.add(&block);
            Ok(())
        })?;
        ctx.check_cancelled()?;
        let pca = pca::principal_components(&total.finish(), &output, n_cells, n_components)?;
        let projection = pca.projection();
        let to_scores = Scores::new(&projection, &output);
        let mut scores = Vec::with_capacity(n_cells * n_components);
        let of_block = |cells: Range<usize>| {
            let mut buffer = CsrBuffer::new(n_genes, ValueKind::F32);
            let mut rows = Vec::new();
            to_scores.of(read(&source, cells, &mut buffer)?, &mut rows);
            Ok(rows)
        };
        for_blocks(ctx, ranges(n_cells, ROWS), of_block, |rows| {
            scores.extend(rows);
            Ok(())
        })?;
        Ok((scores, pca))
    })?;
    let dict = PyDict::new(py);
    dict.set_item("scores", PyArray1::from_vec(py, scores).reshape([n_cells, pca.n_components])?)?;
    dict.set_item("loadings", PyArray1::from_vec(py, pca.loadings).reshape([n_genes, pca.n_components])?)?;
    dict.set_item("variance", PyArray1::from_vec(py, pca.variances))?;
    dict.set_item("variance_ratio", PyArray1::from_vec(py, pca.variance_ratios))?;
    Ok(dict)
}
