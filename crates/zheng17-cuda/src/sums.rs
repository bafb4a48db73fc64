//! What is summed over all cells: totals and exact moments, and double sums. A device sends home its sums and nothing else; they
//! are merged on the host.

use zheng17_core::backend::operations::{DoubleSum, ReductionSums};
use zheng17_core::backend::{Axis, Reduction};
use zheng17_core::exact::{Arithmetic, CountFacts, CountSummary, GeneCounts, GeneMoments, MomentPlan, MomentSummary};
use zheng17_core::source::LARGEST_COUNT;
use zheng17_core::{Context, Error, Result};

use crate::chunk::Chunk;
use crate::device::{Device, DeviceBuffer, download};
use crate::error::Fault;
use crate::matrix::{CudaMatrix, give_matrix};
use crate::pass::{Stage, chunks_of, on_devices};
use crate::ptx;

/// Ranges of rows whose double sums are formed at once.
const REDUCE_GROUPS: usize = 32;

/// Rows that keep a warp of a range busy.
const REDUCE_ROWS: usize = 64;

/// Rows that a block of eight warps takes at a time.
pub(crate) const BLOCK_ROWS: usize = 8;

/// Bytes of a 128-bit sum.
const SUM_BYTES: usize = 16;

fn groups(n_rows: usize) -> usize {
    n_rows.div_ceil(ptx::GROUP_ROWS)
}

fn n_rows_of(chunks: &[(usize, &Chunk)]) -> usize {
    chunks.iter().map(|(_, chunk)| chunk.layout.n_rows).sum()
}

fn most_rows_of(chunks: &[(usize, &Chunk)]) -> usize {
    chunks.iter().map(|(_, chunk)| chunk.layout.n_rows).max().unwrap_or(0)
}

/// Room for the partial sums of the largest launch.
fn partial_sums(
    device: &Device,
    chunks: &[(usize, &Chunk)],
    words: usize,
    n_genes: usize,
) -> Result<DeviceBuffer, Fault> {
    let groups = groups(most_rows_of(chunks));
    device.zeros(&device.streams[0], groups * words * n_genes * 8)
}

fn wide_sums(words: &[u64]) -> Vec<u128> {
    words.as_chunks::<2>().0.iter().map(|&[low, high]| u128::from(low) | u128::from(high) << 64).collect()
}

/// What a device says of the counts of its cells.
struct DeviceCounts {
    /// Totals of the cells, in the order of the chunks.
    totals: Vec<f64>,
    sums: Vec<u128>,
    facts: CountFacts,
}

/// See [`zheng17_core::SparseBackend::count_summary`].
pub(crate) fn count_summary(
    matrix: &CudaMatrix,
    excluded: Option<&std::sync::Arc<[bool]>>,
    ctx: &Context,
) -> Result<CountSummary> {
    let n_genes = matrix.n_genes;
    let mut counts = on_devices(&matrix.devices, &|at, device| {
        device_counts(device, &chunks_of(matrix, at), n_genes, excluded.map(AsRef::as_ref), ctx)
    })?;
    let mut summary = CountSummary::new(n_genes, excluded.cloned());
    let mut taken = vec![0; counts.len()];
    for (at, chunk) in matrix.chunks.iter().enumerate() {
        let (first_cell, start) = (matrix.first_cells[at], taken[chunk.device]);
        taken[chunk.device] += chunk.layout.n_rows;
        let totals = &counts[chunk.device].totals[start..taken[chunk.device]];
        if let Some(row) = totals.iter().position(|&total| total > LARGEST_COUNT) {
            let (cell, total) = (first_cell + row, totals[row]);
            return Err(Error::input(format!("cell {cell}: its total of {total:e} is above 2^53")));
        }
        summary.add_cell_totals(first_cell, totals.to_vec())?;
    }
    for counts in &mut counts {
        let gene = |gene: usize| GeneCounts {
            total: counts.sums[gene],
            sum: counts.sums[n_genes + gene],
            sum_of_squares: counts.sums[2 * n_genes + gene],
        };
        summary.add(0, Vec::new(), &(0..n_genes).map(gene).collect::<Vec<_>>(), &counts.facts)?;
    }
    Ok(summary)
}

fn device_counts(
    device: &Device,
    chunks: &[(usize, &Chunk)],
    n_genes: usize,
    excluded: Option<&[bool]>,
    ctx: &Context,
) -> Result<DeviceCounts> {
    if chunks.is_empty() || n_genes == 0 {
        ctx.progress.advance(n_rows_of(chunks));
        return Ok(DeviceCounts {
            totals: vec![0.0; n_rows_of(chunks)],
            sums: vec![0; 3 * n_genes],
            facts: CountFacts::default(),
        });
    }
    let first = &device.streams[0];
    let flags = excluded.map(|flags| flags.iter().map(|&flag| u8::from(flag)).collect::<Vec<u8>>());
    let flags = flags.map(|flags| device.upload(first, &flags)).transpose()?;
    let mut partial = partial_sums(device, chunks, ptx::COUNT_WORDS, n_genes)?;
    let mut sums = device.zeros(first, 3 * n_genes * SUM_BYTES)?;
    let mut facts = device.zeros(first, 16)?;
    let mut totals = device.alloc(first, n_rows_of(chunks) * 8)?;
    let mut stage = Stage::new(device, chunks.iter().map(|(_, chunk)| *chunk))?;
    let mut before = 0;
    for (_, chunk) in chunks {
        let (present, stream) = stage.next(chunk, ctx)?;
        let n = chunk.layout.n_rows;
        let mut launch = device.launch(stream, ptx::SUMMARIES, &present.kernel("fold_counts"))?;
        give_matrix(&mut launch, present, 0);
        launch.u32(n).u32(n_genes).read_or_null(flags.as_ref());
        launch.write_at(&mut totals, &[8 * before]).write(&mut partial).write(&mut facts);
        launch.run_on((device.blocks(n.min(ptx::GROUP_ROWS), BLOCK_ROWS), groups(n) as u32))?;
        drop(launch);
        flush(device, stream, "flush_counts", &mut partial, groups(n), n_genes, &mut sums)?;
        before += n;
    }
    stage.finish(ctx)?;
    let numbers = download::<u64>(first, &facts, 0, 2)?;
    Ok(DeviceCounts {
        totals: download(first, &totals, 0, before)?,
        sums: wide_sums(&download(first, &sums, 0, 3 * n_genes * 2)?),
        facts: CountFacts {
            n_entries: chunks.iter().map(|(_, chunk)| chunk.layout.n_entries as u64).sum(),
            n_fractional: numbers[0],
            largest: f64::from_bits(numbers[1]),
        },
    })
}

fn flush(
    device: &Device,
    stream: &cudarc::driver::CudaStream,
    kernel: &str,
    partial: &mut DeviceBuffer,
    groups: usize,
    n_genes: usize,
    sums: &mut DeviceBuffer,
) -> Result<(), Fault> {
    let mut launch = device.launch(stream, ptx::SUMMARIES, kernel)?;
    launch.write(partial).u32(groups).u32(n_genes).write(sums);
    launch.run(device.blocks(n_genes, ptx::BLOCK_THREADS as usize))
}

/// See [`zheng17_core::SparseBackend::moment_summary`].
pub(crate) fn moment_summary(matrix: &CudaMatrix, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary> {
    let n_genes = matrix.n_genes;
    let sums =
        on_devices(&matrix.devices, &|at, device| device_moments(matrix, device, &chunks_of(matrix, at), plan, ctx))?;
    let mut summary = MomentSummary::new(n_genes);
    for (at, sums) in sums.iter().enumerate() {
        let gene = |gene: usize| GeneMoments { sum: sums[gene], sum_of_squares: sums[n_genes + gene] };
        let n_cells = n_rows_of(&chunks_of(matrix, at)) as u64;
        summary.add(n_cells, &(0..n_genes).map(gene).collect::<Vec<_>>())?;
    }
    Ok(summary)
}

fn device_moments(
    matrix: &CudaMatrix,
    device: &Device,
    chunks: &[(usize, &Chunk)],
    plan: &MomentPlan,
    ctx: &Context,
) -> Result<Vec<u128>> {
    let n_genes = matrix.n_genes;
    if chunks.is_empty() || n_genes == 0 {
        ctx.progress.advance(n_rows_of(chunks));
        return Ok(vec![0; 2 * n_genes]);
    }
    let first = &device.streams[0];
    let mut partial = partial_sums(device, chunks, ptx::MOMENT_WORDS, n_genes)?;
    let mut sums = device.zeros(first, 2 * n_genes * SUM_BYTES)?;
    let mut stage = Stage::new(device, chunks.iter().map(|(_, chunk)| *chunk))?;
    for &(at, chunk) in chunks {
        let (present, stream) = stage.next(chunk, ctx)?;
        let scales = device.upload(stream, &plan.cell_scale[matrix.cells(at)])?;
        let n = chunk.layout.n_rows;
        let name = match plan.arithmetic {
            Arithmetic::Share => "fold_shares",
            Arithmetic::Log => "fold_logs",
            Arithmetic::Float32 { .. } => "fold_float32",
        };
        let mut launch = device.launch(stream, ptx::SUMMARIES, &present.kernel(name))?;
        give_matrix(&mut launch, present, 0);
        launch.u32(n).u32(n_genes).read(&scales);
        if let Arithmetic::Float32 { log, exponent } = plan.arithmetic {
            launch.u32(usize::from(log)).f32(2_f64.powi(exponent) as f32);
            launch.f64(2_f64.powi(52 - exponent)).f64(2_f64.powi(104 - 2 * exponent));
        }
        launch.write(&mut partial);
        launch.run_on((device.blocks(n.min(ptx::GROUP_ROWS), BLOCK_ROWS), groups(n) as u32))?;
        drop(launch);
        flush(device, stream, "flush_moments", &mut partial, groups(n), n_genes, &mut sums)?;
    }
    stage.finish(ctx)?;
    Ok(wide_sums(&download(first, &sums, 0, 2 * n_genes * 2)?))
}

/// The double sums of a device: of its cells and of all genes, high and low parts of sums and of sums of squares.
struct DeviceSums {
    cells: Vec<f64>,
    genes: Vec<f64>,
}

/// See [`zheng17_core::SparseBackend::reduce`].
pub(crate) fn reduce(matrix: &CudaMatrix, wanted: &[Reduction], ctx: &Context) -> Result<Vec<Vec<f64>>> {
    let wants = |axis| wanted.iter().any(|reduction| reduction.axis == axis);
    let (of_cells, of_genes) = (wants(Axis::Cells), wants(Axis::Genes));
    let sums = on_devices(&matrix.devices, &|at, device| {
        device_sums(matrix, device, &chunks_of(matrix, at), of_cells, of_genes, ctx)
    })?;
    let mut total = ReductionSums::new(matrix.shape(), wanted);
    let pair = |numbers: [f64; 4]| {
        let [sum, squares] = [[numbers[0], numbers[1]], [numbers[2], numbers[3]]].map(|parts| {
            let mut sum = DoubleSum::default();
            for part in parts {
                sum.add(part);
            }
            sum
        });
        (sum, squares)
    };
    let mut taken = vec![0; sums.len()];
    for chunk in matrix.chunks.iter().filter(|_| of_cells) {
        let start = taken[chunk.device];
        taken[chunk.device] += chunk.layout.n_rows;
        let numbers = sums[chunk.device].cells.as_chunks::<4>().0;
        total.add_cells(numbers[start..taken[chunk.device]].iter().map(|&numbers| pair(numbers)));
    }
    for DeviceSums { genes, .. } in sums.iter().filter(|_| of_genes) {
        let number = |part: usize, gene: usize| genes[part * matrix.n_genes + gene];
        total.add_genes((0..matrix.n_genes).map(|gene| pair([0, 1, 2, 3].map(|part| number(part, gene)))));
    }
    Ok(total.finish())
}

fn device_sums(
    matrix: &CudaMatrix,
    device: &Device,
    chunks: &[(usize, &Chunk)],
    of_cells: bool,
    of_genes: bool,
    ctx: &Context,
) -> Result<DeviceSums> {
    let (n_genes, n_rows) = (matrix.n_genes, n_rows_of(chunks));
    let first = &device.streams[0];
    let groups = most_rows_of(chunks).div_ceil(REDUCE_ROWS).clamp(1, REDUCE_GROUPS);
    let numbers = |wanted: bool, n: usize| if wanted { 4 * n } else { 0 };
    let mut cells = device.zeros(first, 8 * numbers(of_cells, n_rows))?;
    let mut genes = device.zeros(first, 8 * numbers(of_genes, n_genes))?;
    let mut partial = device.zeros(first, 8 * groups * numbers(of_genes, n_genes))?;
    let mut stage = Stage::new(device, chunks.iter().map(|(_, chunk)| *chunk))?;
    let mut before = 0;
    for (_, chunk) in chunks {
        let n = chunk.layout.n_rows;
        let (present, stream) = stage.next(chunk, ctx)?;
        if of_cells {
            let mut launch = device.launch(stream, ptx::REDUCE, &present.kernel("reduce_cells"))?;
            give_matrix(&mut launch, present, 0);
            launch.u32(n).write_at(&mut cells, &[32 * before]).run(device.blocks(n, BLOCK_ROWS))?;
        }
        if of_genes && n_genes > 0 {
            let mut launch = device.launch(stream, ptx::REDUCE, &present.kernel("reduce_genes"))?;
            give_matrix(&mut launch, present, 0);
            launch.u32(n).u32(n_genes).u32(groups).write(&mut partial).run(device.blocks(groups, 1))?;
            drop(launch);
            let mut launch = device.launch(stream, ptx::REDUCE, "merge_genes")?;
            launch.write(&mut partial).u32(groups).u32(n_genes).write(&mut genes);
            launch.run(device.blocks(n_genes, ptx::BLOCK_THREADS as usize))?;
        }
        before += n;
    }
    stage.finish(ctx)?;
    Ok(DeviceSums {
        cells: download(first, &cells, 0, numbers(of_cells, n_rows))?,
        genes: download(first, &genes, 0, numbers(of_genes, n_genes))?,
    })
}
