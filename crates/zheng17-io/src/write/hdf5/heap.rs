//! The heap of a file: texts of any length, in collections of many.

use super::Appender;
use super::header::{pad, put};

/// Bytes that a collection should have; a larger text has one of its own.
const COLLECTION_BYTES: usize = 1 << 16;
/// Bytes that a collection has at least.
const SMALLEST_COLLECTION: usize = 4096;
const HEAD_BYTES: usize = 16;
/// Texts are numbered in 16 bits, from 1.
const MOST_TEXTS: u16 = u16::MAX;

/// A text in the heap: the collection that it is in, its number there, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reference {
    collection: usize,
    number: u16,
    length: u32,
}

/// Collects texts.
#[derive(Default)]
pub(super) struct TextHeap {
    /// Addresses of the collections that are in the file.
    addresses: Vec<u64>,
    /// The collection that is growing, without its head.
    waiting: Vec<u8>,
    n_waiting: u16,
}

impl TextHeap {
    /// Adds a text; its bytes may stay here until [`TextHeap::flush`].
    pub(super) fn add(&mut self, text: &str, file: &mut Appender) -> std::io::Result<Reference> {
        let length = u32::try_from(text.len()).map_err(|_| std::io::Error::other("a text of more than 4 GiB"))?;
        let needed = HEAD_BYTES + text.len().next_multiple_of(8);
        if self.n_waiting == MOST_TEXTS || self.n_waiting > 0 && self.waiting.len() + needed > COLLECTION_BYTES {
            self.flush(file)?;
        }
        self.n_waiting += 1;
        put(&mut self.waiting, [self.n_waiting, 0, 0, 0], u16::to_le_bytes);
        put(&mut self.waiting, [text.len() as u64], u64::to_le_bytes);
        self.waiting.extend(text.as_bytes());
        pad(&mut self.waiting);
        Ok(Reference { collection: self.addresses.len(), number: self.n_waiting, length })
    }

    /// Writes the collection that is growing. After it, all references can be encoded.
    pub(super) fn flush(&mut self, file: &mut Appender) -> std::io::Result<()> {
        if self.n_waiting == 0 {
            return Ok(());
        }
        // What is left over is an object of number 0, which has a head as well.
        let size = (HEAD_BYTES + self.waiting.len() + HEAD_BYTES).max(SMALLEST_COLLECTION);
        let mut out = b"GCOL\x01\0\0\0".to_vec();
        put(&mut out, [size as u64], u64::to_le_bytes);
        out.append(&mut self.waiting);
        let left = size - out.len();
        put(&mut out, [0, left as u64], u64::to_le_bytes);
        out.resize(size, 0);
        self.addresses.push(file.append(&out)?);
        self.n_waiting = 0;
        Ok(())
    }

    /// The bytes of an element that refers to a text.
    pub(super) fn encode(&self, reference: Reference) -> [u8; 16] {
        let address = self.addresses.get(reference.collection).copied().unwrap_or(0);
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&reference.length.to_le_bytes());
        bytes[4..12].copy_from_slice(&address.to_le_bytes());
        bytes[12..].copy_from_slice(&u32::from(reference.number).to_le_bytes());
        bytes
    }
}
