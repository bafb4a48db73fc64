//! Handles of libhdf5 that close themselves, the lock, and what the library says when a call fails.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use hdf5_metno_sys::LOCK;
use hdf5_metno_sys::h5::H5get_libversion;
use hdf5_metno_sys::h5e::{H5E_DEFAULT, H5E_direction_t, H5E_error2_t, H5Eclear2, H5Eset_auto2, H5Ewalk2};
use hdf5_metno_sys::h5i::{H5Idec_ref, hid_t};
use zheng17_core::{Error, Result};

/// Takes the lock of the library until the result is dropped; the thread that has it may take it again.
pub(crate) fn enter() -> impl Sized {
    let guard = LOCK.lock();
    // SAFETY: no callback and no data are passed. It stops the library from printing errors; they are returned instead.
    unsafe { H5Eset_auto2(H5E_DEFAULT, None, ptr::null_mut()) };
    guard
}

/// Something open in the library: a file, an object, a type, a dataspace, a list of properties.
pub(crate) struct Handle(hid_t);

impl Handle {
    /// Takes over what a call returned; negative means that it failed.
    pub(crate) fn new(id: hid_t) -> Result<Self> {
        if id < 0 { Err(failure()) } else { Ok(Self(id)) }
    }

    pub(crate) fn id(&self) -> hid_t {
        self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _lock = enter();
        // SAFETY: the handle is open, and this is its only owner.
        unsafe { H5Idec_ref(self.0) };
    }
}

/// An error if a call returned a negative number; what it returned otherwise.
pub(crate) fn check(status: c_int) -> Result<c_int> {
    if status < 0 { Err(failure()) } else { Ok(status) }
}

/// A path or a name as the library takes it.
pub(crate) fn c_string(text: &[u8]) -> Result<CString> {
    CString::new(text).map_err(|error| Error::input("a name with a zero byte").with_source(error))
}

/// A name that the library gave.
///
/// # Safety
/// It is null or points to bytes that end with a zero and stay as they are during the call.
pub(crate) unsafe fn name(text: *const c_char) -> Result<String> {
    if text.is_null() {
        return Err(failure());
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { CStr::from_ptr(text) };
    match bytes.to_str() {
        Ok(name) => Ok(name.to_owned()),
        Err(_) => Err(Error::input(format!("a name that is not UTF-8: {:?}", bytes.to_string_lossy()))),
    }
}

/// What libhdf5 said of the call that failed last.
#[derive(Debug)]
struct Said(String);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "libhdf5 says: {}", self.0)
    }
}

impl std::error::Error for Said {}

/// The error of the call that failed last, in the words of the library's innermost function.
pub(crate) fn failure() -> Error {
    unsafe extern "C" fn first(_: c_uint, error: *const H5E_error2_t, found: *mut c_void) -> c_int {
        // SAFETY: the library passes a record of its stack, and hands on the address of `found` below; nobody else uses it.
        let (error, found) = unsafe { (&*error, &mut *found.cast::<Option<String>>()) };
        if found.is_none() && !error.desc.is_null() {
            // SAFETY: descriptions end with a zero.
            *found = Some(unsafe { CStr::from_ptr(error.desc) }.to_string_lossy().into_owned());
        }
        0
    }
    let _lock = enter();
    let mut found: Option<String> = None;
    // SAFETY: the callback gets the address of `found`, which outlives the call, and has the type that it expects.
    unsafe {
        H5Ewalk2(H5E_DEFAULT, H5E_direction_t::H5E_WALK_UPWARD, Some(first), (&raw mut found).cast());
        H5Eclear2(H5E_DEFAULT);
    }
    let said = Said(found.unwrap_or_else(|| "nothing".to_owned()));
    if said.0.starts_with("bad version number") {
        let (mut major, mut minor, mut release) = (0, 0, 0);
        // SAFETY: the numbers outlive the call.
        unsafe { H5get_libversion(&raw mut major, &raw mut minor, &raw mut release) };
        let what = format!("damaged, or newer than libhdf5 {major}.{minor}.{release} can read");
        return Error::input(what).with_source(said);
    }
    Error::input("the HDF5 structure can't be read").with_source(said)
}
