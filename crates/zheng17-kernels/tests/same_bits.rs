//! The fast kernels have the bits of the scalar ones, on whatever chunks.

use std::sync::Arc;

use proptest::prelude::*;
use zheng17_core::backend::{GRAM_BLOCK, GramBuilder, Projection};
use zheng17_core::exact::{Arithmetic, CountSummary, MomentPlan, MomentSummary};
use zheng17_core::kernels::{OutputPlan, ScalarKernels};
use zheng17_core::matrix::{GeneMap, ValueKind};
use zheng17_core::{ChunkKernels, CsrBuffer, Values};
use zheng17_kernels::{CountFolder, FastKernels, GramBlock, GramTotal, MomentFolder, Scores};

const N_GENES: usize = 40;

/// Values of the kinds that take different ways: small counts, large ones, fractions, huge ones.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => (1_u32..20).prop_map(f64::from),
        2 => (1_u32..9_000_000).prop_map(f64::from),
        1 => (0.001_f32..50.0).prop_map(f64::from),
        1 => (1_u64..1 << 50).prop_map(|x| x as f64),
    ]
}

/// Cells with genes in any order.
fn chunk() -> impl Strategy<Value = CsrBuffer> {
    let row = proptest::collection::btree_map(0..N_GENES as u32, value(), 0..N_GENES).prop_flat_map(|row| {
        let row: Vec<(u32, f64)> = row.into_iter().collect();
        Just(row).prop_shuffle()
    });
    let counts_only = any::<bool>();
    (proptest::collection::vec(row, 1..30), counts_only).prop_map(|(rows, counts_only)| {
        let mut chunk = CsrBuffer::new(N_GENES, ValueKind::F64);
        for row in rows {
            for (gene, x) in row {
                chunk.indices.push(gene);
                chunk.values.push(if counts_only { x.ceil().min(500.0) } else { x });
            }
            chunk.end_row();
        }
        if let Values::F64(values) = &chunk.values {
            chunk.values = zheng17_core::numbers::smallest_values(values);
        }
        chunk
    })
}

fn moment_plan(chunk: &CsrBuffer, arithmetic: Arithmetic) -> MomentPlan {
    let mut counts = CountSummary::new(N_GENES, None);
    counts.fold(chunk.view()).expect("totals below 2^53");
    let totals = counts.cell_totals(chunk.n_cells()).expect("all cells");
    let scale = totals.iter().map(|&t| if t > 0.0 { 1000.0 / t } else { 0.0 });
    let cell_scale = match arithmetic {
        Arithmetic::Float32 { .. } => totals.iter().map(|&t| f64::from((t / 1000.0) as f32)).collect(),
        _ => scale.collect(),
    };
    MomentPlan { cell_scale, arithmetic }
}

proptest! {
    #[test]
    fn counts(chunk in chunk(), cut in 0.0_f64..1.0, exclude in any::<bool>()) {
        let excluded: Option<Arc<[bool]>> = exclude.then(|| (0..N_GENES).map(|gene| gene % 7 == 3).collect());
        let mut scalar = CountSummary::new(N_GENES, excluded.clone());
        scalar.fold(chunk.view()).expect("scalar");
        let mut fast = CountFolder::new(N_GENES, excluded.clone());
        let cut = (cut * chunk.n_cells() as f64) as usize;
        fast.fold(chunk.view().rows(0..cut)).expect("fast");
        fast.fold(chunk.view().rows(cut..chunk.n_cells())).expect("fast");
        prop_assert_eq!(fast.finish().expect("fast").to_bytes(), scalar.to_bytes());
        let mut one = CountSummary::new(N_GENES, excluded);
        FastKernels::default().fold_counts(&mut one, chunk.view()).expect("kernels");
        prop_assert_eq!(one.to_bytes(), scalar.to_bytes());
    }

    #[test]
    fn moments(chunk in chunk(), arithmetic in prop_oneof![
        Just(Arithmetic::Log),
        Just(Arithmetic::Share),
        Just(Arithmetic::Float32 { log: true, exponent: 3 }),
        Just(Arithmetic::Float32 { log: false, exponent: 10 }),
    ]) {
        let plan = moment_plan(&chunk, arithmetic);
        let mut scalar = MomentSummary::new(N_GENES);
        scalar.fold(chunk.view(), &plan);
        let mut fast = MomentFolder::new(N_GENES, &plan);
        fast.fold(chunk.view()).expect("fast");
        prop_assert_eq!(fast.finish().expect("fast"), scalar);
    }

    #[test]
    fn selected_rows(chunk in chunk(), step in 1_usize..5) {
        let genes = GeneMap::new(N_GENES, &(0..N_GENES).step_by(step).collect::<Vec<_>>());
        let mut scalar = CsrBuffer::new(genes.n_selected(), chunk.values.kind());
        ScalarKernels.select_into(chunk.view(), &genes, &mut scalar).expect("scalar");
        let mut fast = CsrBuffer::new(genes.n_selected(), chunk.values.kind());
        FastKernels::default().select_into(chunk.view(), &genes, &mut fast).expect("fast");
        prop_assert_eq!(fast, scalar);
    }

    #[test]
    fn scaled_rows(chunk in chunk(), log in any::<bool>(), clip in proptest::option::of(0.5_f64..3.0)) {
        let plan = OutputPlan {
            cell_scale: moment_plan(&chunk, Arithmetic::Log).cell_scale,
            log,
            mean: (0..N_GENES).map(|gene| gene as f64 * 0.1).collect(),
            inverse_deviation: (0..N_GENES).map(|gene| if gene % 9 == 0 { 0.0 } else { 1.0 / gene as f64 }).collect(),
            max_value: clip,
        };
        let mut scalar = vec![0.0_f32; chunk.n_cells() * N_GENES];
        let mut fast = scalar.clone();
        ScalarKernels.affine_into(chunk.view(), &plan, &mut scalar).expect("scalar");
        FastKernels::default().affine_into(chunk.view(), &plan, &mut fast).expect("fast");
        let bits = |rows: &[f32]| rows.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&fast), bits(&scalar));
    }
}

#[test]
fn sums_survive_many_rows() {
    // More rows than the 64-bit sums have room for, each with the largest share there is.
    let n_cells = 10_000;
    let mut chunk = CsrBuffer::new(2, ValueKind::F32);
    for _ in 0..n_cells {
        chunk.indices.push(1);
        chunk.values.push(7.0);
        chunk.end_row();
    }
    let mut scalar = CountSummary::new(2, None);
    scalar.fold(chunk.view()).expect("scalar");
    let mut fast = CountFolder::new(2, None);
    fast.fold(chunk.view()).expect("fast");
    assert_eq!(fast.finish().expect("fast"), scalar);
    assert_eq!(scalar.genes()[1].sum, (n_cells as u128) << 52);
}

/// Selected genes of all densities, over more cells than one block has.
fn selected_cells(n_genes: usize, n_cells: usize, densest: f64) -> (CsrBuffer, OutputPlan) {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1 << 24) as f64
    };
    let mut chunk = CsrBuffer::new(n_genes, ValueKind::F32);
    let density = |gene: usize| densest * ((gene * 7) % n_genes) as f64 / n_genes as f64;
    let mut mean = vec![0.0; n_genes];
    for _ in 0..n_cells {
        for (gene, mean) in mean.iter_mut().enumerate() {
            if random() < density(gene).powi(2) {
                chunk.indices.push(gene as u32);
                chunk.values.push((1.0 + 30.0 * random().powi(4)).floor());
                *mean += 1.0 / n_cells as f64;
            }
        }
        chunk.end_row();
    }
    let plan = OutputPlan {
        cell_scale: (0..n_cells).map(|cell| 0.5 + cell as f64 / n_cells as f64).collect(),
        log: true,
        mean,
        inverse_deviation: (0..n_genes).map(|gene| if gene == 9 { 0.0 } else { 1.0 / (gene + 1) as f64 }).collect(),
        max_value: None,
    };
    (chunk, plan)
}

#[test]
fn products_of_gene_pairs() {
    for (n_genes, n_cells, densest, clip) in [
        (150, GRAM_BLOCK + 300, 0.5, None),
        (150, 500, 1.0, Some(0.1)),
        (75, 90, 0.1, None),
        (1, 3, 1.0, None),
        (5, 0, 1.0, None),
        (0, 3, 1.0, None),
    ] {
        let (chunk, mut plan) = selected_cells(n_genes, n_cells, densest);
        plan.max_value = clip;
        let mut scalar = GramBuilder::new(&plan);
        scalar.fold(chunk.view(), &plan);
        let mut total = GramTotal::new(&plan);
        let mut block = GramBlock::new(&plan);
        for first in (0..n_cells).step_by(GRAM_BLOCK) {
            block.clear();
            let end = (first + GRAM_BLOCK).min(n_cells);
            let middle = (first + 77).min(end);
            block.add(chunk.view().rows(first..middle), &plan);
            block.add(chunk.view().rows(middle..end), &plan);
            block.multiply();
            total.add(&block);
        }
        let (fast, scalar) = (total.finish(), scalar.finish());
        let bits = |numbers: &[f64]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&fast.products), bits(&scalar.products), "{n_genes} genes, {n_cells} cells");
        assert_eq!(bits(&fast.sums), bits(&scalar.sums));
    }
}

#[test]
fn scores() {
    for (n_genes, n_components, clip) in
        [(150, 50, None), (150, 64, Some(0.2)), (150, 33, None), (20, 7, None), (20, 0, None)]
    {
        let (mut chunk, mut plan) = selected_cells(n_genes, 70, 0.7);
        plan.max_value = clip;
        // One row is not sorted.
        let end = chunk.indptr[1] as usize;
        chunk.indices[..end].reverse();
        let Values::F32(values) = &mut chunk.values else { unreachable!("made as 32-bit values") };
        values[..end].reverse();
        let projection = Projection {
            n_components,
            weights: (0..n_genes * n_components).map(|at| (at as f64).sin()).collect(),
            offset: (0..n_components).map(|at| (at as f64).cos()).collect(),
        };
        let mut scalar = Vec::new();
        projection.scores(chunk.view(), &plan, &mut scalar);
        let mut fast = Vec::new();
        Scores::new(&projection, &plan).of(chunk.view(), &mut fast);
        let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&fast), bits(&scalar), "{n_genes} genes, {n_components} components");
    }
}
