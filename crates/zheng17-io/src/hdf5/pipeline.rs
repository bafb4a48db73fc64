//! Undoes all filters of a dataset's chunks, in buffers that are used again and again. Knows bytes, not files or numbers.

use std::sync::{Mutex, PoisonError};

use zheng17_core::{Error, Result};

use super::filters::{self, Filter, SHUFFLE};

/// Memory for decoding one chunk.
#[derive(Default)]
pub(super) struct Scratch {
    /// What was read.
    pub(super) stored: Vec<u8>,
    /// What the filters made of it.
    pub(super) undone: Vec<u8>,
    /// Where the next of several filters puts what it makes.
    spare: Vec<u8>,
    inflater: filters::Inflater,
}

/// Scratch memory of a dataset: as much as threads read it at once.
#[derive(Default)]
pub(super) struct ScratchPool(Mutex<Vec<Scratch>>);

/// Buffers above this many bytes are given back to the system.
const LARGEST_SCRATCH: usize = 16 << 20;

impl ScratchPool {
    /// Does something with scratch memory of whatever content.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Scratch) -> Result<T>) -> Result<T> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut scratch = lock().pop().unwrap_or_default();
        let result = work(&mut scratch);
        let capacities = [&scratch.stored, &scratch.undone, &scratch.spare].map(Vec::capacity);
        if capacities.iter().sum::<usize>() <= LARGEST_SCRATCH {
            lock().push(scratch);
        }
        result
    }
}

/// Undoes a filter that this crate does not know: the filter, what was stored, and the most bytes that may come out.
pub(super) type UndoOther<'a> = &'a dyn Fn(&Filter, &[u8], usize) -> Result<Vec<u8>>;

/// The filters of a dataset in the order in which they were applied.
pub(super) struct Pipeline {
    filters: Vec<Filter>,
    element_size: usize,
}

impl Pipeline {
    pub(super) fn new(filters: Vec<Filter>, element_size: usize) -> Self {
        Self { filters, element_size }
    }

    /// Whether filters were left out that there are not.
    fn is_wrong(&self, mask: u32) -> bool {
        self.filters.len() < 32 && mask >> self.filters.len() != 0
    }

    fn is_applied(&self, at: usize, mask: u32) -> bool {
        at < self.filters.len() && (at >= 32 || mask >> at & 1 == 0)
    }

    /// Whether a chunk stands in the file as it is. Bit i of `mask` is set where filter i was left out.
    pub(super) fn is_plain(&self, mask: u32) -> bool {
        !self.is_wrong(mask) && (0..self.filters.len()).all(|at| !self.is_applied(at, mask))
    }

    /// Whether the bytes of the elements were shuffled before anything else was done, each element as one. Such chunks can be
    /// left as planes of bytes: all first bytes, all second bytes and so on.
    pub(super) fn is_shuffled_first(&self, mask: u32) -> bool {
        self.element_size > 1
            && self.is_applied(0, mask)
            && self.filters[0].id == SHUFFLE
            && self.filters[0].parameters.first().is_none_or(|&size| size as usize == self.element_size)
    }

    /// Undoes the filters of the chunk in `scratch.stored` into `scratch.undone`, which then has `expected` bytes, or another
    /// number if the chunk is damaged. With `leave_planes` a shuffle as in [`Pipeline::is_shuffled_first`] stays.
    pub(super) fn undo(
        &self,
        mask: u32,
        expected: usize,
        leave_planes: bool,
        scratch: &mut Scratch,
        undo_other: UndoOther<'_>,
    ) -> Result<()> {
        // The index of chunks has a checksum only in some layouts, and then not every reader looks at it everywhere.
        if self.is_wrong(mask) {
            return Err(Error::input("it leaves out filters that there are not"));
        }
        let first = usize::from(leave_planes && self.is_shuffled_first(mask));
        let Scratch { stored, undone, spare, inflater } = scratch;
        let mut is_read = true;
        for at in (first..self.filters.len()).rev().filter(|&at| self.is_applied(at, mask)) {
            // What an earlier filter made may be a little larger than the chunk: a checksum, data that did not compress.
            let limit = if at == first { expected } else { expected + expected / 8 + 4096 };
            let filter = &self.filters[at];
            // The first filter finds what was read, the others what the one before them made.
            if !is_read {
                std::mem::swap(undone, spare);
            }
            let input: &[u8] = if is_read { stored } else { spare };
            match filter.id {
                filters::DEFLATE => inflater.inflate(input, limit, undone)?,
                id if filters::is_known(id) => *undone = filters::undo(filter, input, self.element_size, limit)?,
                _ => *undone = undo_other(filter, input, limit)?,
            }
            is_read = false;
        }
        if is_read {
            std::mem::swap(stored, undone);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn undo(pipeline: &Pipeline, stored: &[u8], mask: u32, leave_planes: bool) -> Result<Vec<u8>> {
        let mut scratch = Scratch { stored: stored.to_vec(), ..Scratch::default() };
        let other = |_: &Filter, _: &[u8], _: usize| Err(Error::unsupported("other"));
        pipeline.undo(mask, 6, leave_planes, &mut scratch, &other)?;
        Ok(scratch.undone)
    }

    #[test]
    fn planes_are_left_only_where_they_are_the_elements() {
        let shuffle = |size| Filter { id: SHUFFLE, parameters: vec![size] };
        let pipeline = Pipeline::new(vec![shuffle(2)], 2);
        assert_eq!(undo(&pipeline, b"acebdf", 0, false).unwrap(), b"abcdef");
        assert_eq!(undo(&pipeline, b"acebdf", 0, true).unwrap(), b"acebdf");
        assert!(pipeline.is_shuffled_first(0) && !pipeline.is_shuffled_first(1));
        assert!(pipeline.is_plain(1) && !pipeline.is_plain(0));
        let odd = Pipeline::new(vec![shuffle(3)], 2);
        assert_eq!(undo(&odd, b"adbecf", 0, true).unwrap(), b"abcdef");
        assert!(undo(&pipeline, b"acebdf", 2, true).is_err(), "a filter that there is not");
        let unknown = Pipeline::new(vec![Filter { id: 999, parameters: Vec::new() }], 2);
        assert_eq!(undo(&unknown, b"abcdef", 0, true).unwrap_err().to_string(), "other");
    }
}
