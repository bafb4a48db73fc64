//! Rows of selected genes, and their scaled values, fast.

use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{GeneMap, Value, ValueKind};
use zheng17_core::{CsrBuffer, CsrView, Values, ValuesRef, with_values};

use crate::kept::KeptChunk;
use crate::log1p::log1p;
use crate::packed::{ESCAPE, Escaped, PackedRows, count_escapes, sum_and_largest};

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
    let packed = match chunk {
        KeptChunk::Rows(rows) => return select_into(rows.view(), genes, out),
        KeptChunk::Packed(packed) => packed,
    };
    let arch = pulp::Arch::new();
    let rows = packed.rows(0..packed.n_cells());
    let (new_index, indptr, genes) = (genes.new_index(), &mut out.indptr, &mut out.indices);
    match &mut out.values {
        Values::F32(values) => arch.dispatch(SelectPacked { rows, new_index, indptr, genes, values }),
        Values::F64(values) => arch.dispatch(SelectPacked { rows, new_index, indptr, genes, values }),
    }
}

/// Appends the entries of selected genes.
struct SelectPacked<'a, 'b, V> {
    rows: PackedRows<'b>,
    new_index: &'a [u32],
    indptr: &'a mut Vec<u64>,
    genes: &'a mut Vec<u32>,
    values: &'a mut Vec<V>,
}

impl<V: Value> pulp::NullaryFnOnce for SelectPacked<'_, '_, V> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { mut rows, new_index, indptr, genes, values } = self;
        let selected = flags(new_index);
        let mut found: Vec<u64> = Vec::new();
        while let Some((row, escaped)) = rows.next() {
            if found.len() <= row.steps.len() {
                found.resize(row.steps.len() + 1, 0);
            }
            let n_found = find_selected_steps(row.steps, escaped, &selected, &mut found);
            let found = &found[..n_found];
            genes.extend(found.iter().map(|&entry| new_index[entry as u32 as usize]));
            let position = |&entry: &u64| (entry >> 32) as usize;
            if sum_and_largest(row.counts).1 < ESCAPE {
                values.extend(found.iter().map(|entry| V::from_f64(f64::from(row.counts[position(entry)]))));
            } else {
                // The large counts of genes that aren't selected are passed over.
                let mut rest = row.counts;
                let mut passed = 0;
                for entry in found {
                    let (before, from) = rest.split_at(position(entry) - passed);
                    escaped.counts.by_ref().take(count_escapes(before)).for_each(drop);
                    values.push(V::from_f64(f64::from(escaped.count(from[0]))));
                    rest = &from[1..];
                    passed = position(entry) + 1;
                }
                escaped.counts.by_ref().take(count_escapes(rest)).for_each(drop);
            }
            indptr.push(genes.len() as u64);
        }
    }
}

/// Finds the entries of selected genes: writes the position in the row, times 2^32, plus the gene. Gives their number.
#[inline(never)]
fn find_selected_steps(steps: &[u8], escaped: &mut Escaped<'_>, selected: &[u8], found: &mut [u64]) -> usize {
    let mut n_found = 0;
    let mut entry = 0_u64;
    for &step in steps {
        entry += u64::from(escaped.step(step));
        // As in `find_selected`: no branch to mispredict.
        found[n_found] = entry;
        n_found += usize::from(selected[entry as u32 as usize]);
        entry += 1 << 32;
    }
    n_found
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
    let selected = flags(new_index);
    let mut found: Vec<u32> = Vec::new();
    for row in 0..chunk.n_cells() {
        let range = chunk.row_range(row);
        let (genes, values) = (&chunk.indices()[range.clone()], &values[range]);
        if found.len() <= genes.len() {
            found.resize(genes.len() + 1, 0);
        }
        let n_found = find_selected(genes, &selected, &mut found);
        let found = found[..n_found].iter().map(|&at| at as usize);
        indices_out.extend(found.clone().map(|at| new_index[genes[at] as usize]));
        values_out.extend(found.map(|at| values[at]));
        indptr.push(indices_out.len() as u64);
    }
}

/// Finds the entries of selected genes: writes the position of each in the row, and gives their number.
#[inline(never)]
fn find_selected(genes: &[u32], selected: &[u8], found: &mut [u32]) -> usize {
    let mut n_found = 0;
    for (at, &gene) in genes.iter().enumerate() {
        // Every position is written, and the place moves on only behind selected ones: no branch to mispredict.
        found[n_found] = at as u32;
        n_found += usize::from(selected[gene as usize]);
    }
    n_found
}

/// Whether each gene is selected, in one byte: all of them fit into a near cache.
fn flags(new_index: &[u32]) -> Vec<u8> {
    new_index.iter().map(|&new| u8::from(new != GeneMap::NOT_SELECTED)).collect()
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
