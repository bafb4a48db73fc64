//! Types of elements and shapes of datasets, as HDF5 describes them. All numbers are little-endian.

use super::header::{pad, put};

/// How an element is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredType {
    /// An integer of so many bytes.
    Integer { size: u8, signed: bool },
    /// An IEEE float of 2, 4 or 8 bytes.
    Float { size: u8 },
    /// One byte, 0 or 1, as h5py stores truth values.
    Bool,
    /// A text of so many bytes, filled up with NULs.
    FixedText { size: u32, utf8: bool },
    /// A UTF-8 text of any length, in the file's heap.
    Text,
}

impl StoredType {
    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Integer { size, .. } | Self::Float { size } => size.into(),
            Self::Bool => 1,
            Self::FixedText { size, .. } => size as usize,
            Self::Text => 16,
        }
    }

    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Integer { size, signed } => {
                head(out, 0, [u8::from(signed) << 3, 0, 0], size.into());
                put(out, [0_u16, u16::from(size) * 8], u16::to_le_bytes);
            }
            Self::Float { size } => {
                // Places of sign, exponent and fraction, counted in bits from the low end.
                let (exponent, fraction, bias) = match size {
                    2 => (5, 10, 15),
                    4 => (8, 23, 127),
                    _ => (11, 52, 1023),
                };
                let bits = size * 8;
                // The fraction has a leading one that is not stored.
                head(out, 1, [0x20, bits - 1, 0], size.into());
                put(out, [0_u16, bits.into()], u16::to_le_bytes);
                out.extend([fraction, exponent, 0, fraction]);
                put(out, [bias], u32::to_le_bytes);
            }
            Self::Bool => {
                head(out, 8, [2, 0, 0], 1);
                Self::Integer { size: 1, signed: true }.encode(out);
                out.extend(b"FALSE\0\0\0TRUE\0\0\0\0");
                out.extend([0, 1]);
            }
            Self::FixedText { size, utf8 } => head(out, 3, [1 | u8::from(utf8) << 4, 0, 0], size),
            Self::Text => {
                head(out, 9, [1, 1, 0], Self::Text.size() as u32);
                Self::Integer { size: 1, signed: false }.encode(out);
            }
        }
    }
}

/// The head of a datatype message of version 1.
fn head(out: &mut Vec<u8>, class: u8, bits: [u8; 3], size: u32) {
    out.push(1 << 4 | class);
    out.extend(bits);
    put(out, [size], u32::to_le_bytes);
}

/// The type of a dataset or attribute.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Datatype {
    Plain(StoredType),
    /// Fields by name, without gaps.
    Record(Vec<(String, StoredType)>),
}

impl Datatype {
    /// Bytes of an element.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Plain(stored) => stored.size(),
            Self::Record(fields) => fields.iter().map(|(_, stored)| stored.size()).sum(),
        }
    }

    /// Whether elements are, or hold, references to the heap.
    pub(super) fn has_texts(&self) -> bool {
        match self {
            Self::Plain(stored) => *stored == StoredType::Text,
            Self::Record(fields) => fields.iter().any(|(_, stored)| *stored == StoredType::Text),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Plain(stored) => stored.encode(&mut out),
            Self::Record(fields) => {
                let [low, high] = (fields.len() as u16).to_le_bytes();
                head(&mut out, 6, [low, high, 0], self.size() as u32);
                let mut offset = 0;
                for (name, stored) in fields {
                    let mut text = name.as_bytes().to_vec();
                    text.push(0);
                    pad(&mut text);
                    out.extend(text);
                    put(&mut out, [offset], u32::to_le_bytes);
                    // The field is no array: no dimensions, room for four of them.
                    out.extend([0; 28]);
                    stored.encode(&mut out);
                    offset += stored.size() as u32;
                }
            }
        }
        out
    }
}

/// The shape of a dataset or attribute.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Dataspace {
    /// Not even a single element.
    Nothing,
    /// No dimensions for a scalar. The first may grow without bounds or not.
    Sized { shape: Vec<usize>, may_grow: bool },
}

impl Dataspace {
    pub(super) fn sized(shape: &[usize], may_grow: bool) -> Self {
        Self::Sized { shape: shape.to_vec(), may_grow }
    }

    /// A list, or a single element where `length` is `None`.
    pub(super) fn of_list(length: Option<usize>) -> Self {
        Self::Sized { shape: length.into_iter().collect(), may_grow: false }
    }

    pub(super) fn n_elements(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Sized { shape, .. } => shape.iter().product(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            // Version 2, no dimensions, no flags, type "null".
            Self::Nothing => vec![2, 0, 0, 2],
            Self::Sized { shape, may_grow } => {
                let has_limits = !shape.is_empty();
                let mut out = vec![1, shape.len() as u8, u8::from(has_limits), 0, 0, 0, 0, 0];
                put(&mut out, shape.iter().map(|&length| length as u64), u64::to_le_bytes);
                if has_limits {
                    let limit = |(axis, &length)| if axis == 0 && *may_grow { u64::MAX } else { length as u64 };
                    put(&mut out, shape.iter().enumerate().map(limit), u64::to_le_bytes);
                }
                out
            }
        }
    }
}
