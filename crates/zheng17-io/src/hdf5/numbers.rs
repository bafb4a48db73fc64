//! Stored numbers turned into those of matrices in one pass: shuffled or whole elements of any type become `u32` indices or the
//! smallest exact floats. Knows bytes and element types, not where they come from.
//!
//! Planes of bytes are what a shuffle makes: all first bytes, all second bytes and so on. The upper planes of indices and counts
//! are nearly always zero, which is seen at the speed of memory; then only the lower ones are put together.

use std::ops::Range;

use zheng17_core::{Result, Values};

use super::elements::Element;
use super::{Array, filters};

/// Numbers of a chunk or a part of a file, and which of them are wanted.
pub(super) struct StoredNumbers<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether the bytes are planes.
    pub(super) shuffled: bool,
    pub(super) wanted: Range<usize>,
}

/// The largest whole number up to which `f32` holds all of them, as bits.
const F32_EXACT_BITS: u32 = 24;

impl StoredNumbers<'_> {
    /// Appends the wanted numbers as indices. Gives back false, having appended nothing, where the general way is needed: for
    /// other types, and for numbers that are negative or too large.
    pub(super) fn append_indices(&self, element: &Element, out: &mut Vec<u32>) -> bool {
        let &Element::Integer { size, signed, big_endian: false } = element else { return false };
        if self.shuffled {
            let width = self.used_planes(size);
            let fits = width <= 4 && !(signed && width == size);
            if fits {
                self.append_planes(size, width, out, |index| index);
            }
            return fits;
        }
        match (size, signed) {
            (4, true) => self.append_elements(out, |bytes| {
                let index = i32::from_le_bytes(bytes);
                (index as u32, index >= 0)
            }),
            (4, false) => self.append_elements(out, |bytes| (u32::from_le_bytes(bytes), true)),
            // A negative number is a large one without its sign.
            (8, _) => self.append_elements(out, |bytes| {
                let index = u64::from_le_bytes(bytes);
                (index as u32, index >> 32 == 0)
            }),
            _ => false,
        }
    }

    /// Appends the wanted numbers as values. Gives back false, having appended nothing, where the general way is needed: for
    /// other types, and for numbers that `f32` doesn't hold.
    pub(super) fn append_values(&self, element: &Element, out: &mut Vec<f32>) -> bool {
        match *element {
            Element::Integer { size, signed, big_endian: false } if self.shuffled => {
                let width = self.used_planes(size);
                let fits = width as u32 * 8 <= F32_EXACT_BITS && !(signed && width == size);
                if fits {
                    // Below 2^24, so the detour over a signed number, which is quicker, changes nothing.
                    self.append_planes(size, width, out, |count| count as i32 as f32);
                }
                fits
            }
            Element::Float { size: 4, big_endian: false } if self.shuffled => {
                self.append_planes(4, 4, out, f32::from_bits);
                true
            }
            Element::Float { size: 8, big_endian: false } if self.shuffled => {
                let bytes = self.elements(8);
                StoredNumbers { bytes: &bytes, shuffled: false, wanted: 0..self.wanted.len() }
                    .append_values(element, out)
            }
            Element::Float { size: 4, big_endian: false } => {
                self.append_elements(out, |bytes| (f32::from_le_bytes(bytes), true))
            }
            Element::Float { size: 8, big_endian: false } => self.append_elements(out, |bytes| {
                let value = f64::from_le_bytes(bytes);
                let short = value as f32;
                (short, f64::from(short) == value || value.is_nan())
            }),
            Element::Integer { size: 1, signed: false, .. } => {
                self.append_elements(out, |[byte]| (f32::from(byte), true))
            }
            Element::Integer { size: 2, signed: false, big_endian: false } => {
                self.append_elements(out, |bytes| (f32::from(u16::from_le_bytes(bytes)), true))
            }
            Element::Integer { size: 4, big_endian: false, .. } => self.append_elements(out, |bytes| {
                let count = u32::from_le_bytes(bytes);
                (count as i32 as f32, count >> F32_EXACT_BITS == 0)
            }),
            Element::Integer { size: 8, big_endian: false, .. } => self.append_elements(out, |bytes| {
                let count = u64::from_le_bytes(bytes);
                (count as i32 as f32, count >> F32_EXACT_BITS == 0)
            }),
            _ => false,
        }
    }

    /// The wanted numbers in the general way.
    pub(super) fn decode(&self, element: &Element) -> Result<Array> {
        let no_heap = |_: &[u8]| Err(zheng17_core::Error::internal("numbers in the heap"));
        element.decode(&self.elements(element.size()), &no_heap)
    }

    /// The bytes of the wanted elements, each put together.
    fn elements(&self, size: usize) -> Vec<u8> {
        if self.shuffled {
            let planes: Vec<u8> = (0..size).flat_map(|plane| self.plane(size, plane)).copied().collect();
            filters::unshuffle(&planes, size)
        } else {
            self.bytes[self.wanted.start * size..self.wanted.end * size].to_vec()
        }
    }

    /// The wanted bytes of a plane.
    fn plane(&self, size: usize, plane: usize) -> &[u8] {
        let start = plane * (self.bytes.len() / size);
        &self.bytes[start + self.wanted.start..start + self.wanted.end]
    }

    /// How many planes there are up to the last that isn't zero.
    fn used_planes(&self, size: usize) -> usize {
        let is_used = |plane: &usize| {
            let mut blocks = self.plane(size, *plane).chunks(4096);
            blocks.any(|block| block.iter().fold(0, |all, byte| all | byte) != 0)
        };
        (0..size).rev().find(is_used).map_or(0, |plane| plane + 1)
    }

    /// Appends what the lower planes, four at most, make together.
    fn append_planes<T>(&self, size: usize, width: usize, out: &mut Vec<T>, convert: impl Fn(u32) -> T) {
        let plane = |number| self.plane(size, number).iter().map(move |&byte| u32::from(byte) << (8 * number));
        match width {
            0 | 1 => out.extend(plane(0).map(convert)),
            2 => out.extend(plane(0).zip(plane(1)).map(|(a, b)| convert(a | b))),
            3 => out.extend(plane(0).zip(plane(1)).zip(plane(2)).map(|((a, b), c)| convert(a | b | c))),
            _ => {
                let lower = plane(0).zip(plane(1)).map(|(a, b)| a | b);
                let upper = plane(2).zip(plane(3)).map(|(c, d)| c | d);
                out.extend(lower.zip(upper).map(|(lower, upper)| convert(lower | upper)));
            }
        }
    }

    /// Appends what whole elements become, or nothing if one can't.
    fn append_elements<const N: usize, T>(&self, out: &mut Vec<T>, convert: impl Fn([u8; N]) -> (T, bool)) -> bool {
        let elements = &self.bytes.as_chunks::<N>().0[self.wanted.clone()];
        let start = out.len();
        let mut all = true;
        out.extend(elements.iter().map(|&bytes| {
            let (number, fits) = convert(bytes);
            all &= fits;
            number
        }));
        if !all {
            out.truncate(start);
        }
        all
    }
}

/// Appends values that were turned into floats in the quick way, or else in the general way.
pub(super) fn append_values(numbers: &StoredNumbers<'_>, element: &Element, out: &mut Values) -> Result<()> {
    let fits = match out {
        Values::F32(out) => numbers.append_values(element, out),
        Values::F64(_) => false,
    };
    if !fits {
        out.extend(crate::values::smallest(numbers.decode(element)?)?.as_ref());
    }
    Ok(())
}

/// Appends indices, the first of which is at position `first`, in the quick way or else in the general way.
pub(super) fn append_indices(
    numbers: &StoredNumbers<'_>,
    element: &Element,
    first: u64,
    out: &mut Vec<u32>,
) -> Result<()> {
    if !numbers.append_indices(element, out) {
        out.extend(crate::values::positions_as_u32(numbers.decode(element)?, first)?);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::values::{positions_as_u32, smallest};

    /// A type, and how a whole number is written in it.
    type Written = (Element, fn(i64) -> Vec<u8>);

    /// Every plain type.
    fn types() -> Vec<Written> {
        fn integer(size: usize, signed: bool) -> Element {
            Element::Integer { size, signed, big_endian: false }
        }
        vec![
            (integer(1, true), |x| (x as i8).to_le_bytes().to_vec()),
            (integer(2, true), |x| (x as i16).to_le_bytes().to_vec()),
            (integer(4, true), |x| (x as i32).to_le_bytes().to_vec()),
            (integer(8, true), |x| x.to_le_bytes().to_vec()),
            (integer(1, false), |x| (x as u8).to_le_bytes().to_vec()),
            (integer(2, false), |x| (x as u16).to_le_bytes().to_vec()),
            (integer(4, false), |x| (x as u32).to_le_bytes().to_vec()),
            (integer(8, false), |x| (x as u64).to_le_bytes().to_vec()),
            (Element::Integer { size: 4, signed: true, big_endian: true }, |x| (x as i32).to_be_bytes().to_vec()),
            (Element::Float { size: 4, big_endian: false }, |x| (x as f32 / 4.0).to_le_bytes().to_vec()),
            (Element::Float { size: 8, big_endian: false }, |x| (x as f64 / 4.0).to_le_bytes().to_vec()),
            (Element::Float { size: 8, big_endian: true }, |x| (x as f64 / 4.0).to_be_bytes().to_vec()),
            (Element::Float { size: 2, big_endian: false }, |x| (x as u16).to_le_bytes().to_vec()),
        ]
    }

    fn shuffled(bytes: &[u8], size: usize) -> Vec<u8> {
        (0..size).flat_map(|plane| bytes.iter().skip(plane).step_by(size)).copied().collect()
    }

    proptest! {
        #[test]
        fn the_quick_way_gives_what_the_general_way_gives(
            numbers in prop::collection::vec((any::<i64>(), 0_u32..64), 1..40),
            bits in 0_u32..64,
            ends in (0_usize..40, 0_usize..40),
            first in 0_u64..1_000_000,
        ) {
            // Numbers of all lengths, most of the time small ones together.
            let numbers: Vec<i64> = numbers.iter().map(|&(x, shift)| (x >> shift) >> bits.min(62)).collect();
            let numbers: Vec<i64> = if bits % 2 == 0 { numbers.iter().map(|x| x & i64::MAX).collect() } else { numbers };
            let (start, end) = (ends.0.min(ends.1).min(numbers.len()), ends.0.max(ends.1).min(numbers.len()));
            for (element, write) in types() {
                let bytes: Vec<u8> = numbers.iter().flat_map(|&x| write(x)).collect();
                let planes = shuffled(&bytes, element.size());
                let wanted = &bytes[start * element.size()..end * element.size()];
                let general = || element.decode(wanted, &|_| unreachable!()).unwrap();
                for (bytes, shuffled) in [(&bytes, false), (&planes, true)] {
                    let stored = StoredNumbers { bytes, shuffled: shuffled && element.size() > 1, wanted: start..end };
                    let mut expected = Values::F32(vec![7.0]);
                    expected.extend(smallest(general()).unwrap().as_ref());
                    let mut found = Values::F32(vec![7.0]);
                    append_values(&stored, &element, &mut found).unwrap();
                    // As texts, so that NaN is NaN.
                    prop_assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{:?} {}", &element, shuffled);

                    let expected = positions_as_u32(general(), first).map_err(|error| error.to_string());
                    let mut found = Vec::new();
                    let done = append_indices(&stored, &element, first, &mut found).map_err(|error| error.to_string());
                    prop_assert_eq!(done.map(|()| found), expected, "{:?} {}", &element, shuffled);
                }
            }
        }
    }
}
