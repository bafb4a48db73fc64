//! How a pass goes over the chunks of a matrix: a thread for each device, chunks in their order, the next one copied to the device
//! while the one before is computed with.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use cudarc::driver::CudaStream;
use zheng17_core::{Context, Error, Result};

use crate::chunk::{Chunk, Place};
use crate::device::{Device, DeviceBuffer, Pinned};
use crate::matrix::{CudaMatrix, Present};

/// Which device has each of `n` units of cells. In every stretch of units each device has its share, which is to the others' as its
/// memory is to theirs: so all of them are at work on neighbouring cells, and none waits for another to come to its cells.
pub(crate) fn deal(limits: &[u64], n: usize) -> Vec<usize> {
    let all: u128 = limits.iter().map(|&limit| u128::from(limit)).sum::<u128>().max(1);
    let mut dealt = vec![0_u128; limits.len()];
    (1..=n as u128)
        .map(|units| {
            // The device that is furthest behind its share; the first of those that are equally far.
            let behind = |device: usize| (u128::from(limits[device]) * units).saturating_sub(dealt[device] * all);
            let next = (0..limits.len()).rev().max_by_key(|&device| behind(device)).unwrap_or(0);
            dealt[next] += 1;
            next
        })
        .collect()
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
    ) -> Result<(Present<'s>, &'d Arc<CudaStream>)> {
        ctx.check_cancelled()?;
        self.turn = 1 - self.turn;
        let stream = &self.device.streams[self.turn];
        self.wait(self.turn, ctx)?;
        self.pending[self.turn] = chunk.layout.n_rows;
        if let Place::Host(words) = &chunk.place {
            let (pinned, buffer) = &mut self.slots[self.turn];
            pinned.send(stream, words, buffer)?;
        }
        Ok(self.again(chunk))
    }

    /// The chunk that was taken last, once more.
    pub(crate) fn again<'s>(&'s self, chunk: &'s Chunk) -> (Present<'s>, &'d Arc<CudaStream>) {
        let buffer = match &chunk.place {
            Place::Device(buffer) => buffer,
            Place::Host(_) => &self.slots[self.turn].1,
        };
        (Present { layout: chunk.layout, buffer }, &self.device.streams[self.turn])
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

/// What `make` hands on, a part of a piece of work at a time.
pub(crate) type Hand<'a, T> = &'a mut dyn FnMut(T) -> Result<()>;

/// How far a worker may be ahead of what was delivered, in parts.
const AHEAD: usize = 2;

/// Does pieces of work on several threads, each its own: `turns` has the worker of each piece. What `make` hands on is delivered on
/// the caller's thread, in the order of the pieces, while workers are ahead by a few parts. The error that is returned is the
/// first in that order. `begin` makes what a worker needs for all of its pieces.
pub(crate) fn in_turn<S, T: Send>(
    turns: &[usize],
    begin: &(impl Fn(usize) -> Result<S> + Sync),
    make: &(impl Fn(&mut S, usize, Hand<'_, T>) -> Result<()> + Sync),
    deliver: Hand<'_, T>,
) -> Result<()> {
    let n_workers = turns.iter().max().map_or(0, |&last| last + 1);
    std::thread::scope(|scope| {
        let mut receivers = Vec::new();
        for worker in 0..n_workers {
            let (sender, receiver) = sync_channel::<Result<Option<T>>>(AHEAD);
            receivers.push(receiver);
            scope.spawn(move || {
                // Whoever receives no more has failed, and nobody listens.
                let send = |part| sender.send(Ok(part)).map_err(|_| Error::cancelled());
                let work = || {
                    let mut pieces = (0..turns.len()).filter(|&piece| turns[piece] == worker).peekable();
                    let mut state = if pieces.peek().is_some() { begin(worker)? } else { return Ok(()) };
                    for piece in pieces {
                        make(&mut state, piece, &mut |part| send(Some(part)))?;
                        send(None)?;
                    }
                    Ok(())
                };
                if let Err(error) = work() {
                    let _ = sender.send(Err(error));
                }
            });
        }
        for &worker in turns {
            loop {
                match receivers[worker].recv() {
                    Ok(Ok(Some(part))) => deliver(part)?,
                    Ok(Ok(None)) => break,
                    Ok(Err(error)) => return Err(error),
                    Err(_) => return Err(Error::internal("a thread ended early")),
                }
            }
        }
        Ok(())
    })
}

/// Hands on what `make` makes of chunks, in cell order, on the caller's thread, while the devices make others. `prepare` makes what
/// a device needs for all of its chunks.
pub(crate) fn in_order<'m, P, T: Send>(
    matrix: &'m CudaMatrix,
    prepare: &(impl Fn(&'m Device, &[(usize, &Chunk)]) -> Result<P> + Sync),
    make: &(impl Fn(&mut P, &mut Stage<'m>, usize, Hand<'_, T>) -> Result<()> + Sync),
    deliver: Hand<'_, T>,
) -> Result<()> {
    let turns: Vec<usize> = matrix.chunks.iter().map(|chunk| chunk.device).collect();
    let begin = |at: usize| {
        let (device, chunks) = (&matrix.devices[at], chunks_of(matrix, at));
        Ok((prepare(device, &chunks)?, Stage::new(device, chunks.into_iter().map(|(_, chunk)| chunk))?))
    };
    in_turn(&turns, &begin, &|(prepared, stage), at, hand| make(prepared, stage, at, hand), deliver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_its_share_of_every_stretch() {
        assert_eq!(deal(&[5, 5, 5], 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(deal(&[1, 3], 8), [1, 0, 1, 1, 1, 0, 1, 1]);
        assert_eq!(deal(&[u64::MAX, u64::MAX], 3), [0, 1, 0]);
        assert_eq!(deal(&[0, 7], 3), [1, 1, 1]);
        assert_eq!(deal(&[9], 0), []);
    }

    #[test]
    fn work_is_delivered_in_order_and_the_first_error_counts() {
        let turns = [0, 1, 2, 1, 0, 0, 2];
        let mut delivered = Vec::new();
        let deliver = &mut |part: (usize, usize)| {
            delivered.push(part);
            Ok(())
        };
        let make = |(): &mut (), piece: usize, hand: Hand<'_, (usize, usize)>| {
            (0..piece).try_for_each(|part| hand((piece, part)))
        };
        in_turn(&turns, &|_| Ok(()), &make, deliver).expect("no error");
        let expected: Vec<(usize, usize)> =
            (0..7).flat_map(|piece| (0..piece).map(move |part| (piece, part))).collect();
        assert_eq!(delivered, expected);
        let fails = |(): &mut (), piece: usize, hand: Hand<'_, usize>| match piece {
            2 | 3 => Err(Error::usage(format!("piece {piece}"))),
            _ => hand(piece),
        };
        let mut last = 0;
        let error = in_turn(&turns, &|_| Ok(()), &fails, &mut |piece| {
            last = piece;
            Ok(())
        });
        assert_eq!((error.expect_err("piece 2").to_string().as_str(), last), ("piece 2", 1));
        let refused = in_turn(&turns, &|_| Ok(()), &make, &mut |_| Err(Error::cancelled()));
        assert!(refused.is_err());
    }
}
