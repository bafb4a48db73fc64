//! A matrix on devices: chunks of consecutive cells, each on its device or waiting in host memory for its turn there.

use std::ops::Range;
use std::sync::Arc;

use zheng17_core::context::DEFAULT_CHUNK_ROWS;
use zheng17_core::matrix::ValueKind;
use zheng17_core::{ChunkSource, Context, CsrBuffer, Result, Shape};

use crate::chunk::{Array, Chunk, Form, Place, decode, encode};
use crate::device::{Device, DeviceBuffer, Devices, Launch, download};
use crate::error::Fault;
use crate::pass::{on_devices, share};

/// A chunk is at most this part of a device's memory, so that two on their way leave room for work.
const CHUNKS_OF_A_DEVICE: u64 = 24;

/// The most rows of a chunk. More per launch would save nothing.
const MOST_CHUNK_ROWS: usize = 16 * DEFAULT_CHUNK_ROWS;

/// Bytes that an entry takes, at most, for the size of chunks.
const ENTRY_BYTES: u64 = 12;

/// Rows of the first chunk of a source that doesn't tell how many entries it has.
const FIRST_ROWS: usize = 32;

/// Rows of a chunk that takes at most so many bytes if rows have so many entries, but at least one.
fn rows_within(bytes: u64, row_entries: u64) -> usize {
    (bytes / (16 + ENTRY_BYTES * row_entries)).clamp(1, MOST_CHUNK_ROWS as u64) as usize
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

    /// Reads a source. Each device takes a range of cells that is to all of them as its memory is to that of all devices; a thread
    /// for each reads them. Chunks stay on the device as long as there is room, else in host memory.
    pub(crate) fn read(source: &dyn ChunkSource, devices: Devices, ctx: &Context) -> Result<Self> {
        let Shape { n_cells, n_genes } = source.shape();
        let limits: Vec<u64> = devices.iter().map(Device::limit).collect();
        let read = on_devices(&devices, &|at, device| {
            let share = share(&limits, at, n_cells);
            // The size of chunks follows from what cells have had so far.
            let (mut seen_rows, mut seen_entries) = match source.n_entries() {
                Some(n_entries) => (n_cells as u64, n_entries),
                None => (0, 0),
            };
            let mut loader = Loader { device, at, turn: 0 };
            let mut rows = CsrBuffer::new(n_genes, ValueKind::F32);
            let mut chunks = Vec::new();
            let mut start = share.start;
            while start < share.end {
                ctx.check_cancelled()?;
                let step = match seen_rows {
                    0 => FIRST_ROWS,
                    _ => rows_within(device.limit() / CHUNKS_OF_A_DEVICE, seen_entries.div_ceil(seen_rows)),
                };
                let step = ctx.chunk_rows.map_or(step, |rows| rows.get().min(step));
                let cells = start..(start + step).min(share.end);
                source.read_cells(cells.clone(), &mut rows)?;
                rows.sort_rows();
                let (layout, words) = encode(rows.view());
                chunks.push(Arc::new(loader.place(layout, words)?));
                ctx.progress.advance(cells.len());
                (seen_rows, seen_entries) = (seen_rows + cells.len() as u64, seen_entries + layout.n_entries as u64);
                start = cells.end;
            }
            Ok(chunks)
        })?;
        Ok(Self::new(n_genes, read.into_iter().flatten().collect(), devices))
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
    pub(crate) device: &'d Device,
    /// The place of the device among the matrix's.
    pub(crate) at: usize,
    /// The stream of the next copy.
    pub(crate) turn: usize,
}

impl Loader<'_> {
    /// A chunk on the device if it has room, else in host memory.
    pub(crate) fn place(&mut self, layout: crate::chunk::Layout, words: Vec<u64>) -> Result<Chunk> {
        let bytes = layout.bytes();
        if !self.device.may_keep(bytes as u64) {
            return Ok(Chunk { layout, device: self.at, place: Place::Host(words) });
        }
        let stream = &self.device.streams[self.turn % 2];
        self.turn += 1;
        let mut buffer = self.device.alloc(stream, bytes)?;
        self.device.pinned(bytes)?.send(stream, &words, &mut buffer)?;
        Ok(Chunk { layout, device: self.at, place: Place::Device(buffer) })
    }
}

/// A chunk whose bytes are on its device, as long as a pass or as the matrix lasts.
#[derive(Clone, Copy)]
pub(crate) struct Present<'a> {
    pub(crate) layout: crate::chunk::Layout,
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
        .map(|&ordinal| Device::open(ordinal, memory))
        .collect::<Result<Vec<_>, _>>()
        .map(Into::into)
}
