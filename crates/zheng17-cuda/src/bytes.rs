//! Numbers as bytes and back, as device memory has them: little-endian, as every machine with CUDA is.
#![allow(unsafe_code, reason = "slices of plain numbers are looked at as bytes")]

/// Numbers of which every pattern of bits is one, without padding.
///
/// # Safety
/// Types must be such.
pub(crate) unsafe trait Plain: Copy + Default + Send {}

// SAFETY: plain numbers.
unsafe impl Plain for u8 {}
// SAFETY: plain numbers.
unsafe impl Plain for u16 {}
// SAFETY: plain numbers.
unsafe impl Plain for u32 {}
// SAFETY: plain numbers.
unsafe impl Plain for u64 {}
// SAFETY: plain numbers.
unsafe impl Plain for f32 {}
// SAFETY: plain numbers.
unsafe impl Plain for f64 {}

/// The bytes of numbers.
pub(crate) fn bytes_of<T: Plain>(numbers: &[T]) -> &[u8] {
    // SAFETY: plain numbers have no padding, and any address will do for bytes.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The bytes of numbers, to be written.
pub(crate) fn bytes_of_mut<T: Plain>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes are a number.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// Bytes as numbers.
///
/// # Panics
/// If they don't begin where such a number may, or are not a whole number of them.
pub(crate) fn numbers_of<T: Plain>(bytes: &[u8]) -> &[T] {
    assert!(bytes.as_ptr().cast::<T>().is_aligned() && bytes.len().is_multiple_of(size_of::<T>()), "whole numbers");
    // SAFETY: just checked; any bytes are a number.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
}

/// Bytes as numbers, to be written.
///
/// # Panics
/// As [`numbers_of`].
pub(crate) fn numbers_of_mut<T: Plain>(bytes: &mut [u8]) -> &mut [T] {
    assert!(bytes.as_ptr().cast::<T>().is_aligned() && bytes.len().is_multiple_of(size_of::<T>()), "whole numbers");
    // SAFETY: just checked; any bytes are a number.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / size_of::<T>()) }
}
