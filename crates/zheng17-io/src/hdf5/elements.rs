//! Element types of HDF5 as far as readers need them, and how their bytes become values. Knows no files.

use zheng17_core::{Error, Result};

use super::Array;
use crate::table::Numbers;

/// The type of an element.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Element {
    Integer {
        size: usize,
        signed: bool,
        big_endian: bool,
    },
    Float {
        size: usize,
        big_endian: bool,
    },
    /// One byte, 0 or not: h5py's enumeration of FALSE and TRUE, and PyTables' bit field.
    Bool,
    /// Text of so many bytes, filled up with zeros or spaces.
    FixedText {
        size: usize,
        spaces: bool,
    },
    /// A reference of so many bytes to text in the file's heap.
    VariableText {
        size: usize,
    },
    Record {
        size: usize,
        fields: Vec<Field>,
    },
    Other {
        size: usize,
        name: String,
    },
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) offset: usize,
    pub(super) element: Element,
}

impl Element {
    /// Bytes of one element.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Integer { size, .. }
            | Self::Float { size, .. }
            | Self::FixedText { size, .. }
            | Self::VariableText { size }
            | Self::Record { size, .. }
            | Self::Other { size, .. } => *size,
        }
    }

    /// Whether its values are references to the file's heap, or hold some.
    #[cfg(not(feature = "libhdf5"))]
    pub(super) fn is_in_heap(&self) -> bool {
        match self {
            Self::VariableText { .. } => true,
            Self::Record { fields, .. } => fields.iter().any(|field| field.element.is_in_heap()),
            _ => false,
        }
    }

    /// The type as numpy names it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Integer { size, signed: true, .. } => format!("int{}", size * 8),
            Self::Integer { size, signed: false, .. } => format!("uint{}", size * 8),
            Self::Float { size, .. } => format!("float{}", size * 8),
            Self::Bool => "bool".to_owned(),
            Self::FixedText { .. } | Self::VariableText { .. } => "str".to_owned(),
            Self::Record { .. } => "record".to_owned(),
            Self::Other { name, .. } => name.clone(),
        }
    }

    /// Values from the bytes of consecutive elements. `heap_text` gives the bytes that a reference to the heap stands for.
    pub(super) fn decode(&self, raw: &[u8], heap_text: &dyn Fn(&[u8]) -> Result<Vec<u8>>) -> Result<Array> {
        if self.size() == 0 {
            return Err(Error::input("elements of no bytes"));
        }
        Ok(match self {
            Self::Integer { size, signed, big_endian } => match decode_integers(raw, *size, *signed, *big_endian) {
                Some(numbers) => Array::Numbers(numbers),
                None => Array::Other(self.name()),
            },
            Self::Float { size, big_endian } => match decode_floats(raw, *size, *big_endian) {
                Some(numbers) => Array::Numbers(numbers),
                None => Array::Other(self.name()),
            },
            Self::Bool => Array::Bools(raw.iter().map(|&byte| byte != 0).collect()),
            Self::FixedText { size, spaces } => {
                let texts = raw.chunks_exact(*size).map(|bytes| text(trim(bytes, *spaces).to_vec()));
                Array::Strings(texts.collect::<Result<_>>()?)
            }
            Self::VariableText { size } => {
                let texts = raw.chunks_exact(*size).map(|reference| {
                    let bytes = heap_text(reference)?;
                    text(trim(&bytes, false).to_vec())
                });
                Array::Strings(texts.collect::<Result<_>>()?)
            }
            Self::Record { size, fields } => {
                let mut columns = Vec::new();
                for field in fields {
                    let end = field.offset + field.element.size();
                    if end > *size {
                        return Err(Error::input(format!("field {:?} ends beyond its record", field.name)));
                    }
                    let bytes: Vec<u8> =
                        raw.chunks_exact(*size).flat_map(|row| &row[field.offset..end]).copied().collect();
                    columns.push((field.name.clone(), field.element.decode(&bytes, heap_text)?));
                }
                Array::Records(columns)
            }
            Self::Other { name, .. } => Array::Other(name.clone()),
        })
    }
}

fn trim(bytes: &[u8], spaces: bool) -> &[u8] {
    if spaces {
        let end = bytes.iter().rposition(|&byte| byte != b' ').map_or(0, |at| at + 1);
        &bytes[..end]
    } else {
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        &bytes[..end]
    }
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        Error::input(format!("text that is not UTF-8: {:?}", String::from_utf8_lossy(error.as_bytes())))
    })
}

macro_rules! decode_as {
    ($raw:expr, $big_endian:expr, $number:ty) => {{
        let elements = $raw.as_chunks::<{ size_of::<$number>() }>().0.iter();
        if $big_endian {
            elements.map(|bytes| <$number>::from_be_bytes(*bytes)).collect()
        } else {
            elements.map(|bytes| <$number>::from_le_bytes(*bytes)).collect()
        }
    }};
}

fn decode_integers(raw: &[u8], size: usize, signed: bool, big_endian: bool) -> Option<Numbers> {
    Some(match (size, signed) {
        (1, true) => Numbers::I8(decode_as!(raw, big_endian, i8)),
        (2, true) => Numbers::I16(decode_as!(raw, big_endian, i16)),
        (4, true) => Numbers::I32(decode_as!(raw, big_endian, i32)),
        (8, true) => Numbers::I64(decode_as!(raw, big_endian, i64)),
        (1, false) => Numbers::U8(raw.to_vec()),
        (2, false) => Numbers::U16(decode_as!(raw, big_endian, u16)),
        (4, false) => Numbers::U32(decode_as!(raw, big_endian, u32)),
        (8, false) => Numbers::U64(decode_as!(raw, big_endian, u64)),
        _ => return None,
    })
}

fn decode_floats(raw: &[u8], size: usize, big_endian: bool) -> Option<Numbers> {
    Some(match size {
        2 => {
            let halves: Vec<u16> = decode_as!(raw, big_endian, u16);
            Numbers::F32(halves.into_iter().map(half_to_f32).collect())
        }
        4 => Numbers::F32(decode_as!(raw, big_endian, f32)),
        8 => Numbers::F64(decode_as!(raw, big_endian, f64)),
        _ => return None,
    })
}

/// The number that the bits of an IEEE half stand for; every half is an `f32`.
fn half_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10 & 0x1f);
    let fraction = u32::from(bits & 0x3ff);
    match exponent {
        // Zero and subnormal: the fraction counts steps of 2^-24.
        0 => f32::from_bits(sign | (fraction as f32 * 2.0_f32.powi(-24)).to_bits()),
        0x1f => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn halves_are_exact() {
        let cases = [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2.0_f32.powi(-24)),
            (0x03ff, 1023.0 * 2.0_f32.powi(-24)),
            (0x7bff, 65504.0),
            (0x7c00, f32::INFINITY),
        ];
        for (bits, value) in cases {
            assert_eq!(half_to_f32(bits), value, "{bits:#06x}");
        }
        assert!(half_to_f32(0x7e00).is_nan());
        assert!(half_to_f32(0x8000).is_sign_negative());
    }

    #[test]
    fn records_become_columns() {
        let element = Element::Record {
            size: 5,
            fields: vec![
                Field { name: "index".into(), offset: 0, element: Element::FixedText { size: 3, spaces: false } },
                Field {
                    name: "n".into(),
                    offset: 3,
                    element: Element::Integer { size: 2, signed: true, big_endian: true },
                },
            ],
        };
        let Array::Records(columns) = element.decode(b"ab\0\x00\x01xyz\xff\xff", &|_| Ok(Vec::new())).unwrap() else {
            panic!("records expected");
        };
        assert_eq!(columns[0].1, Array::Strings(vec!["ab".into(), "xyz".into()]));
        assert_eq!(columns[1].1, Array::Numbers(Numbers::I16(vec![1, -1])));
    }
}
