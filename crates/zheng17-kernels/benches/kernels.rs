//! What an entry costs: the fast kernels beside the scalar ones and beside a copy of the same bytes.
//!
//! `cargo bench -p zheng17-kernels`. Throughput is in entries; an entry is a 32-bit gene and a 32-bit count, or two bytes where
//! it says packed.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use zheng17_core::backend::{GRAM_BLOCK, GramBuilder, Projection};
use zheng17_core::exact::{Arithmetic, CountSummary, MomentPlan, MomentSummary};
use zheng17_core::kernels::{OutputPlan, ScalarKernels};
use zheng17_core::matrix::{GeneMap, ValueKind};
use zheng17_core::{ChunkKernels, ChunkSource, CsrBuffer, Values};
use zheng17_kernels::{
    CountFolder, FastKernels, GramBlock, KeptChunk, MomentFolder, PackedChunk, Scores, select_kept_into,
};
use zheng17_simulate::{Parameters, Simulation};

const N_CELLS: usize = 4000;
const N_GENES: usize = 28_000;

fn cells() -> CsrBuffer {
    let mut cells = CsrBuffer::new(N_GENES, ValueKind::F32);
    let parameters = Parameters { n_cells: N_CELLS, n_genes: N_GENES, seed: 1 };
    let simulation = Simulation::new(parameters).expect("a simulation of this size");
    simulation.read_cells(0..N_CELLS, &mut cells).expect("simulated cells");
    cells
}

fn counts(criterion: &mut Criterion) {
    let cells = cells();
    let Values::F32(values) = &cells.values else { unreachable!("simulated counts are small") };
    let mut group = criterion.benchmark_group("totals and moments");
    group.throughput(Throughput::Elements(values.len() as u64)).sample_size(20);
    let (mut genes_copy, mut values_copy) = (cells.indices.clone(), values.clone());
    group.bench_function("copy of the same bytes", |bench| {
        bench.iter(|| {
            genes_copy.copy_from_slice(black_box(&cells.indices));
            values_copy.copy_from_slice(black_box(values));
        });
    });
    // A worker keeps its folder for many chunks, so making one is not part of what an entry costs.
    let mut folder = CountFolder::new(N_GENES, None);
    let mut next_cell = 0;
    group.bench_function("fast", |bench| {
        bench.iter(|| {
            folder.fold(cells.view().with_first_cell(next_cell)).expect("fold");
            next_cell += N_CELLS;
            if next_cell > 1_000_000 {
                folder = CountFolder::new(N_GENES, None);
                next_cell = 0;
            }
        });
    });
    let packed = PackedChunk::pack(cells.view()).expect("simulated counts can be packed");
    let mut folder = CountFolder::new(N_GENES, None);
    let mut next_cell = 0;
    group.bench_function("packed", |bench| {
        bench.iter(|| {
            folder.fold_packed(&packed, next_cell).expect("fold");
            next_cell += N_CELLS;
            if next_cell > 1_000_000 {
                folder = CountFolder::new(N_GENES, None);
                next_cell = 0;
            }
        });
    });
    group.bench_function("scalar", |bench| {
        bench.iter(|| {
            let mut summary = CountSummary::new(N_GENES, None);
            summary.fold(cells.view()).expect("fold");
            summary
        });
    });
    group.finish();
}

fn narrow_form(criterion: &mut Criterion) {
    let cells = cells();
    let packed = PackedChunk::pack(cells.view()).expect("simulated counts can be packed");
    let mut group = criterion.benchmark_group("narrow form");
    group.throughput(Throughput::Elements(cells.indices.len() as u64)).sample_size(20);
    let from = vec![1_u8; 2 * cells.indices.len()];
    let mut to = from.clone();
    group.bench_function("copy of the same bytes", |bench| bench.iter(|| to.copy_from_slice(black_box(&from))));
    group.bench_function("pack", |bench| bench.iter(|| PackedChunk::pack(cells.view())));
    let mut out = CsrBuffer::new(N_GENES, ValueKind::F32);
    group.bench_function("unpack", |bench| {
        bench.iter(|| {
            out.reset(0, N_GENES, ValueKind::F32);
            packed.unpack_into(&mut out);
        });
    });
    let mut bytes = Vec::new();
    group.bench_function("write", |bench| {
        bench.iter(|| {
            bytes.clear();
            packed.write_to(&mut bytes);
        });
    });
    group.bench_function("read", |bench| bench.iter(|| PackedChunk::read_from(&bytes).expect("what was written")));
    group.finish();
}

fn selected(criterion: &mut Criterion) {
    let cells = cells();
    let genes = GeneMap::new(N_GENES, &(0..N_GENES).step_by(28).collect::<Vec<_>>());
    let mut small = CsrBuffer::new(genes.n_selected(), ValueKind::F32);
    let mut group = criterion.benchmark_group("selection of 1,000 genes");
    group.throughput(Throughput::Elements(cells.indices.len() as u64)).sample_size(20);
    for (name, kernels) in
        [("fast", &FastKernels::default() as &dyn ChunkKernels), ("scalar", &ScalarKernels as &dyn ChunkKernels)]
    {
        group.bench_function(name, |bench| {
            bench.iter(|| {
                small.reset(0, genes.n_selected(), ValueKind::F32);
                kernels.select_into(cells.view(), &genes, &mut small).expect("select");
            });
        });
    }
    let kept = KeptChunk::keep(cells.view());
    group.bench_function("packed", |bench| {
        bench.iter(|| {
            small.reset(0, genes.n_selected(), ValueKind::F32);
            select_kept_into(&kept, &genes, &mut small);
        });
    });
    group.finish();

    let cell_scale: Arc<[f64]> = vec![0.5; N_CELLS].into();
    let plan = MomentPlan { cell_scale: Arc::clone(&cell_scale), arithmetic: Arithmetic::Log };
    let output = OutputPlan {
        cell_scale,
        log: true,
        mean: vec![0.1; genes.n_selected()],
        inverse_deviation: vec![2.0; genes.n_selected()],
        max_value: None,
    };
    let mut group = criterion.benchmark_group("1,000 selected genes");
    group.throughput(Throughput::Elements(small.indices.len() as u64)).sample_size(20);
    group.bench_function("moments of logarithms, fast", |bench| {
        let mut folder = MomentFolder::new(genes.n_selected(), &plan);
        bench.iter(|| folder.fold(small.view()).expect("fold"));
    });
    group.bench_function("moments of logarithms, scalar", |bench| {
        let mut summary = MomentSummary::new(genes.n_selected());
        bench.iter(|| summary.fold(small.view(), &plan));
    });
    let mut rows = vec![0.0; N_CELLS * genes.n_selected()];
    group.bench_function("scaled rows, fast", |bench| {
        bench.iter(|| FastKernels::default().affine_into(small.view(), &output, &mut rows).expect("rows"));
    });
    let projection = Projection {
        n_components: 50,
        weights: (0..50 * genes.n_selected()).map(|at| (at as f64).sin()).collect(),
        offset: vec![0.1; 50],
    };
    let scores = Scores::new(&projection, &output);
    let mut out = Vec::new();
    group.bench_function("scores of 50 components, fast", |bench| bench.iter(|| scores.of(small.view(), &mut out)));
    group.bench_function("scores of 50 components, scalar", |bench| {
        bench.iter(|| projection.scores(small.view(), &output, &mut out));
    });
    group.finish();
}

/// Cells whose genes are stored in few or many of them: densities fall exponentially from gene to gene.
fn selected_cells(entries_per_cell: f64) -> (CsrBuffer, OutputPlan) {
    let n_genes = 1000;
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1 << 24) as f64
    };
    let factor = entries_per_cell / n_genes as f64 * 5.0 / (1.0 - (-5.0_f64).exp());
    let densities: Vec<f64> = (0..n_genes).map(|_| ((-5.0 * random()).exp() * factor).min(1.0)).collect();
    let mut cells = CsrBuffer::new(n_genes, ValueKind::F32);
    for _ in 0..GRAM_BLOCK {
        for (gene, &density) in densities.iter().enumerate() {
            if random() < density {
                cells.indices.push(gene as u32);
                cells.values.push((1.0 + 30.0 * random().powi(6)).floor());
            }
        }
        cells.end_row();
    }
    let plan = OutputPlan {
        cell_scale: vec![0.5; GRAM_BLOCK].into(),
        log: true,
        mean: densities,
        inverse_deviation: vec![2.0; n_genes],
        max_value: None,
    };
    (cells, plan)
}

fn products(criterion: &mut Criterion) {
    for entries_per_cell in [70, 200] {
        let (cells, plan) = selected_cells(f64::from(entries_per_cell));
        let pairs = |row| cells.view().row_indices(row).len() * (cells.view().row_indices(row).len() + 1) / 2;
        let n_pairs: usize = (0..cells.n_cells()).map(pairs).sum();
        let mut group = criterion.benchmark_group(format!("products of pairs, {entries_per_cell} entries a cell"));
        group.throughput(Throughput::Elements(n_pairs as u64)).sample_size(20);
        let mut block = GramBlock::new(&plan);
        group.bench_function("fast", |bench| {
            bench.iter(|| {
                block.clear();
                block.add(cells.view(), &plan);
                block.multiply();
            });
        });
        group.bench_function("scalar", |bench| {
            bench.iter(|| {
                let mut builder = GramBuilder::new(&plan);
                builder.fold(cells.view(), &plan);
                builder.finish()
            });
        });
        group.finish();
    }
}

criterion_group!(benches, counts, narrow_form, selected, products);
criterion_main!(benches);
