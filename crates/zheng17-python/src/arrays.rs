//! Arrays of numpy, read where they are: by any thread, without the interpreter's lock, and without a copy.

use numpy::{Element, PyArray1, PyArrayDyn, PyArrayMethods as _, PyUntypedArray, PyUntypedArrayMethods as _};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use zheng17_core::numbers::{StoredNumber, smallest_values};
use zheng17_core::{Error, Result, Values};

/// A one-dimensional, contiguous array that stays alive as long as this.
///
/// Its numbers are read while Python may run. Whoever changes an array while another thread computes with it gets what numpy
/// gives in that case: numbers from before or after.
pub(crate) struct Borrowed<T> {
    /// Keeps the memory.
    _owner: Py<PyAny>,
    start: *const T,
    len: usize,
}

// SAFETY: the memory is read only, plain numbers, and lives as long as the owner does.
unsafe impl<T: Send> Send for Borrowed<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Borrowed<T> {}

impl<T: Element + Copy> Borrowed<T> {
    /// Borrows an array of just this number type; `None` for any other.
    fn of(array: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Ok(typed) = array.cast::<PyArray1<T>>() else {
            return Ok(None);
        };
        let aligned = (typed.data() as usize).is_multiple_of(align_of::<T>());
        if !typed.is_contiguous() || !aligned {
            return Err(PyTypeError::new_err("the array must be contiguous and aligned"));
        }
        Ok(Some(Self { _owner: array.clone().unbind(), start: typed.data(), len: typed.len() }))
    }

    /// The numbers.
    pub(crate) fn slice(&self) -> &[T] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `of` saw a contiguous, aligned array of this type and length, and the owner keeps it.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// The numbers of an array of one or two dimensions, copied row by row, however they lie. Arrays that came over a network may start
/// at any byte, which Rust's slices may not.
pub(crate) struct Copied<T> {
    /// The numbers.
    pub(crate) values: Vec<T>,
    /// Their number in each dimension.
    pub(crate) shape: Vec<usize>,
}

impl<T: Element + Copy> FromPyObject<'_, '_> for Copied<T> {
    type Error = PyErr;

    fn extract(array: pyo3::Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let typed = array.cast::<PyArrayDyn<T>>().map_err(PyErr::from)?;
        let (shape, strides) = (typed.shape().to_vec(), typed.strides());
        let (rows, columns, row_stride, column_stride) = match (shape.as_slice(), strides) {
            (&[columns], &[stride]) => (1, columns, 0, stride),
            (&[rows, columns], &[row_stride, column_stride]) => (rows, columns, row_stride, column_stride),
            _ => return Err(PyTypeError::new_err(format!("an array of {} dimensions", shape.len()))),
        };
        let start = typed.data();
        let mut values = Vec::with_capacity(rows * columns);
        for row in 0..rows as isize {
            for column in 0..columns as isize {
                // SAFETY: numpy's strides lead to numbers of the array, at any byte; the array is alive.
                values.push(unsafe { start.byte_offset(row * row_stride + column * column_stride).read_unaligned() });
            }
        }
        Ok(Self { values, shape })
    }
}

/// A borrowed array of one of some number types, and what is done with any of them.
macro_rules! any_of {
    ($(#[$doc:meta])* $name:ident { $($kind:ident($number:ty)),* }, $with:ident) => {
        $(#[$doc])*
        pub(crate) enum $name {
            $(#[allow(missing_docs, reason = "the names say it")] $kind(Borrowed<$number>),)*
        }

        impl $name {
            /// Borrows an array.
            ///
            /// # Errors
            /// `TypeError` for another number type or layout.
            pub(crate) fn of(array: &Bound<'_, PyAny>) -> PyResult<Self> {
                $(if let Some(borrowed) = Borrowed::<$number>::of(array)? {
                    return Ok(Self::$kind(borrowed));
                })*
                let found = array.cast::<PyUntypedArray>().map_or_else(
                    |_| array.get_type().to_string(),
                    |array| format!("{} dimensions of {}", array.ndim(), array.dtype()),
                );
                Err(PyTypeError::new_err(format!("an array of numbers is expected here, not {found}")))
            }

            /// How many numbers it has.
            pub(crate) fn len(&self) -> usize {
                match self {
                    $(Self::$kind(borrowed) => borrowed.len,)*
                }
            }
        }

        macro_rules! $with {
            ($array:expr, |$slice:ident| $body:expr) => {
                match $array {
                    $($name::$kind(borrowed) => {
                        let $slice = borrowed.slice();
                        $body
                    })*
                }
            };
        }
    };
}

any_of! {
    /// Values of a matrix. Booleans come as bytes.
    Numbers { F32(f32), F64(f64), I8(i8), U8(u8), I16(i16), U16(u16), I32(i32), U32(u32), I64(i64), U64(u64) }, with_numbers
}
any_of! {
    /// Row pointers, or column indices.
    Positions { I32(i32), I64(i64), U32(u32), U64(u64) }, with_positions
}

impl Numbers {
    /// Appends some values, as the smallest kind that holds all of them exactly.
    pub(crate) fn append(&self, range: std::ops::Range<usize>, out: &mut Values) {
        with_numbers!(self, |slice| append(&slice[range], out));
    }

    /// Appends the rows of a dense matrix that lies in this array row by row: the columns and values that are not zero.
    pub(crate) fn append_dense(
        &self,
        rows: std::ops::Range<usize>,
        n_columns: usize,
        out: &mut zheng17_core::CsrBuffer,
    ) {
        with_numbers!(self, |slice| append_dense(&slice[rows.start * n_columns..rows.end * n_columns], n_columns, out));
    }
}

fn append<T: StoredNumber>(values: &[T], out: &mut Values) {
    out.extend(smallest_values(values).as_ref());
}

fn append_dense<T: StoredNumber>(values: &[T], n_columns: usize, out: &mut zheng17_core::CsrBuffer) {
    let mut kept = Vec::new();
    for row in values.chunks_exact(n_columns.max(1)) {
        for (column, &value) in row.iter().enumerate() {
            // NaN is not zero.
            if value.to_f64() != 0.0 {
                out.indices.push(column as u32);
                kept.push(value);
            }
        }
        // The values follow, so the end of the row is where the indices are.
        out.indptr.push(out.indices.len() as u64);
    }
    append(&kept, &mut out.values);
}

#[allow(
    clippy::unnecessary_fallible_conversions,
    clippy::useless_conversion,
    reason = "it is neither for the other number types"
)]
impl Positions {
    /// One position.
    ///
    /// # Errors
    /// [`Error::input`] for a negative one.
    pub(crate) fn get(&self, at: usize) -> Result<u64> {
        with_positions!(self, |slice| u64::try_from(slice[at]).map_err(|_| negative(slice[at], at)))
    }

    /// Appends some positions as `u32`.
    ///
    /// # Errors
    /// [`Error::input`] for one that is negative or too large, naming its place.
    pub(crate) fn append(&self, range: std::ops::Range<usize>, out: &mut Vec<u32>) -> Result<()> {
        match self {
            // The usual ones, without a branch in the loop.
            Self::I32(borrowed) => {
                let slice = &borrowed.slice()[range.clone()];
                out.extend(slice.iter().map(|&index| index.cast_unsigned()));
                if slice.iter().all(|&index| index >= 0) {
                    return Ok(());
                }
                let at = slice.iter().position(|&index| index < 0).unwrap_or(0);
                Err(negative(slice[at], range.start + at))
            }
            _ => with_positions!(self, |slice| {
                for (at, &index) in slice[range.clone()].iter().enumerate() {
                    out.push(u32::try_from(index).map_err(|_| negative(index, range.start + at))?);
                }
                Ok(())
            }),
        }
    }
}

fn negative(index: impl std::fmt::Display, at: usize) -> Error {
    Error::input(format!("index {index} at position {at} is negative or too large"))
}
