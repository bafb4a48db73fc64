//! How a pass goes over the chunks of a matrix: a thread for each device, chunks in their order, the next one copied to the device
//! while the one before is computed with.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use cudarc::driver::CudaStream;
use zheng17_core::{Context, Error, Result};

use crate::chunk::{Chunk, Place};
use crate::device::{Device, DeviceBuffer, Pinned};
use crate::matrix::{CudaMatrix, Present};

/// The cells of one of several devices: a range whose share is that of its memory.
pub(crate) fn share(limits: &[u64], at: usize, n_cells: usize) -> Range<usize> {
    let sum = |limits: &[u64]| limits.iter().map(|&limit| u128::from(limit)).sum::<u128>();
    let all = sum(limits).max(1);
    let cut = |devices: usize| {
        if devices == limits.len() { n_cells } else { (sum(&limits[..devices]) * n_cells as u128 / all) as usize }
    };
    cut(at)..cut(at + 1)
}

/// Does something on every device at once, each on a thread of its own; on the caller's if there is but one. The results are in
/// the order of the devices, and so is the error that is returned if several fail.
pub(crate) fn on_devices<T: Send>(
    devices: &[Device],
    work: &(dyn Fn(usize, &Device) -> Result<T> + Sync),
) -> Result<Vec<T>> {
    if let [device] = devices {
        return Ok(vec![work(0, device)?]);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            devices.iter().enumerate().map(|(at, device)| scope.spawn(move || work(at, device))).collect();
        let outcomes: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// The chunks of a device, with their places in the matrix.
pub(crate) fn chunks_of(matrix: &CudaMatrix, device: usize) -> Vec<(usize, &Chunk)> {
    let own = |chunk: &&Arc<Chunk>| chunk.device == device;
    matrix.chunks.iter().enumerate().filter(|(_, chunk)| own(chunk)).map(|(at, chunk)| (at, chunk.as_ref())).collect()
}

/// Where chunks that don't stay on the device pass through it: two places in pinned memory and two on the device, each with a
/// stream.
pub(crate) struct Stage<'d> {
    pub(crate) device: &'d Device,
    slots: Vec<(Pinned<'d>, DeviceBuffer)>,
    turn: usize,
    /// Cells whose work is on a stream, for each stream.
    pending: [usize; 2],
}

impl<'d> Stage<'d> {
    /// Room for the largest of the chunks that wait in host memory.
    pub(crate) fn new<'c>(device: &'d Device, chunks: impl IntoIterator<Item = &'c Chunk>) -> Result<Self> {
        let waiting = chunks.into_iter().filter(|chunk| matches!(chunk.place, Place::Host(_)));
        let largest = waiting.map(|chunk| chunk.layout.bytes()).max();
        let slots = match largest {
            None => Vec::new(),
            Some(bytes) => {
                let slot = |stream| Ok::<_, Error>((device.pinned(bytes)?, device.alloc(stream, bytes)?));
                device.streams.iter().map(slot).collect::<Result<_>>()?
            }
        };
        Ok(Self { device, slots, turn: 1, pending: [0, 0] })
    }

    /// Takes the next chunk to the device, if it isn't there, and the stream to work with it on. What was on this stream before is
    /// waited for, and its cells are reported.
    pub(crate) fn next<'s>(
        &'s mut self,
        chunk: &'s Chunk,
        ctx: &Context,
    ) -> Result<(Present<'s>, &'s Arc<CudaStream>)> {
        ctx.check_cancelled()?;
        self.turn = 1 - self.turn;
        let stream = &self.device.streams[self.turn];
        self.wait(self.turn, ctx)?;
        self.pending[self.turn] = chunk.layout.n_rows;
        let buffer = match &chunk.place {
            Place::Device(buffer) => buffer,
            Place::Host(words) => {
                let (pinned, buffer) = &mut self.slots[self.turn];
                pinned.send(stream, words, buffer)?;
                buffer
            }
        };
        Ok((Present { layout: chunk.layout, buffer }, stream))
    }

    fn wait(&mut self, turn: usize, ctx: &Context) -> Result<()> {
        self.device.streams[turn].synchronize().map_err(crate::error::Fault::of)?;
        ctx.progress.advance(std::mem::take(&mut self.pending[turn]));
        Ok(())
    }

    /// Waits for all work.
    pub(crate) fn finish(mut self, ctx: &Context) -> Result<()> {
        self.wait(1 - self.turn, ctx)?;
        self.wait(self.turn, ctx)
    }
}

/// A context in which nobody is told of progress.
pub(crate) fn quiet(ctx: &Context) -> Context {
    Context { progress: Arc::new(zheng17_core::context::NoProgress), ..ctx.clone() }
}

/// What `make` hands on, a part of a chunk at a time.
pub(crate) type Hand<'a, T> = &'a mut dyn FnMut(T) -> Result<()>;

/// Hands on what `make` makes of chunks, in cell order, on the caller's thread. Each device makes its own while others do theirs,
/// and is at most two parts ahead. `prepare` makes what a device needs for all of its chunks.
pub(crate) fn in_order<P, T: Send>(
    matrix: &CudaMatrix,
    prepare: &(impl Fn(&Device, &[(usize, &Chunk)]) -> Result<P> + Sync),
    make: &(impl Fn(&P, &mut Stage<'_>, usize, Hand<'_, T>) -> Result<()> + Sync),
    deliver: &mut dyn FnMut(T) -> Result<()>,
) -> Result<()> {
    let begin = |at: usize| {
        let (device, chunks) = (&matrix.devices[at], chunks_of(matrix, at));
        Ok::<_, Error>((prepare(device, &chunks)?, Stage::new(device, chunks.into_iter().map(|(_, chunk)| chunk))?))
    };
    if matrix.devices.len() == 1 {
        let (prepared, mut stage) = begin(0)?;
        return (0..matrix.chunks.len()).try_for_each(|at| make(&prepared, &mut stage, at, deliver));
    }
    std::thread::scope(|scope| {
        let mut receivers = Vec::new();
        for at in 0..matrix.devices.len() {
            let (sender, receiver) = sync_channel::<Result<Option<T>>>(2);
            receivers.push(receiver);
            let begin = &begin;
            scope.spawn(move || {
                // Whoever receives no more has failed, and nobody listens.
                let stopped = || Error::cancelled();
                let work = || {
                    let (prepared, mut stage) = begin(at)?;
                    for (place, _) in chunks_of(matrix, at) {
                        let mut hand = |made| sender.send(Ok(Some(made))).map_err(|_| stopped());
                        make(&prepared, &mut stage, place, &mut hand)?;
                        sender.send(Ok(None)).map_err(|_| stopped())?;
                    }
                    Ok(())
                };
                if let Err(error) = work() {
                    let _ = sender.send(Err(error));
                }
            });
        }
        for chunk in &matrix.chunks {
            let receiver = &receivers[chunk.device];
            loop {
                match receiver.recv() {
                    Ok(Ok(Some(made))) => deliver(made)?,
                    Ok(Ok(None)) => break,
                    Ok(Err(error)) => return Err(error),
                    Err(_) => return Err(Error::internal("the thread of a device ended early")),
                }
            }
        }
        Ok(())
    })
}
