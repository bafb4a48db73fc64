//! Sources that are stored by genes: totals and moments gene by gene, and the selected genes alone put into rows of cells. The
//! whole is never transposed.

use std::ops::Range;
use std::sync::Arc;

use zheng17_core::exact::{CountFacts, CountSummary, GeneCounts, fixed_total, share, share_weight, total_from_fixed};
use zheng17_core::matrix::{ValueKind, Values};
use zheng17_core::source::{LARGEST_COUNT, place};
use zheng17_core::{ChunkSource, Context, CsrBuffer, Error, Result, Shape};

use crate::graph::Node;
use crate::session::Session;

/// Entries that are read at once, about.
const PIECE_ENTRIES: u64 = 1 << 18;

/// Bytes of a gathered entry: gene and value, which may need 64 bits.
const ENTRY_BYTES: u64 = 12;

/// The exact sums of all cells and genes, in two readings: totals of cells, then the shares in them, gene by gene.
pub(crate) fn count_summary(
    session: &Session,
    source: &dyn ChunkSource,
    excluded: Option<&Arc<[bool]>>,
    ctx: &Context,
) -> Result<CountSummary> {
    let Shape { n_cells, n_genes } = source.shape();
    let counts = |gene: usize| excluded.is_none_or(|flags| !flags[gene]);
    let pieces = pieces(source);
    // Progress counts cells; they are finished when the second reading is.
    let silent = Context { progress: Arc::new(zheng17_core::context::NoProgress), ..ctx.clone() };

    let sums = session.workers.fold(
        pieces.len(),
        &silent,
        &|| (vec![0_u128; n_cells], CsrBuffer::new(0, ValueKind::F32)),
        &|(totals, genes), at| {
            read(session, source, pieces[at].clone(), genes)?;
            for_each_entry(genes, &mut |gene, cell, x| {
                if counts(gene) {
                    totals[cell] += fixed_total(x);
                }
            });
            Ok(0)
        },
    )?;
    let mut sums = sums.into_iter().map(|(totals, _)| totals);
    let mut fixed = sums.next().unwrap_or_else(|| vec![0; n_cells]);
    for more in sums {
        fixed.iter_mut().zip(more).for_each(|(to, from)| *to += from);
    }
    let totals: Vec<f64> = fixed.into_iter().map(total_from_fixed).collect();
    if let Some(cell) = totals.iter().position(|&total| total > LARGEST_COUNT) {
        let cell_place = place("cell", cell, source.cell_name(cell));
        return Err(Error::input(format!("{cell_place}: its total of {:e} is above 2^53", totals[cell])));
    }
    let weights: Vec<f64> = totals.iter().map(|&total| share_weight(total)).collect();

    let folded = session.workers.fold(
        pieces.len(),
        &silent,
        &|| (Vec::new(), CountFacts::default(), CsrBuffer::new(0, ValueKind::F32)),
        &|(found, facts, genes): &mut (Vec<(usize, GeneCounts)>, CountFacts, CsrBuffer), at| {
            read(session, source, pieces[at].clone(), genes)?;
            let first = pieces[at].start;
            let mut sums = vec![GeneCounts::default(); pieces[at].len()];
            for_each_entry(genes, &mut |gene, cell, x| {
                let sums = &mut sums[gene - first];
                sums.total += fixed_total(x);
                if counts(gene) {
                    let q = u128::from(share(x, weights[cell]));
                    sums.sum += q;
                    sums.sum_of_squares += q * q;
                }
                facts.n_entries += 1;
                facts.n_fractional += u64::from(x.fract() != 0.0);
                facts.largest = facts.largest.max(x);
            });
            found.extend(pieces[at].clone().zip(sums));
            Ok(0)
        },
    )?;
    let mut genes = vec![GeneCounts::default(); n_genes];
    let mut summary = CountSummary::new(n_genes, excluded.cloned());
    let nothing = vec![GeneCounts::default(); n_genes];
    for (found, facts, _) in folded {
        for (gene, sums) in found {
            genes[gene] = sums;
        }
        summary.add(0, Vec::new(), &nothing, &facts)?;
    }
    summary.add(0, totals, &genes, &CountFacts::default())?;
    ctx.progress.advance(n_cells);
    Ok(summary)
}

/// Puts the selected genes of a source into rows of cells, as chunks that the node keeps: some cells at a time, as many as
/// memory has room for.
pub(crate) fn keep_selected(node: &Node, source: &dyn ChunkSource, genes: &[usize], ctx: &Context) -> Result<()> {
    let session = &node.session;
    let n_cells = node.shape.n_cells;
    let silent = Context { progress: Arc::new(zheng17_core::context::NoProgress), ..ctx.clone() };
    let mut row_starts = vec![0_u64; n_cells + 1];
    in_order(session, source, genes, &silent, &mut |_, cells, _| {
        for &cell in cells {
            row_starts[cell as usize + 1] += 1;
        }
    })?;
    for cell in 0..n_cells {
        row_starts[cell + 1] += row_starts[cell];
    }
    let chunk_rows = session.chunk_rows();
    let room = (session.keeper().budget.limit() / 2 / ENTRY_BYTES).max(1);
    let mut start = 0;
    while start < n_cells {
        // Whole chunks, at least one.
        let mut end = (start + chunk_rows).min(n_cells);
        while end < n_cells && row_starts[(end + chunk_rows).min(n_cells)] - row_starts[start] <= room {
            end = (end + chunk_rows).min(n_cells);
        }
        keep_band(node, source, genes, start..end, &row_starts, &silent)?;
        start = end;
    }
    Ok(())
}

/// Gathers the selected genes of some cells and offers their chunks to be kept.
fn keep_band(
    node: &Node,
    source: &dyn ChunkSource,
    genes: &[usize],
    band: Range<usize>,
    row_starts: &[u64],
    ctx: &Context,
) -> Result<()> {
    let base = row_starts[band.start];
    let n_entries = (row_starts[band.end] - base) as usize;
    let mut next: Vec<u64> = row_starts[band.clone()].iter().map(|start| start - base).collect();
    let mut indices = vec![0_u32; n_entries];
    let mut values = Values::F32(vec![0.0; n_entries]);
    in_order(&node.session, source, genes, ctx, &mut |gene, cells, found| {
        if found.kind() == ValueKind::F64 {
            values.widen();
        }
        for (at, &cell) in cells.iter().enumerate() {
            let cell = cell as usize;
            if !band.contains(&cell) {
                continue;
            }
            let next = &mut next[cell - band.start];
            let to = *next as usize;
            *next += 1;
            indices[to] = gene as u32;
            match &mut values {
                Values::F32(values) => values[to] = found.get(at) as f32,
                Values::F64(values) => values[to] = found.get(at),
            }
        }
    })?;
    let indptr = row_starts[band.start..=band.end].iter().map(|start| start - base).collect();
    let rows = CsrBuffer { first_cell: band.start, n_genes: genes.len(), indptr, indices, values };
    node.keep_rows(rows.view());
    Ok(())
}

/// Shows the cells and values of selected genes, gene by gene, each by its place among the selected; reads several at once.
fn in_order(
    session: &Session,
    source: &dyn ChunkSource,
    genes: &[usize],
    ctx: &Context,
    see: &mut (dyn FnMut(usize, &[u32], zheng17_core::ValuesRef<'_>) + Send),
) -> Result<()> {
    session.workers.in_turn(
        genes.len(),
        ctx,
        &|| CsrBuffer::new(0, ValueKind::F32),
        &|gene, at| read(session, source, genes[at]..genes[at] + 1, gene),
        &mut |gene, at| {
            see(at, &gene.indices, gene.values.as_ref());
            Ok(0)
        },
    )
}

fn read(session: &Session, source: &dyn ChunkSource, genes: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
    source.read_genes(genes, out)?;
    session.count_reading(0, out.indices.len());
    Ok(())
}

/// Gene, cell and value of all entries.
fn for_each_entry(genes: &CsrBuffer, see: &mut dyn FnMut(usize, usize, f64)) {
    let view = genes.view();
    for row in 0..view.n_cells() {
        let values = view.row_values(row);
        for (at, &cell) in view.row_indices(row).iter().enumerate() {
            see(view.first_cell() + row, cell as usize, values.get(at));
        }
    }
}

/// Ranges of genes with about [`PIECE_ENTRIES`] entries.
fn pieces(source: &dyn ChunkSource) -> Vec<Range<usize>> {
    let Shape { n_cells, n_genes } = source.shape();
    let n_entries = source.n_entries().unwrap_or(n_cells as u64 * n_genes as u64);
    let of_a_gene = n_entries.div_ceil(n_genes.max(1) as u64).max(1);
    let step = (PIECE_ENTRIES / of_a_gene).max(1) as usize;
    (0..n_genes).step_by(step).map(|first| first..(first + step).min(n_genes)).collect()
}
