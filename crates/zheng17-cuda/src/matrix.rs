//! A matrix on devices: chunks of consecutive cells, each on its device or waiting in host memory for its turn there.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zheng17_core::backend::GRAM_BLOCK;
use zheng17_core::matrix::ValueKind;
use zheng17_core::{ChunkSource, Context, CsrBuffer, CsrView, Result, Shape};

use crate::chunk::{Array, Chunk, Form, Layout, Place, decode, encode};
use crate::device::{Device, DeviceBuffer, Devices, Pinned, download};
use crate::error::{Fault, size};
use crate::launch::Launch;
use crate::measure::MemoryUse;
use crate::pass::{Hand, chunks_of, deal, in_turn, on_devices};

/// A chunk is at most this part of a device's memory, so that two on their way leave room for work.
const CHUNKS_OF_A_DEVICE: u64 = 24;

/// Bytes that an entry and a row take, at most, for the size of chunks.
const ENTRY_BYTES: u64 = 12;
const ROW_BYTES: u64 = 16;

/// Chunks that wait in host memory may take this part of what the process may use: the rest is for reading, and for new matrices.
const PART_FOR_WAITING: u64 = 2;

/// Cells that go to a device together. A unit is read at once, and becomes a chunk if a device has room for it. Where all units are
/// full, a device has whole blocks of the products that PCA sums. Few cells are shared out evenly.
fn unit_rows(n_cells: usize, n_devices: usize, ctx: &Context) -> usize {
    let most = ctx.chunk_rows.map_or(GRAM_BLOCK, NonZeroUsize::get).min(GRAM_BLOCK);
    n_cells.div_ceil(n_devices.max(1)).clamp(1, most)
}

/// The rows from `first` on that take at most so many bytes in any form, but at least one.
fn rows_within(bytes: u64, rows: CsrView<'_>, first: usize) -> Range<usize> {
    let mut end = first;
    let mut taken = 0;
    while end < rows.n_cells() {
        taken += ROW_BYTES + ENTRY_BYTES * rows.row_range(end).len() as u64;
        if taken > bytes && end > first {
            break;
        }
        end += 1;
    }
    first..end
}

/// A matrix as the CUDA backend has it.
pub struct CudaMatrix {
    pub(crate) n_genes: usize,
    pub(crate) chunks: Vec<Arc<Chunk>>,
    /// The first cell of each chunk, and the number of all cells.
    pub(crate) first_cells: Vec<usize>,
    pub(crate) devices: Devices,
}

impl CudaMatrix {
    /// A matrix of these chunks, in order.
    pub(crate) fn new(n_genes: usize, chunks: Vec<Arc<Chunk>>, devices: Devices) -> Self {
        let mut first_cells = vec![0];
        let mut n_cells = 0;
        for chunk in &chunks {
            n_cells += chunk.layout.n_rows;
            first_cells.push(n_cells);
        }
        Self { n_genes, chunks, first_cells, devices }
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { n_cells: self.first_cells[self.chunks.len()], n_genes: self.n_genes }
    }

    /// The cells of a chunk.
    pub(crate) fn cells(&self, at: usize) -> Range<usize> {
        self.first_cells[at]..self.first_cells[at + 1]
    }

    /// Reads a source. Units of cells are dealt to the devices by their memory. For each device some threads read and encode its
    /// units, and one takes them to the device, in order, as long as there is room; the others stay in host memory.
    pub(crate) fn read(source: &dyn ChunkSource, devices: Devices, ctx: &Context) -> Result<Self> {
        let Shape { n_cells, n_genes } = source.shape();
        let limits: Vec<u64> = devices.iter().map(Device::limit).collect();
        let step = unit_rows(n_cells, devices.len(), ctx);
        let dealt = deal(&limits, n_cells.div_ceil(step));
        // Bytes of chunks that wait in host memory.
        let waiting = AtomicU64::new(0);
        let n_readers = (ctx.threads.get() / devices.len().max(1)).max(1);
        let read = on_devices(&devices, &|at, device| {
            let units: Vec<usize> = (0..dealt.len()).filter(|&unit| dealt[unit] == at).collect();
            let turns: Vec<usize> = (0..units.len()).map(|piece| piece % n_readers).collect();
            let mut loader = Loader::new(device, at);
            let mut chunks = Vec::new();
            let read = |rows: &mut CsrBuffer, piece: usize, hand: Hand<'_, (usize, Layout, Vec<u64>)>| {
                ctx.check_cancelled()?;
                let cells = units[piece] * step..((units[piece] + 1) * step).min(n_cells);
                source.read_cells(cells, rows)?;
                rows.sort_rows();
                let mut first = 0;
                while first < rows.n_cells() {
                    let part = rows_within(device.limit() / CHUNKS_OF_A_DEVICE, rows.view(), first);
                    first = part.end;
                    let (layout, words) = encode(rows.view().rows(part));
                    hand((units[piece], layout, words))?;
                }
                Ok(())
            };
            in_turn(&turns, &|_| Ok(CsrBuffer::new(n_genes, ValueKind::F32)), &read, &mut |(unit, layout, words)| {
                let chunk = loader.place(layout, words)?;
                if matches!(chunk.place, Place::Host(_)) {
                    let all = waiting.fetch_add(layout.bytes() as u64, Ordering::Relaxed) + layout.bytes() as u64;
                    if let Some(memory) = ctx.memory.filter(|&memory| all > memory / PART_FOR_WAITING) {
                        return Err(Fault::NoMemoryToWaitIn { memory }.into());
                    }
                }
                chunks.push((unit, Arc::new(chunk)));
                ctx.progress.advance(layout.n_rows);
                Ok(())
            })?;
            Ok(chunks)
        })?;
        let mut chunks: Vec<(usize, Arc<Chunk>)> = read.into_iter().flatten().collect();
        // Chunks of a unit are on one device, and in order.
        chunks.sort_by_key(|(unit, _)| *unit);
        Ok(Self::new(n_genes, chunks.into_iter().map(|(_, chunk)| chunk).collect(), devices))
    }

    /// Where its chunks are, and what was used of the devices, for people.
    pub(crate) fn explain(&self) -> String {
        let line = |(at, device): (usize, &Device)| {
            let (mut n_cells, mut there, mut waiting) = (0, 0, 0);
            for (_, chunk) in chunks_of(self, at) {
                n_cells += chunk.layout.n_rows;
                match chunk.place {
                    Place::Device(_) => there += chunk.layout.bytes(),
                    Place::Host(_) => waiting += chunk.layout.bytes(),
                }
            }
            let MemoryUse { limit, peak } = device.memory_use();
            let [there, waiting, peak, limit] = [there as u64, waiting as u64, peak, limit].map(size);
            format!(
                "{}: {n_cells} cells, {there} there and {waiting} in memory; at most {peak} of {limit} used\n",
                device.name()
            )
        };
        self.devices.iter().enumerate().map(line).collect()
    }

    /// Any cells as rows on the host, put into a buffer that is reset first.
    pub(crate) fn read_into(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        out.reset(cells.start, self.n_genes, ValueKind::F32);
        let mut rows = CsrBuffer::new(self.n_genes, ValueKind::F32);
        let mut first = true;
        for at in 0..self.chunks.len() {
            let own = self.cells(at);
            let wanted = own.start.max(cells.start)..own.end.min(cells.end);
            if wanted.is_empty() {
                continue;
            }
            let chunk = &self.chunks[at];
            let words = self.words(chunk)?;
            decode(
                chunk.layout,
                &words,
                wanted.start - own.start..wanted.end - own.start,
                wanted.start,
                self.n_genes,
                &mut rows,
            );
            if std::mem::take(&mut first) {
                out.reset(cells.start, self.n_genes, rows.values.kind());
            }
            out.append(rows.view());
        }
        Ok(())
    }

    /// The bytes of a chunk on the host.
    pub(crate) fn words<'a>(&self, chunk: &'a Chunk) -> Result<std::borrow::Cow<'a, [u64]>> {
        Ok(match &chunk.place {
            Place::Host(words) => words.as_slice().into(),
            Place::Device(buffer) => {
                let stream = &self.devices[chunk.device].streams[0];
                download::<u64>(stream, buffer, 0, chunk.layout.bytes() / 8)?.into()
            }
        })
    }
}

/// Puts chunks where they will stay.
pub(crate) struct Loader<'d> {
    device: &'d Device,
    /// The place of the device among the matrix's.
    at: usize,
    /// The stream of the next copy.
    turn: usize,
    /// Where the next copies start from: one is filled while the other is copied.
    pinned: [Option<Pinned<'d>>; 2],
}

impl<'d> Loader<'d> {
    pub(crate) fn new(device: &'d Device, at: usize) -> Self {
        Self { device, at, turn: 0, pinned: [None, None] }
    }

    /// A chunk on the device if it has room, else in host memory.
    pub(crate) fn place(&mut self, layout: Layout, words: Vec<u64>) -> Result<Chunk> {
        let bytes = layout.bytes();
        if !self.device.may_keep(bytes as u64) {
            return Ok(Chunk { layout, device: self.at, place: Place::Host(words) });
        }
        let stream = &self.device.streams[self.turn];
        let pinned = &mut self.pinned[self.turn];
        self.turn = 1 - self.turn;
        let mut buffer = self.device.alloc(stream, bytes)?;
        if pinned.as_ref().is_none_or(|pinned| pinned.len() < bytes) {
            *pinned = None;
        }
        let pinned = match pinned {
            Some(pinned) => pinned,
            None => pinned.insert(self.device.pinned(bytes)?),
        };
        pinned.send(stream, &words, &mut buffer)?;
        Ok(Chunk { layout, device: self.at, place: Place::Device(buffer) })
    }
}

/// A chunk whose bytes are on its device, as long as a pass or as the matrix lasts.
#[derive(Clone, Copy)]
pub(crate) struct Present<'a> {
    pub(crate) layout: Layout,
    pub(crate) buffer: &'a DeviceBuffer,
}

impl Present<'_> {
    /// The name of the kernel for this form.
    pub(crate) fn kernel(&self, name: &str) -> String {
        format!("{name}_{}", self.layout.form.suffix())
    }
}

/// Gives a launch the rows of a chunk from `first_row` on: the arguments that MATRIX stands for.
pub(crate) fn give_matrix<'a>(launch: &mut Launch<'a>, present: Present<'a>, first_row: usize) {
    let Present { layout, buffer } = present;
    let start = |array| layout.range(array).start;
    let row_start = start(Array::RowStart) + 8 * first_row;
    if layout.form == Form::Narrow {
        let large_start = start(Array::LargeStart) + 8 * first_row;
        let places = [
            row_start,
            start(Array::Genes),
            start(Array::Values),
            large_start,
            start(Array::LargeAt),
            start(Array::LargeCounts),
        ];
        launch.read_at(buffer, &places);
    } else {
        launch.read_at(buffer, &[row_start, start(Array::Genes), start(Array::Values)]);
    }
}

/// Opens the devices that a run asks for, all of them if it doesn't say.
///
/// # Errors
/// Those of the devices.
pub(crate) fn open_devices(ordinals: Option<&[usize]>, memory: Option<u64>) -> Result<Devices, Fault> {
    let n_devices = crate::device::probe()?;
    let all: Vec<usize> = (0..n_devices).collect();
    ordinals
        .unwrap_or(&all)
        .iter()
        .map(|&ordinal| {
            let times = ordinals.into_iter().flatten().filter(|&&other| other == ordinal).count().max(1);
            Device::open(ordinal, times as u64, memory)
        })
        .collect::<Result<Vec<_>, _>>()
        .map(Into::into)
}
