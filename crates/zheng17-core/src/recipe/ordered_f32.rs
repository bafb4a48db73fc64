//! The arithmetic of scanpy 1.4.0 to 1.4.4: 32-bit sums in cell order. They can't be merged, so this is a fold over all cells.

use std::sync::Arc;

use super::plan::GeneStatistics;
use super::score::median;
use crate::backend::SparseBackend;
use crate::context::Context;
use crate::error::Result;
use crate::matrix::CsrView;

/// The total of each cell in 32 bits, over genes that are not excluded, as numpy's `add.reduceat` sums them.
pub(super) fn cell_totals<B: SparseBackend>(
    backend: &B,
    matrix: &B::Matrix,
    excluded: Option<&Arc<[bool]>>,
    ctx: &Context,
) -> Result<Vec<f32>> {
    let mut totals = Vec::with_capacity(backend.shape(matrix).n_cells);
    backend.visit(matrix, ctx, &mut |chunk| {
        for row in 0..chunk.n_cells() {
            let values: Vec<f32> = sorted_row(chunk, row, excluded).into_iter().map(|entry| entry.1).collect();
            totals.push(match values.split_first() {
                Some((first, rest)) => first + pairwise_sum(rest),
                None => 0.0,
            });
        }
        Ok(())
    })?;
    Ok(totals)
}

/// Statistics of the genes over cells whose totals are given, all at least 1.
pub(super) fn statistics<B: SparseBackend>(
    backend: &B,
    matrix: &B::Matrix,
    totals: &[f32],
    kept: &[usize],
    ctx: &Context,
) -> Result<GeneStatistics> {
    let single = |x: f64| f64::from(x as f32);
    let target = median(&mut totals.iter().map(|&total| f64::from(total)).collect::<Vec<_>>(), single) as f32;
    let n = totals.len() as f64;
    let one_over_n = (1.0 / n) as f32;
    let mut sums = vec![(0.0_f32, 0.0_f32); backend.shape(matrix).n_genes];
    backend.visit(matrix, ctx, &mut |chunk| {
        for row in 0..chunk.n_cells() {
            let factor = 1.0 / (totals[chunk.first_cell() + row] / target);
            let values = chunk.row_values(row);
            for (at, &gene) in chunk.row_indices(row).iter().enumerate() {
                let value = values.get(at) as f32 * factor;
                let (mean, mean_square) = &mut sums[gene as usize];
                *mean += value * one_over_n;
                *mean_square += value * value * one_over_n;
            }
        }
        Ok(())
    })?;
    let correction = (n / (n - 1.0)) as f32;
    let (means, variances) = kept
        .iter()
        .map(|&gene| {
            let (mean, mean_square) = sums[gene];
            (f64::from(mean), f64::from((mean_square - mean * mean) * correction))
        })
        .unzip();
    Ok(GeneStatistics { target_sum: f64::from(target), means, variances })
}

fn sorted_row(chunk: CsrView<'_>, row: usize, excluded: Option<&Arc<[bool]>>) -> Vec<(u32, f32)> {
    let values = chunk.row_values(row);
    let mut entries: Vec<(u32, f32)> = chunk
        .row_indices(row)
        .iter()
        .enumerate()
        .filter(|(_, gene)| excluded.is_none_or(|flags| !flags[**gene as usize]))
        .map(|(at, &gene)| (gene, values.get(at) as f32))
        .collect();
    entries.sort_by_key(|entry| entry.0);
    entries
}

/// numpy's pairwise summation: eight partial sums for up to 128 numbers, halves above that.
fn pairwise_sum(values: &[f32]) -> f32 {
    if values.len() < 8 {
        return values.iter().fold(0.0, |sum, x| sum + x);
    }
    if values.len() > 128 {
        let half = values.len() / 2;
        let (left, right) = values.split_at(half - half % 8);
        return pairwise_sum(left) + pairwise_sum(right);
    }
    let mut partial = [0.0_f32; 8];
    let eights = values.chunks_exact(8);
    let rest = eights.remainder();
    for (at, eight) in eights.enumerate() {
        for (sum, &x) in partial.iter_mut().zip(eight) {
            *sum = if at == 0 { x } else { *sum + x };
        }
    }
    let [a, b, c, d, e, f, g, h] = partial;
    rest.iter().fold(((a + b) + (c + d)) + ((e + f) + (g + h)), |sum, x| sum + x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairwise_sums_as_numpy_does() {
        // np.add.reduce(np.array([(i * 0.1 % 7) for i in range(n)], dtype="f4")), numpy 2: bit patterns.
        let values: Vec<f32> = (0..1000).map(|i| (f64::from(i) * 0.1 % 7.0) as f32).collect();
        for (n, bits) in NUMPY_SUMS {
            assert_eq!(pairwise_sum(&values[..n]).to_bits(), bits, "{n} values");
        }
    }

    const NUMPY_SUMS: [(usize, u32); 10] = [
        (0, 0x0),
        (1, 0x0),
        (7, 0x4006_6666),
        (8, 0x4033_3332),
        (17, 0x4159_999a),
        (128, 0x43cb_6666),
        (129, 0x43ce_4ccc),
        (200, 0x4425_0000),
        (300, 0x4476_4000),
        (1000, 0x4554_8000),
    ];
}
