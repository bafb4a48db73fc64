//! The products that PCA sums over cells. They are sums of `f64`, so their order is fixed: within blocks of cells, and block after
//! block. One device adds up its blocks itself. Several send home the sums of each block, and the host adds them in order: the
//! bits are the same.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use zheng17_core::backend::{GRAM_BLOCK, Gram};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::{Context, Result};

use crate::blas::{self, Blas};
use crate::chunk::Chunk;
use crate::device::{Device, DeviceBuffer, download};
use crate::error::Fault;
use crate::matrix::{CudaMatrix, Present, give_matrix};
use crate::outputs::DevicePlan;
use crate::pass::{Hand, Stage, chunks_of, in_turn, quiet};
use crate::ptx;

/// Cells of a block that are in one chunk.
struct Piece {
    /// The place of the chunk in the matrix.
    chunk: usize,
    /// Rows of the chunk.
    rows: Range<usize>,
}

/// The cells of each block, in order.
fn blocks(matrix: &CudaMatrix) -> Vec<Vec<Piece>> {
    let mut blocks: Vec<Vec<Piece>> = Vec::new();
    for chunk in 0..matrix.chunks.len() {
        let cells = matrix.cells(chunk);
        let mut first = cells.start;
        while first < cells.end {
            let block = first / GRAM_BLOCK;
            let end = cells.end.min((block + 1) * GRAM_BLOCK);
            blocks.resize_with(blocks.len().max(block + 1), Vec::new);
            blocks[block].push(Piece { chunk, rows: first - cells.start..end - cells.start });
            first = end;
        }
    }
    blocks
}

/// See [`zheng17_core::SparseBackend::gram`]. A block is summed on the device that has its first cell; those of its cells that another
/// device has come by way of the host, which happens where chunks don't fit blocks: in small matrices, and after a choice of cells.
pub(crate) fn gram(matrix: &CudaMatrix, plan: &OutputPlan, cublas: bool, ctx: &Context) -> Result<Gram> {
    let n_genes = plan.n_genes();
    let mut total = Gram::new(n_genes);
    let blocks = blocks(matrix);
    if n_genes == 0 {
        ctx.progress.advance(matrix.shape().n_cells);
        return Ok(total);
    }
    if let [device] = &matrix.devices[..]
        && !blocks.is_empty()
    {
        let mut sums = BlockSums::new(matrix, device, 0, plan, cublas)?;
        for pieces in &blocks {
            sums.add(pieces, ctx)?;
        }
        total = sums.take()?;
        sums.stage.finish(ctx)?;
        return Ok(total);
    }
    let turns: Vec<usize> = blocks.iter().map(|pieces| matrix.chunks[pieces[0].chunk].device).collect();
    // Cells are reported when their block has been added.
    let quiet = quiet(ctx);
    let begin = |at: usize| BlockSums::new(matrix, &matrix.devices[at], at, plan, cublas);
    let make = |sums: &mut BlockSums<'_>, block: usize, hand: Hand<'_, (usize, Gram)>| {
        sums.add(&blocks[block], &quiet)?;
        hand((blocks[block].iter().map(|piece| piece.rows.len()).sum(), sums.take()?))
    };
    in_turn(&turns, &begin, &make, &mut |(n_cells, sums)| {
        total.add(&sums);
        ctx.progress.advance(n_cells);
        Ok(())
    })?;
    Ok(total)
}

/// Adds the products of a tile's rows, by our kernel.
fn own_products(
    device: &Device,
    stream: &CudaStream,
    tile: &DeviceBuffer,
    n_rows: usize,
    n_genes: usize,
    products: &mut DeviceBuffer,
) -> Result<(), Fault> {
    let tiles = n_genes.div_ceil(ptx::GRAM_TILE) as u32;
    let mut launch = device.launch(stream, ptx::OUTPUT, "gram_products")?;
    launch.read(tile).u32(n_rows).u32(n_genes).write(products).run_on((tiles, tiles))
}

/// Sums on a device, and what it needs to add a block to them.
struct BlockSums<'m> {
    matrix: &'m CudaMatrix,
    device: &'m Device,
    /// The place of the device among the matrix's.
    at: usize,
    cell_scale: &'m [f64],
    plan: DevicePlan,
    stage: Stage<'m>,
    /// The chunk that was taken last.
    taken: Option<usize>,
    /// A block's corrections, dense.
    tile: DeviceBuffer,
    products: DeviceBuffer,
    sums: DeviceBuffer,
    /// What sums the products, if not our kernel.
    blas: Option<Blas>,
    /// Whether it is known that both agree.
    compared: bool,
}

impl<'m> BlockSums<'m> {
    /// The sums over no cells.
    fn new(matrix: &'m CudaMatrix, device: &'m Device, at: usize, plan: &'m OutputPlan, cublas: bool) -> Result<Self> {
        let first = &device.streams[0];
        let n_genes = plan.n_genes();
        let own = chunks_of(matrix, at).into_iter().map(|(_, chunk)| chunk);
        Ok(Self {
            matrix,
            device,
            at,
            cell_scale: &plan.cell_scale,
            plan: DevicePlan::new(device, plan)?,
            stage: Stage::new(device, own)?,
            taken: None,
            tile: device.alloc(first, matrix.shape().n_cells.min(GRAM_BLOCK) * n_genes * 8)?,
            products: device.zeros(first, n_genes * n_genes * 8)?,
            sums: device.zeros(first, n_genes * 8)?,
            blas: if cublas { Some(Blas::new(device)?) } else { None },
            compared: false,
        })
    }

    /// Adds a block.
    fn add(&mut self, pieces: &[Piece], ctx: &Context) -> Result<()> {
        let (matrix, device, n_genes) = (self.matrix, self.device, self.matrix.n_genes);
        let mut stream = &device.streams[0];
        let mut in_tile = 0;
        for Piece { chunk: place, rows } in pieces {
            let chunk: &Chunk = &matrix.chunks[*place];
            let brought;
            let present = if chunk.device == self.at {
                let same = self.taken.replace(*place) == Some(*place);
                let taken = if same { self.stage.again(chunk) } else { self.stage.next(chunk, ctx)? };
                stream = taken.1;
                taken.0
            } else {
                brought = device.upload(stream, &matrix.words(chunk)?)?;
                Present { layout: chunk.layout, buffer: &brought }
            };
            let first = matrix.first_cells[*place] + rows.start;
            let scales = device.upload(stream, &self.cell_scale[first..first + rows.len()])?;
            let mut launch = device.launch(stream, ptx::OUTPUT, &present.kernel("corrections"))?;
            give_matrix(&mut launch, present, rows.start);
            launch.u32(rows.len()).u32(n_genes);
            self.plan.give(&mut launch, &scales, 0);
            launch.write_at(&mut self.tile, &[in_tile * n_genes * 8]).run(device.blocks(rows.len(), 1))?;
            drop(launch);
            in_tile += rows.len();
        }
        Ok(self.multiply_tile(stream, in_tile)?)
    }

    /// Adds what the tile holds.
    fn multiply_tile(&mut self, stream: &Arc<CudaStream>, n_rows: usize) -> Result<(), Fault> {
        let (device, n_genes) = (self.device, self.matrix.n_genes);
        // A few threads that each add one number after the other: beside the products, not after them.
        let beside = &device.streams[usize::from(Arc::ptr_eq(stream, &device.streams[0]))];
        let mut launch = device.launch(beside, ptx::OUTPUT, "gram_sums")?;
        launch.read(&self.tile).u32(n_rows).u32(n_genes).write(&mut self.sums);
        launch.run(device.blocks(n_genes, ptx::BLOCK_THREADS as usize))?;
        drop(launch);
        match &self.blas {
            None => own_products(device, stream, &self.tile, n_rows, n_genes, &mut self.products)?,
            Some(blas) => {
                blas.add_products(stream, &self.tile, n_rows, n_genes, &mut self.products)?;
                if !std::mem::replace(&mut self.compared, true) {
                    let mut own = device.zeros(stream, n_genes * n_genes * 8)?;
                    own_products(device, stream, &self.tile, n_rows, n_genes, &mut own)?;
                    let [found, own] =
                        [&self.products, &own].map(|buffer| download::<f64>(stream, buffer, 0, n_genes * n_genes));
                    blas::compare(device, n_genes, &found?, &own?)?;
                }
            }
        }
        Ok(())
    }

    /// The sums so far; what comes next begins anew.
    fn take(&mut self) -> Result<Gram> {
        let (device, stream, n_genes) = (self.device, &self.device.streams[0], self.matrix.n_genes);
        let products = device.land(stream, &self.products, n_genes * n_genes)?.numbers()?.to_vec();
        let sums = device.land(stream, &self.sums, n_genes)?.numbers()?.to_vec();
        Device::clear(stream, &mut self.products)?;
        Device::clear(stream, &mut self.sums)?;
        Ok(Gram { n_genes, products, sums })
    }
}
