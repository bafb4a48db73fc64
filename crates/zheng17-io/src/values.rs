//! Number types of files turned into those of chunks: values into the smallest exact float, indices into `u32`.

use zheng17_core::source::{LARGEST_COUNT, smallest_values};
use zheng17_core::{Error, Result, Values};

use crate::hdf5::Array;
use crate::table::Numbers;

/// Values as the smallest kind that holds all of them exactly. Whole numbers that no `f64` holds become one above 2^53, which
/// the check of counts refuses.
pub(crate) fn smallest(values: Array) -> Result<Values> {
    /// The largest whole number up to which `f32` holds all of them.
    const F32_EXACT: u64 = 1 << 24;
    fn widen<T: Copy>(values: &[T], f64_of: impl Fn(T) -> f64) -> Vec<f64> {
        values.iter().map(|&value| f64_of(value)).collect()
    }
    Ok(match values {
        Array::Bools(v) => Values::F32(v.iter().map(|&value| f32::from(u8::from(value))).collect()),
        Array::Numbers(numbers) => match numbers {
            Numbers::F32(v) => Values::F32(v),
            Numbers::F64(v) => smallest_values(&v),
            Numbers::I8(v) => Values::F32(v.iter().map(|&x| f32::from(x)).collect()),
            Numbers::U8(v) => Values::F32(v.iter().map(|&x| f32::from(x)).collect()),
            Numbers::I16(v) => Values::F32(v.iter().map(|&x| f32::from(x)).collect()),
            Numbers::U16(v) => Values::F32(v.iter().map(|&x| f32::from(x)).collect()),
            Numbers::I32(v) if v.iter().all(|x| u64::from(x.unsigned_abs()) <= F32_EXACT) => {
                Values::F32(v.iter().map(|&x| x as f32).collect())
            }
            Numbers::U32(v) if v.iter().all(|&x| u64::from(x) <= F32_EXACT) => {
                Values::F32(v.iter().map(|&x| x as f32).collect())
            }
            Numbers::I64(v) if v.iter().all(|x| x.unsigned_abs() <= F32_EXACT) => {
                Values::F32(v.iter().map(|&x| x as f32).collect())
            }
            Numbers::U64(v) if v.iter().all(|&x| x <= F32_EXACT) => Values::F32(v.iter().map(|&x| x as f32).collect()),
            Numbers::I32(v) => smallest_values(&widen(&v, f64::from)),
            Numbers::U32(v) => smallest_values(&widen(&v, f64::from)),
            Numbers::I64(v) => {
                smallest_values(&widen(&v, |x| if x < 0 { x as f64 } else { f64_of_large(x.unsigned_abs()) }))
            }
            Numbers::U64(v) => smallest_values(&widen(&v, f64_of_large)),
        },
        other => return Err(Error::input(format!("numbers are expected here, but these are {}", other.describe()))),
    })
}

/// The nearest `f64`, but never 2^53 for something larger.
fn f64_of_large(value: u64) -> f64 {
    let nearest = value as f64;
    if value > LARGEST_COUNT as u64 { nearest.max(LARGEST_COUNT.next_up()) } else { nearest }
}

/// Indices as `u32`. `first` is the position of the first, for messages.
pub(crate) fn positions_as_u32(values: Array, first: u64) -> Result<Vec<u32>> {
    fn convert<T: Copy + TryInto<u32> + std::fmt::Display>(values: &[T], first: u64) -> Result<Vec<u32>> {
        let mut out = Vec::with_capacity(values.len());
        for &value in values {
            match value.try_into() {
                Ok(value) => out.push(value),
                Err(_) => {
                    return Err(Error::input(format!(
                        "index {value} at position {} is negative or too large",
                        first + out.len() as u64
                    )));
                }
            }
        }
        Ok(out)
    }
    match values {
        Array::Numbers(Numbers::U32(v)) => Ok(v),
        Array::Numbers(Numbers::I8(v)) => convert(&v, first),
        Array::Numbers(Numbers::I16(v)) => convert(&v, first),
        Array::Numbers(Numbers::I32(v)) => convert(&v, first),
        Array::Numbers(Numbers::I64(v)) => convert(&v, first),
        Array::Numbers(Numbers::U8(v)) => convert(&v, first),
        Array::Numbers(Numbers::U16(v)) => convert(&v, first),
        Array::Numbers(Numbers::U64(v)) => convert(&v, first),
        other => Err(Error::input(format!("whole numbers are expected here, but these are {}", other.describe()))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_the_smallest_exact_one() {
        let of = |numbers| smallest(Array::Numbers(numbers)).unwrap();
        assert_eq!(of(Numbers::I64(vec![0, -3, 1 << 24])), Values::F32(vec![0.0, -3.0, 16_777_216.0]));
        assert_eq!(of(Numbers::U32(vec![(1 << 24) + 1])), Values::F64(vec![16_777_217.0]));
        assert_eq!(of(Numbers::I32(vec![1 << 25])), Values::F32(vec![33_554_432.0]), "exact though large");
        assert_eq!(of(Numbers::F64(vec![0.5, 0.1])), Values::F64(vec![0.5, 0.1]));
        assert_eq!(of(Numbers::F64(vec![0.5])), Values::F32(vec![0.5]));
    }

    #[test]
    fn whole_numbers_above_2_to_the_53_stay_above_it() {
        let limit = LARGEST_COUNT as u64;
        assert_eq!(f64_of_large(limit), LARGEST_COUNT);
        assert!(f64_of_large(limit + 1) > LARGEST_COUNT);
        assert!(f64_of_large(u64::MAX) > LARGEST_COUNT);
    }

    #[test]
    fn a_negative_index_is_named_with_its_position() {
        let error = positions_as_u32(Array::Numbers(Numbers::I32(vec![4, -1])), 100).unwrap_err();
        assert_eq!(error.to_string(), "index -1 at position 101 is negative or too large");
    }
}
