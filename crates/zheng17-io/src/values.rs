//! Number types of files turned into those of chunks: values into the smallest exact float, indices into `u32`.

use zheng17_core::numbers::smallest_values;
use zheng17_core::{Error, Result, Values};

use crate::hdf5::Array;
use crate::table::Numbers;

/// Values as the smallest kind that holds all of them exactly.
pub(crate) fn smallest(values: Array) -> Result<Values> {
    Ok(match values {
        Array::Bools(v) => smallest_values(&v),
        Array::Numbers(numbers) => match numbers {
            // As it is.
            Numbers::F32(v) => Values::F32(v),
            Numbers::F64(v) => smallest_values(&v),
            Numbers::I8(v) => smallest_values(&v),
            Numbers::U8(v) => smallest_values(&v),
            Numbers::I16(v) => smallest_values(&v),
            Numbers::U16(v) => smallest_values(&v),
            Numbers::I32(v) => smallest_values(&v),
            Numbers::U32(v) => smallest_values(&v),
            Numbers::I64(v) => smallest_values(&v),
            Numbers::U64(v) => smallest_values(&v),
        },
        other => return Err(Error::input(format!("numbers are expected here, but these are {}", other.describe()))),
    })
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
    fn a_negative_index_is_named_with_its_position() {
        let error = positions_as_u32(Array::Numbers(Numbers::I32(vec![4, -1])), 100).unwrap_err();
        assert_eq!(error.to_string(), "index -1 at position 101 is negative or too large");
    }
}
