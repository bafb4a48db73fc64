//! The byte format of summaries: a magic number, a tag, a version, then little-endian numbers.

use crate::error::{Error, Result};

const MAGIC: [u8; 4] = *b"ZH17";

/// Raised whenever the meaning of the bytes changes.
const VERSION: u32 = 1;

/// The error for bytes that can't have been written.
pub(super) fn damaged() -> Error {
    Error::input("the summary is damaged")
}

pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(tag: [u8; 4]) -> Self {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&tag);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        Self(bytes)
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn usize(&mut self, value: usize) {
        self.u64(value as u64);
    }

    pub(super) fn u128(&mut self, value: u128) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn f64(&mut self, value: f64) {
        self.u64(value.to_bits());
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], tag: [u8; 4]) -> Result<Self> {
        let mut reader = Self(bytes);
        let found_magic = reader.array::<4>()?;
        let found_tag = reader.array::<4>()?;
        if found_magic != MAGIC || found_tag != tag {
            return Err(Error::input("these bytes are not a summary of this kind"));
        }
        match u32::from_le_bytes(reader.array()?) {
            VERSION => Ok(reader),
            other => {
                Err(Error::input(format!("a summary of format version {other}; this program reads version {VERSION}")))
            }
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| Error::input("the summary is cut short"))?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn bool(&mut self) -> Result<bool> {
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(damaged()),
        }
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn usize(&mut self) -> Result<usize> {
        usize::try_from(self.u64()?).map_err(|_| damaged())
    }

    /// A number of items of at least `item_size` bytes each, which the rest of the bytes must have room for.
    pub(super) fn len(&mut self, item_size: usize) -> Result<usize> {
        let len = self.usize()?;
        if len > self.0.len() / item_size {
            return Err(Error::input("the summary is cut short"));
        }
        Ok(len)
    }

    pub(super) fn u128(&mut self) -> Result<u128> {
        self.array().map(u128::from_le_bytes)
    }

    pub(super) fn f64(&mut self) -> Result<f64> {
        self.u64().map(f64::from_bits)
    }

    pub(super) fn finish(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::input("there are bytes behind the summary")) }
    }
}
