//! The byte format of kept chunks: a tag, little-endian numbers and arrays, and a checksum over all of it.

use zheng17_core::{Error, Result};

/// The error for bytes that can't have been written.
pub(crate) fn damaged() -> Error {
    Error::input("the temporary data are damaged")
}

/// Appends to a vector.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, tag: [u8; 4]) -> Self {
        let start = out.len();
        out.extend_from_slice(&tag);
        Self { out, start }
    }

    pub(crate) fn number(&mut self, number: usize) {
        self.out.extend_from_slice(&(number as u64).to_le_bytes());
    }

    pub(crate) fn array<T: Copy, const N: usize>(&mut self, items: &[T], to_bytes: impl Fn(T) -> [u8; N]) {
        let start = self.out.len();
        self.out.resize(start + N * items.len(), 0);
        for (to, &item) in self.out[start..].chunks_exact_mut(N).zip(items) {
            to.copy_from_slice(&to_bytes(item));
        }
    }

    pub(crate) fn finish(self) {
        let checksum = crc32fast::hash(&self.out[self.start..]);
        self.out.extend_from_slice(&checksum.to_le_bytes());
    }
}

/// Reads what a [`Writer`] wrote.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], tag: [u8; 4]) -> Result<Self> {
        let (content, checksum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
            return Err(damaged());
        }
        content.strip_prefix(&tag).map(Self).ok_or_else(damaged)
    }

    pub(crate) fn number(&mut self) -> Result<usize> {
        let (head, rest) = self.0.split_first_chunk::<8>().ok_or_else(damaged)?;
        self.0 = rest;
        usize::try_from(u64::from_le_bytes(*head)).map_err(|_| damaged())
    }

    pub(crate) fn array<T, const N: usize>(&mut self, n: usize, from_bytes: impl Fn([u8; N]) -> T) -> Result<Vec<T>> {
        let n_bytes = n.checked_mul(N).filter(|&n_bytes| n_bytes <= self.0.len()).ok_or_else(damaged)?;
        let (head, rest) = self.0.split_at(n_bytes);
        self.0 = rest;
        let (items, _) = head.as_chunks::<N>();
        Ok(items.iter().map(|item| from_bytes(*item)).collect())
    }

    pub(crate) fn finish(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(damaged()) }
    }
}
