//! Filters that the library lacks, undone by the caller's own code while the library reads.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use hdf5_metno_sys::h5::{H5allocate_memory, H5free_memory};
use hdf5_metno_sys::h5z::{H5Z_CLASS_T_VERS, H5Z_FLAG_REVERSE, H5Z_class2_t, H5Zfilter_avail, H5Zregister};
use zheng17_core::Result;

use crate::handle::{check, enter};

/// A filter that can be undone.
pub trait Filter {
    /// Its registered number.
    const NUMBER: u16;

    /// The bytes of a chunk before the filter was applied, at most `limit`; `None` if they can't be had.
    fn undo(parameters: &[u32], stored: &[u8], limit: usize) -> Option<Vec<u8>>;
}

/// How many bytes a filter must give at least and at most in the read that goes on. The library does not tell its filters, and
/// trusts what they give, so reads set it under the lock.
static AT_LEAST: AtomicUsize = AtomicUsize::new(0);
static AT_MOST: AtomicUsize = AtomicUsize::new(0);

/// Sets what filters may give until the next read. The caller holds the lock.
pub(crate) fn expect_bytes(at_least: usize, at_most: usize) {
    AT_LEAST.store(at_least, Ordering::Relaxed);
    AT_MOST.store(at_most, Ordering::Relaxed);
}

/// Whether the library can undo a filter: built in, found among the site's plugins, or registered here.
pub fn is_available(number: u16) -> bool {
    let _lock = enter();
    // SAFETY: any number may be asked for.
    unsafe { H5Zfilter_avail(c_int::from(number)) > 0 }
}

/// Makes the library use a filter of ours, unless it already has one of this number.
///
/// # Errors
/// If the library refuses it.
pub fn register<F: Filter>() -> Result<()> {
    let _lock = enter();
    if is_available(F::NUMBER) {
        return Ok(());
    }
    let class = H5Z_class2_t {
        version: H5Z_CLASS_T_VERS as c_int,
        id: c_int::from(F::NUMBER),
        encoder_present: 0,
        decoder_present: 1,
        name: c"zheng17".as_ptr(),
        can_apply: None,
        set_local: None,
        filter: Some(undo::<F>),
    };
    // SAFETY: the library copies the class; its name and its function live as long as the process.
    check(unsafe { H5Zregister((&raw const class).cast()) }).map(|_| ())
}

/// Called by the library; returns the number of bytes, or 0 for a failure.
unsafe extern "C" fn undo<F: Filter>(
    flags: c_uint,
    n_parameters: usize,
    parameters: *const c_uint,
    n_bytes: usize,
    size: *mut usize,
    buffer: *mut *mut c_void,
) -> usize {
    if flags & H5Z_FLAG_REVERSE == 0 {
        return 0;
    }
    let parameters = if n_parameters == 0 || parameters.is_null() {
        &[][..]
    } else {
        // SAFETY: the library passes so many parameters.
        unsafe { std::slice::from_raw_parts(parameters, n_parameters) }
    };
    // SAFETY: the library passes the address of a buffer that holds so many bytes, and nobody else uses it meanwhile.
    let stored = unsafe { std::slice::from_raw_parts((*buffer).cast::<u8>().cast_const(), n_bytes) };
    let (at_least, at_most) = (AT_LEAST.load(Ordering::Relaxed), AT_MOST.load(Ordering::Relaxed));
    // A panic must not cross the library.
    let Ok(Some(undone)) = std::panic::catch_unwind(|| F::undo(parameters, stored, at_most)) else { return 0 };
    if undone.is_empty() || undone.len() < at_least || undone.len() > at_most {
        return 0;
    }
    // SAFETY: the library frees the buffer of a filter with its own allocator, so the new one comes from there; it has the
    // length of what is copied. The old one is no longer borrowed.
    unsafe {
        let copy = H5allocate_memory(undone.len(), 0);
        if copy.is_null() {
            return 0;
        }
        ptr::copy_nonoverlapping(undone.as_ptr(), copy.cast::<u8>(), undone.len());
        H5free_memory(*buffer);
        *buffer = copy;
        *size = undone.len();
    }
    undone.len()
}
