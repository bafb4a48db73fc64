//! What leaves the devices because somebody asked for it: scaled rows, scores, normalised values, and the cells themselves. All in
//! cell order, some rows at a time.

use zheng17_core::backend::{ChunkSink, DENSE_ROWS, Projection, RowSink};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{ValueKind, Values};
use zheng17_core::{Context, CsrBuffer, Result};

use crate::chunk::{Chunk, decode};
use crate::device::{Device, DeviceBuffer, Landed, download};
use crate::error::Fault;
use crate::launch::Launch;
use crate::matrix::{CudaMatrix, give_matrix};
use crate::pass::{Hand, Stage, in_order, quiet};
use crate::ptx;
use crate::sums::BLOCK_ROWS;

/// An output plan on a device: the arguments that PLAN stands for, but for the scales of cells.
pub(crate) struct DevicePlan {
    log: bool,
    mean: DeviceBuffer,
    inverse_deviation: DeviceBuffer,
    zero_values: DeviceBuffer,
    max_value: f64,
}

impl DevicePlan {
    pub(crate) fn new(device: &Device, plan: &OutputPlan) -> Result<Self, Fault> {
        let stream = &device.streams[0];
        Ok(Self {
            log: plan.log,
            mean: device.upload(stream, &plan.mean)?,
            inverse_deviation: device.upload(stream, &plan.inverse_deviation)?,
            zero_values: device.upload(stream, &plan.zero_values())?,
            max_value: plan.max_value.unwrap_or(f64::INFINITY),
        })
    }

    /// Gives the arguments to a launch on rows of which the first has this place among those that the scales are for.
    pub(crate) fn give<'a>(&'a self, launch: &mut Launch<'a>, cell_scale: &'a DeviceBuffer, first_row: usize) {
        launch.read_at(cell_scale, &[8 * first_row]).u32(usize::from(self.log)).read(&self.mean);
        launch.read(&self.inverse_deviation).read(&self.zero_values).f64(self.max_value);
    }
}

/// Dense rows with the place of the first.
struct Rows<'m> {
    first_cell: usize,
    height: usize,
    values: Landed<'m, f32>,
}

/// Dense rows of `width` values that a kernel makes of each window of a chunk, handed on in cell order.
fn dense<'m>(
    matrix: &'m CudaMatrix,
    plan: &OutputPlan,
    kernel: &str,
    width: usize,
    more: &[&[f64]],
    ctx: &Context,
    sink: &mut RowSink<'_>,
) -> Result<()> {
    // Cells are reported when they have been handed on, not when a device has made them.
    let quiet = quiet(ctx);
    let deliver = &mut |rows: Rows<'m>| {
        ctx.check_cancelled()?;
        sink(rows.first_cell, rows.values.numbers()?)?;
        ctx.progress.advance(rows.height);
        Ok(())
    };
    let prepare = |device: &Device, chunks: &[(usize, &Chunk)]| {
        let stream = &device.streams[0];
        let most = chunks.iter().map(|(_, chunk)| chunk.layout.n_rows).max().unwrap_or(0);
        Ok(Prepared {
            plan: DevicePlan::new(device, plan)?,
            more: more.iter().map(|numbers| device.upload(stream, numbers)).collect::<Result<_, _>>()?,
            out: device.alloc(stream, dense_rows(device, width).min(most) * width * 4)?,
        })
    };
    let make = |prepared: &mut Prepared, stage: &mut Stage<'m>, at: usize, hand: Hand<'_, Rows<'m>>| {
        let (device, chunk) = (stage.device, &matrix.chunks[at]);
        let (present, stream) = stage.next(chunk, &quiet)?;
        let scales = device.upload(stream, &plan.cell_scale[matrix.cells(at)])?;
        for (first_row, n) in windows(chunk.layout.n_rows, dense_rows(device, width)) {
            if width > 0 {
                let mut launch = device.launch(stream, ptx::OUTPUT, &present.kernel(kernel))?;
                give_matrix(&mut launch, present, first_row);
                launch.u32(n);
                if prepared.more.is_empty() {
                    launch.u32(width);
                }
                prepared.plan.give(&mut launch, &scales, first_row);
                if let [weights, offset] = &prepared.more[..] {
                    launch.u32(width).read(weights).read(offset);
                }
                launch.write(&mut prepared.out).run(device.blocks(n, 1))?;
            }
            let values = device.land(stream, &prepared.out, n * width)?;
            hand(Rows { first_cell: matrix.first_cells[at] + first_row, height: n, values })?;
        }
        Ok(())
    };
    in_order(matrix, &prepare, &make, deliver)
}

/// Windows of a chunk's rows: their first, and their number.
fn windows(n_rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n_rows).step_by(most.max(1)).map(move |first| (first, most.min(n_rows - first)))
}

/// What a device needs to make dense rows.
struct Prepared {
    plan: DevicePlan,
    /// The weights and the offset of a projection.
    more: Vec<DeviceBuffer>,
    out: DeviceBuffer,
}

/// Dense rows that a device makes at a time: as many as a small part of its memory holds.
fn dense_rows(device: &Device, width: usize) -> usize {
    DENSE_ROWS.min((device.limit() as usize / 16 / (4 * width).max(1)).max(1))
}

/// See [`zheng17_core::SparseBackend::scaled`].
pub(crate) fn scaled(matrix: &CudaMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
    dense(matrix, plan, "scale", plan.n_genes(), &[], ctx, sink)
}

/// See [`zheng17_core::SparseBackend::project`].
pub(crate) fn project(
    matrix: &CudaMatrix,
    plan: &OutputPlan,
    projection: &Projection,
    ctx: &Context,
    sink: &mut RowSink<'_>,
) -> Result<()> {
    dense(matrix, plan, "project", projection.n_components, &[&projection.weights, &projection.offset], ctx, sink)
}

/// See [`zheng17_core::SparseBackend::visit`].
pub(crate) fn visit(matrix: &CudaMatrix, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
    let mut rows = CsrBuffer::new(matrix.n_genes, ValueKind::F32);
    in_order(matrix, &|_, _| Ok(()), &|(), _, at, hand| hand((at, matrix.words(&matrix.chunks[at])?)), &mut |(
        at,
        words,
    )| {
        for (first_row, n) in windows(matrix.chunks[at].layout.n_rows, ctx.rows_per_chunk()) {
            ctx.check_cancelled()?;
            let (layout, first_cell) = (matrix.chunks[at].layout, matrix.first_cells[at] + first_row);
            decode(layout, &words, first_row..first_row + n, first_cell, matrix.n_genes, &mut rows);
            f(rows.view())?;
            ctx.progress.advance(n);
        }
        Ok(())
    })
}

/// See [`zheng17_core::SparseBackend::normalised`].
pub(crate) fn normalised(
    matrix: &CudaMatrix,
    plan: &OutputPlan,
    ctx: &Context,
    sink: &mut ChunkSink<'_>,
) -> Result<()> {
    let quiet = quiet(ctx);
    let mut rows = CsrBuffer::new(matrix.n_genes, ValueKind::F32);
    in_order(
        matrix,
        &|_, _| Ok(()),
        &|(), stage, at, hand| {
            let (device, chunk) = (stage.device, &matrix.chunks[at]);
            let (n, layout) = (chunk.layout.n_rows, chunk.layout);
            let (present, stream) = stage.next(chunk, &quiet)?;
            let scales = device.upload(stream, &plan.cell_scale[matrix.cells(at)])?;
            let mut out = device.alloc(stream, layout.n_entries * 4)?;
            let mut launch = device.launch(stream, ptx::OUTPUT, &present.kernel("normalise"))?;
            give_matrix(&mut launch, present, 0);
            launch.u32(n).read(&scales).u32(usize::from(plan.log)).write(&mut out);
            launch.run(device.blocks(n, BLOCK_ROWS))?;
            drop(launch);
            let values: Vec<f32> = download(stream, &out, 0, layout.n_entries)?;
            // Rows and genes leave with the values: the result is a matrix of its own.
            hand((at, matrix.words(chunk)?, values))
        },
        &mut |(at, words, values)| {
            ctx.check_cancelled()?;
            let layout = matrix.chunks[at].layout;
            decode(layout, &words, 0..layout.n_rows, matrix.first_cells[at], matrix.n_genes, &mut rows);
            rows.values = Values::F32(values);
            sink(rows.view())?;
            ctx.progress.advance(layout.n_rows);
            Ok(())
        },
    )
}
