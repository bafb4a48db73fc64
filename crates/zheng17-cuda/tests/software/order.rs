//! What is wrong only where something isn't waited for, or is in another place than it seems: streams that run late, and matrices
//! that have other chunks or other devices than those they meet.

use std::sync::Arc;

use zheng17_core::backend::{Gram, Transform};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{ValueKind, Values};
use zheng17_core::{Context, CsrBuffer, SparseBackend};
use zheng17_cuda::Cuda;
use zheng17_serial::Serial;

use crate::driver::{Setup, driver};
use crate::run::{context, counts, source, visited};

/// Cells that have every gene: chunks of as many cells differ in their counts alone, so that one in the place of another is not
/// noticed until somebody looks at sums.
fn full_cells(n_cells: usize, n_genes: usize) -> CsrBuffer {
    let mut out = CsrBuffer::new(n_genes, ValueKind::F32);
    for cell in 0..n_cells {
        out.indices.extend(0..n_genes as u32);
        if let Values::F32(values) = &mut out.values {
            values.extend((0..n_genes).map(|gene| (1 + (7 * cell + 3 * gene) % 100) as f32));
        }
        out.end_row();
    }
    out
}

#[test]
fn chunks_that_pass_by_late_are_not_taken_for_one_another() {
    let Some(driver) = driver("chunks_that_pass_by_late_are_not_taken_for_one_another") else { return };
    let input = full_cells(400, 20);
    driver.set_up(Setup { delay_microseconds: 500, memory: 30_000, ..Setup::default() });
    let (ctx, backend) = (context(None, 4), Cuda::default());
    let matrix = backend.open(source(&input), &ctx).expect("a matrix");
    assert!(driver.counts(0).used < 24_000, "some cells wait");
    let found = backend.count_summary(&matrix, None, &ctx).expect("sums");
    let expected = Serial::default().open(source(&input), &Context::default()).expect("a matrix");
    let expected = Serial::default().count_summary(&expected, None, &Context::default()).expect("sums");
    assert!(found.to_bytes() == expected.to_bytes());
}

/// The products up to the diagonal.
fn products<B: SparseBackend>(backend: &B, input: &CsrBuffer, ctx: &Context) -> Gram {
    let matrix = backend.open(source(input), ctx).expect("a matrix");
    let n_genes = input.n_genes;
    let plan = OutputPlan {
        cell_scale: (0..input.n_cells()).map(|cell| 0.5 + (cell % 3) as f64).collect(),
        log: true,
        mean: vec![0.0; n_genes],
        inverse_deviation: vec![1.0; n_genes],
        max_value: None,
    };
    let mut gram = backend.gram(&matrix, &plan, ctx).expect("products");
    for gene in 0..n_genes {
        gram.products[gene * n_genes + gene + 1..(gene + 1) * n_genes].fill(0.0);
    }
    gram
}

#[test]
fn products_are_not_taken_home_before_they_are_there() {
    let Some(driver) = driver("products_are_not_taken_home_before_they_are_there") else { return };
    // The last cells are worked with on the second stream, and the first one takes the products home.
    let input = full_cells(40, 3);
    let expected = products(&Serial::default(), &input, &Context::default());
    for _ in 0..30 {
        driver.set_up(Setup { delay_microseconds: 300, ..Setup::default() });
        let found = products(&Cuda::default(), &input, &context(None, 20));
        assert!(found.products == expected.products && found.sums == expected.sums);
    }
}

/// Changed values, products with another matrix, and both after one another; the other one has chunks of its own.
fn combined<B: SparseBackend>(one: &B, other: &B, input: &CsrBuffer, ctx: [&Context; 2]) -> [CsrBuffer; 3] {
    let a = one.open(source(input), ctx[0]).expect("a matrix");
    let factors = |n: usize| (0..n).map(|at| 0.5 + (at % 11) as f64).collect::<Arc<[f64]>>();
    let (of_cells, of_genes) = (factors(input.n_cells()), factors(input.n_genes));
    let scaled = one.transform(&a, &Transform::ScaleCells(of_cells)).expect("scaled cells");
    let scaled = one.transform(&scaled, &Transform::ScaleGenes(of_genes)).expect("scaled genes");
    let b = other.open(source(input), ctx[1]).expect("a matrix");
    let product = one.multiply(&scaled, &b).expect("a product");
    let both = one.concat(&[&product, &b]).expect("both");
    [&scaled, &product, &both].map(|matrix| visited(one, matrix, ctx[0]).expect("values"))
}

#[test]
fn matrices_of_other_chunks_and_other_devices_meet() {
    let Some(driver) = driver("matrices_of_other_chunks_and_other_devices_meet") else { return };
    let input = counts(100, 30);
    let expected = combined(&Serial::default(), &Serial::default(), &input, [&Context::default(); 2]);
    for memory in [None, Some(16_000)] {
        driver.set_up(Setup { n_devices: 3, ..Setup::default() });
        let one = Cuda::default();
        let on = |devices: &[usize], rows| Context { devices: Some(devices.to_vec()), ..context(memory, rows) };
        for rows in [9, 12] {
            let found = combined(&one, &one, &input, [&on(&[0, 1], 9), &on(&[0, 1], rows)]);
            assert!(found == expected, "chunks of 9 cells, and of {rows}");
        }
        let found = combined(&one, &Cuda::default(), &input, [&on(&[0, 1], 9), &on(&[2], 9)]);
        assert!(found == expected, "other devices");
        drop(one);
        assert_eq!([0, 1, 2].map(|device| driver.counts(device).between), [0; 3], "nothing goes from device to device");
    }
}
