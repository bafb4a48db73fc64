//! Rows of selected genes, and their scaled values, fast.

use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{GeneMap, Value, ValueKind};
use zheng17_core::{CsrBuffer, CsrView, Values, ValuesRef, with_values};

use crate::log1p::log1p;
use crate::packed::{ESCAPE, KeptChunk, PackedChunk};

/// Appends the chunk's cells with only the selected genes, renumbered; rows come out sorted.
pub(crate) fn select_into(chunk: CsrView<'_>, genes: &GeneMap, out: &mut CsrBuffer) {
    if chunk.values().kind() == ValueKind::F64 {
        out.values.widen();
    }
    let first_row = out.n_cells();
    match (chunk.values(), &mut out.values) {
        (ValuesRef::F32(from), Values::F32(to)) => select(chunk, from, genes, &mut out.indptr, &mut out.indices, to),
        (ValuesRef::F64(from), Values::F64(to)) => select(chunk, from, genes, &mut out.indptr, &mut out.indices, to),
        (ValuesRef::F32(from), Values::F64(to)) => {
            let wide: Vec<f64> = from.iter().map(|&x| f64::from(x)).collect();
            select(chunk, &wide, genes, &mut out.indptr, &mut out.indices, to);
        }
        (ValuesRef::F64(_), Values::F32(_)) => unreachable!("widened above"),
    }
    out.sort_rows_from(first_row);
}

/// Appends a kept chunk's cells with only the selected genes, renumbered; rows come out sorted.
pub fn select_kept_into(chunk: &KeptChunk, genes: &GeneMap, out: &mut CsrBuffer) {
    match (chunk, &mut out.values) {
        (KeptChunk::Rows(rows), _) => select_into(rows.view(), genes, out),
        (KeptChunk::Packed(packed), Values::F32(to)) => {
            select_packed(packed, genes, &mut out.indptr, &mut out.indices, to);
        }
        (KeptChunk::Packed(packed), Values::F64(to)) => {
            select_packed(packed, genes, &mut out.indptr, &mut out.indices, to);
        }
    }
}

fn select_packed<V: Value>(
    chunk: &PackedChunk,
    genes: &GeneMap,
    indptr: &mut Vec<u64>,
    indices_out: &mut Vec<u32>,
    values_out: &mut Vec<V>,
) {
    let new_index = genes.new_index();
    // As in `select`: every entry is written, and the place moves on only behind selected ones.
    let mut row_genes: Vec<u32> = Vec::new();
    let mut row_counts: Vec<u8> = Vec::new();
    for row in chunk.rows(0..chunk.n_cells()) {
        if row_genes.len() < row.steps.len() {
            row_genes.resize(row.steps.len(), 0);
            row_counts.resize(row.steps.len(), 0);
        }
        let mut kept = 0;
        let mut gene = 0;
        let mut long_steps = row.long_steps.iter();
        // The large counts of selected genes, in order.
        let mut large_counts = row.large_counts.iter();
        let mut kept_large: Vec<f32> = Vec::new();
        for (&step, &count) in row.steps.iter().zip(row.counts) {
            gene += match step {
                ESCAPE => long_steps.next().map_or(0, |&step| step as usize),
                step => usize::from(step),
            };
            let new = new_index[gene];
            row_genes[kept] = new;
            row_counts[kept] = count;
            let selected = new != GeneMap::NOT_SELECTED;
            kept += usize::from(selected);
            if count == ESCAPE {
                kept_large.extend(large_counts.next().filter(|_| selected));
            }
        }
        indices_out.extend_from_slice(&row_genes[..kept]);
        let mut kept_large = kept_large.into_iter();
        values_out.extend(row_counts[..kept].iter().map(|&count| {
            let count = if count == ESCAPE { kept_large.next().unwrap_or(0.0) } else { f32::from(count) };
            V::from_f64(f64::from(count))
        }));
        indptr.push(indices_out.len() as u64);
    }
}

fn select<V: Value>(
    chunk: CsrView<'_>,
    values: &[V],
    genes: &GeneMap,
    indptr: &mut Vec<u64>,
    indices_out: &mut Vec<u32>,
    values_out: &mut Vec<V>,
) {
    let new_index = genes.new_index();
    // Every entry is written, and the place moves on only behind selected ones: no branch to mispredict.
    let mut row_genes: Vec<u32> = Vec::new();
    let mut row_values: Vec<V> = Vec::new();
    for row in 0..chunk.n_cells() {
        let range = chunk.row_range(row);
        let (genes, values) = (&chunk.indices()[range.clone()], &values[range]);
        if row_genes.len() < genes.len() {
            row_genes.resize(genes.len(), 0);
            row_values.resize(genes.len(), V::from_f64(0.0));
        }
        let mut kept = 0;
        for (&gene, &value) in genes.iter().zip(values) {
            let new = new_index[gene as usize];
            row_genes[kept] = new;
            row_values[kept] = value;
            kept += usize::from(new != GeneMap::NOT_SELECTED);
        }
        indices_out.extend_from_slice(&row_genes[..kept]);
        values_out.extend_from_slice(&row_values[..kept]);
        indptr.push(indices_out.len() as u64);
    }
}

/// Writes the scaled values of a chunk of selected genes: dense rows of cells × genes.
pub(crate) fn affine_into(arch: pulp::Arch, chunk: CsrView<'_>, plan: &OutputPlan, out: &mut [f32]) {
    let zero_row: Vec<f32> = plan.zero_values().iter().map(|&y| y as f32).collect();
    let mut normalised = Vec::new();
    with_values!(chunk.values(), |values| {
        for (row, out_row) in out.chunks_exact_mut(chunk.n_genes().max(1)).take(chunk.n_cells()).enumerate() {
            out_row.copy_from_slice(&zero_row);
            let range = chunk.row_range(row);
            let scale = plan.cell_scale[chunk.first_cell() + row];
            normalise(arch, &values[range.clone()], scale, plan.log, &mut normalised);
            for (&gene, &value) in chunk.indices()[range].iter().zip(&normalised) {
                out_row[gene as usize] = plan.scaled(value, gene as usize) as f32;
            }
        }
    });
}

/// The normalised, perhaps logarithmised values of a row.
pub(crate) fn normalise<V: Value>(arch: pulp::Arch, values: &[V], scale: f64, log: bool, out: &mut Vec<f64>) {
    out.resize(values.len(), 0.0);
    arch.dispatch(Normalise { values, scale, log, out });
}

struct Normalise<'a, V> {
    values: &'a [V],
    scale: f64,
    log: bool,
    out: &'a mut [f64],
}

impl<V: Value> pulp::NullaryFnOnce for Normalise<'_, V> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { values, scale, log, out } = self;
        if log {
            for (out, &x) in out.iter_mut().zip(values) {
                *out = log1p(x.to_f64() * scale);
            }
        } else {
            for (out, &x) in out.iter_mut().zip(values) {
                *out = x.to_f64() * scale;
            }
        }
    }
}
