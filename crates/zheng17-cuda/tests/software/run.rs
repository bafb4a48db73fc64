//! What one to eight devices compute is what the serial backend computes.

use std::sync::Arc;

use zheng17_core::backend::{Axis, Reduction, Statistic};
use zheng17_core::exact::{Arithmetic, MomentPlan};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{ValueKind, Values};
use zheng17_core::source::MemorySource;
use zheng17_core::{ChunkSource, Context, CsrBuffer, Result, Selection, SparseBackend};
use zheng17_cuda::Cuda;
use zheng17_serial::Serial;

use crate::driver::{Setup, driver};

/// Counts of some cells, rows sorted: a few genes everywhere, the others here and there, some counts of 255 and above, some cells
/// without any.
pub(crate) fn counts(n_cells: usize, n_genes: usize) -> CsrBuffer {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 33
    };
    let mut out = CsrBuffer::new(n_genes, ValueKind::F32);
    for cell in 0..n_cells {
        for gene in 0..n_genes {
            if cell % 41 != 7 && random() % 12 < if gene % 9 == 0 { 8 } else { 1 } {
                out.indices.push(gene as u32);
                out.values.push(match random() % 97 {
                    0 => (250 + random() % 9) as f64,
                    n => (1 + n % 5) as f64,
                });
            }
        }
        out.end_row();
    }
    out
}

pub(crate) fn source(matrix: &CsrBuffer) -> Arc<dyn ChunkSource> {
    Arc::new(MemorySource::new(matrix.clone(), "counts").expect("a matrix"))
}

/// Everything, which is the same to the bit.
#[derive(PartialEq)]
pub(crate) struct Results {
    counts: Vec<u8>,
    moments: Vec<u8>,
    reduced: Vec<Vec<f64>>,
    scaled: Vec<f32>,
    normalised: CsrBuffer,
    cells: CsrBuffer,
    squared: CsrBuffer,
    products: Vec<f64>,
}

impl std::fmt::Debug for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sums {:x?}, {} scaled values", &self.counts[..40], self.scaled.len())
    }
}

pub(crate) fn visited<B: SparseBackend>(backend: &B, matrix: &B::Matrix, ctx: &Context) -> Result<CsrBuffer> {
    let mut all = CsrBuffer::new(backend.shape(matrix).n_genes, ValueKind::F32);
    backend.visit(matrix, ctx, &mut |chunk| {
        assert_eq!(chunk.first_cell(), all.n_cells(), "cells come in order");
        all.append(chunk);
        Ok(())
    })?;
    all.sort_rows();
    Ok(all)
}

/// The steps of a run, on a backend.
pub(crate) fn results<B: SparseBackend>(backend: &B, input: &CsrBuffer, ctx: &Context) -> Result<Results> {
    let matrix = backend.open(source(input), ctx)?;
    let excluded: Arc<[bool]> = (0..input.n_genes).map(|gene| gene % 10 == 3).collect();
    let counts = backend.count_summary(&matrix, Some(&excluded), ctx)?;
    let some_cells: Vec<bool> = (0..input.n_cells()).map(|cell| cell % 5 != 2).collect();
    let some_genes: Vec<usize> = (0..input.n_genes).filter(|gene| gene % 3 != 1).collect();
    let small = backend.select(&matrix, &Selection::Mask(some_cells), &Selection::Indices(some_genes))?;
    let shape = backend.shape(&small);
    let cell_scale: Arc<[f64]> = (0..shape.n_cells).map(|cell| 0.25 + (cell % 7) as f64).collect();
    let moments = MomentPlan { cell_scale: Arc::clone(&cell_scale), arithmetic: Arithmetic::Log };
    let plan = OutputPlan {
        cell_scale,
        log: true,
        mean: (0..shape.n_genes).map(|gene| 0.1 * (gene % 4) as f64).collect(),
        inverse_deviation: (0..shape.n_genes).map(|gene| (gene % 6) as f64).collect(),
        max_value: Some(9.0),
    };
    let reductions = [Axis::Cells, Axis::Genes]
        .map(|axis| [Statistic::Sum, Statistic::Variance].map(|statistic| Reduction { axis, statistic }));
    let mut scaled = vec![0.0; shape.n_cells * shape.n_genes];
    backend.scaled_into(&small, &plan, ctx, &mut scaled)?;
    let mut normalised = CsrBuffer::new(shape.n_genes, ValueKind::F32);
    backend.normalised(&small, &plan, ctx, &mut |chunk| {
        normalised.append(chunk);
        Ok(())
    })?;
    let squared = backend.multiply(&small, &small)?;
    let again = backend.concat(&[&squared, &small])?;
    // A block of products takes much more memory than these cells, so there are few of them, but for large matrices.
    let few: Vec<usize> = (0..shape.n_cells).step_by(if shape.n_cells > 10_000 { 1 } else { 64 }).collect();
    let cell_scale = few.iter().map(|&cell| plan.cell_scale[cell]).collect();
    let few = backend.select(&small, &Selection::Indices(few), &Selection::All)?;
    let plan_of_few = OutputPlan { cell_scale, ..plan.clone() };
    let mut gram = backend.gram(&few, &plan_of_few, ctx)?;
    for gene in 0..shape.n_genes {
        // What stands above the diagonal is nobody's business.
        gram.products[gene * shape.n_genes + gene + 1..(gene + 1) * shape.n_genes].fill(0.0);
    }
    Ok(Results {
        counts: counts.to_bytes(),
        moments: backend.moment_summary(&small, &moments, ctx)?.to_bytes(),
        reduced: backend.reduce(&small, &reductions.concat(), ctx)?,
        scaled,
        normalised,
        cells: visited(backend, &small, ctx)?,
        squared: visited(backend, &again, ctx)?,
        products: gram.products,
    })
}

pub(crate) fn context(memory: Option<u64>, chunk_rows: usize) -> Context {
    Context { chunk_rows: std::num::NonZeroUsize::new(chunk_rows), device_memory: memory, ..Context::default() }
}

/// Compares with the serial backend.
pub(crate) fn compare(input: &CsrBuffer, ctx: &Context) {
    let expected = results(&Serial::default(), input, &Context::default()).expect("serial results");
    let found = results(&Cuda::default(), input, ctx).expect("results of the devices");
    assert_eq!(found.counts, expected.counts, "counts");
    assert_eq!(found.moments, expected.moments, "moments");
    assert_eq!(found.reduced, expected.reduced, "reduced");
    assert_eq!(found.cells, expected.cells, "selected cells");
    assert_eq!(found.squared, expected.squared, "squares");
    assert_eq!(found.normalised, expected.normalised, "normalised");
    assert!(found.products == expected.products, "products");
    assert!(found == expected, "scaled values");
}

#[test]
fn any_number_of_devices_gives_the_same_bits() {
    let Some(driver) = driver("any_number_of_devices_gives_the_same_bits") else { return };
    let input = counts(600, 90);
    for n_devices in [1, 2, 4, 8] {
        driver.set_up(Setup { n_devices, seed: u64::from(n_devices), ..Setup::default() });
        compare(&input, &context(None, 100));
        for device in 0..n_devices {
            let counts = driver.counts(device);
            assert_eq!((counts.used, counts.between, counts.managed, counts.pinned), (0, 0, 0, 0), "device {device}");
            assert!(counts.launches > 0, "device {device} has nothing to do");
        }
    }
}

#[test]
fn devices_of_little_memory_and_late_streams_give_the_same_bits() {
    let Some(driver) = driver("devices_of_little_memory_and_late_streams_give_the_same_bits") else { return };
    let input = counts(1200, 45);
    let mut wide = input.clone();
    if let Values::F32(values) = &mut wide.values {
        for x in values {
            *x += 0.25;
        }
    }
    let mut wider = input.clone();
    wider.values.widen();
    for (input, n_devices, memory) in [(&input, 1, 110_000), (&wide, 2, 62_000), (&wider, 4, 48_000)] {
        driver.set_up(Setup { n_devices, ..Setup::default() });
        results(&Cuda::default(), input, &context(None, 30)).expect("results with much memory");
        let staying = driver.counts(0).to_device;
        driver.set_up(Setup { n_devices, delay_microseconds: 100, seed: 5, memory, ..Setup::default() });
        compare(input, &context(None, 30));
        let passing = driver.counts(0).to_device;
        assert!(passing > staying * 3 / 2, "{passing} bytes to a device, {staying} if all can stay");
        for device in 0..n_devices {
            let counts = driver.counts(device);
            assert!(counts.peak <= memory, "device {device} used {} bytes", counts.peak);
            assert_eq!((counts.used, counts.between), (0, 0), "device {device}");
        }
    }
}

#[test]
fn chunks_of_several_groups_and_blocks_on_several_devices() {
    let Some(driver) = driver("chunks_of_several_groups_and_blocks_on_several_devices") else { return };
    // A chunk has more rows than a group of sums, 4,095. Some of the cells are chosen, so blocks of products are on two devices.
    let input = counts(17_000, 9);
    for n_devices in [1, 3] {
        driver.set_up(Setup { n_devices, ..Setup::default() });
        compare(&input, &Context { chunk_rows: None, ..context(None, 1) });
        let between: u64 = (0..n_devices).map(|device| driver.counts(device).between).sum();
        assert_eq!(between, 0);
    }
}

#[test]
fn devices_are_taken_as_asked() {
    let Some(driver) = driver("devices_are_taken_as_asked") else { return };
    let input = counts(100, 30);
    driver.set_up(Setup { n_devices: 4, ..Setup::default() });
    let ctx = Context { devices: Some(vec![3, 1]), ..context(None, 10) };
    compare(&input, &ctx);
    let launches = [0, 1, 2, 3].map(|device| driver.counts(device).launches > 0);
    assert_eq!(launches, [false, true, false, true]);
    // One device twice: each has half of its memory.
    driver.set_up(Setup { memory: 400_000, ..Setup::default() });
    compare(&input, &Context { devices: Some(vec![0, 0]), ..context(None, 10) });
    assert!(driver.counts(0).peak <= 400_000);
}

#[test]
fn sources_without_entries_and_unsorted_rows() {
    let Some(driver) = driver("sources_without_entries_and_unsorted_rows") else { return };
    driver.set_up(Setup { n_devices: 2, ..Setup::default() });
    let mut input = counts(100, 30);
    let sorted = input.clone();
    for row in 0..input.n_cells() {
        let range = input.indptr[row] as usize..input.indptr[row + 1] as usize;
        input.indices[range.clone()].reverse();
        if let Values::F32(values) = &mut input.values {
            values[range].reverse();
        }
    }
    let found = results(&Cuda::default(), &input, &context(None, 7)).expect("results");
    let expected = results(&Cuda::default(), &sorted, &context(None, 64)).expect("results");
    assert!(found.counts == expected.counts && found.cells == expected.cells);
}
