//! Where chunks are cut never changes a bit of what the recipe finds out.

use std::num::NonZeroUsize;
use std::sync::Arc;

use proptest::prelude::*;
use zheng17_core::matrix::{CsrBuffer, ValueKind};
use zheng17_core::recipe::{self, Components, Params, RecipeResult, RecipeVersion};
use zheng17_core::source::MemorySource;
use zheng17_core::{Context, Result};
use zheng17_serial::Serial;

const N_GENES: u32 = 60;

/// Counts of 60 genes of very different expression; the first cell has one of each, so that every gene is kept.
fn counts() -> impl Strategy<Value = CsrBuffer> {
    let cell = proptest::collection::vec(0_u32..1000, N_GENES as usize);
    proptest::collection::vec(cell, 3..40).prop_map(|cells| {
        let mut matrix = CsrBuffer::new(N_GENES as usize, ValueKind::F32);
        for (cell, draws) in cells.iter().enumerate() {
            for gene in 0..N_GENES {
                let count = if cell == 0 { 1 } else { draws[gene as usize].saturating_sub(980 - 14 * gene) };
                if count > 0 {
                    matrix.indices.push(gene);
                    matrix.values.push(f64::from(count));
                }
            }
            matrix.end_row();
        }
        matrix
    })
}

fn run(matrix: &CsrBuffer, version: RecipeVersion, chunk_rows: usize) -> Result<(RecipeResult, Vec<f32>, Vec<f32>)> {
    let params = Params { version, n_top_genes: 10, components: Some(Components::UpTo(5)), ..Params::default() };
    let ctx = Context { chunk_rows: NonZeroUsize::new(chunk_rows), ..Context::default() };
    let source = Arc::new(MemorySource::new(matrix.clone(), "counts")?);
    let outcome = recipe::run(Arc::new(Serial::default()), source, &params, &ctx)?;
    let (mut scaled, mut scores) = (Vec::new(), Vec::new());
    outcome.scaled(&ctx, &mut |_, rows| {
        scaled.extend_from_slice(rows);
        Ok(())
    })?;
    outcome.scores(&ctx, &mut |_, rows| {
        scores.extend_from_slice(rows);
        Ok(())
    })?;
    Ok((outcome.result, scaled, scores))
}

/// Every bit of a result, NaN included: `Debug` prints floats so that they can be read back.
fn bits(outcome: &Result<(RecipeResult, Vec<f32>, Vec<f32>)>) -> String {
    match outcome {
        Ok(outcome) => format!("{outcome:?}"),
        Err(error) => format!("{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn chunks_never_change_a_bit(matrix in counts(), chunk_rows in 1_usize..50, version in 0_usize..4) {
        let version = RecipeVersion::ALL[version];
        let whole = run(&matrix, version, 4096);
        prop_assert_eq!(bits(&run(&matrix, version, chunk_rows)), bits(&whole));
        if version == RecipeVersion::EXACT {
            prop_assert!(whole.is_ok(), "{:?}", whole.err());
        }
    }
}
