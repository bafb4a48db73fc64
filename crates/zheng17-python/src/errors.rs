//! Errors of the library as Python's own exceptions.

use pyo3::PyErr;
use pyo3::exceptions::{
    PyKeyboardInterrupt, PyMemoryError, PyNotImplementedError, PyOSError, PyRuntimeError, PyValueError,
};
use zheng17_core::{Error, ErrorKind};

/// `ValueError` for what the caller can change, `NotImplementedError` for what can't be done here, `OSError` or `MemoryError` for
/// what the system refused, `RuntimeError` for our own faults.
pub(crate) fn exception(error: &Error) -> PyErr {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Usage | ErrorKind::Input => PyValueError::new_err(text),
        ErrorKind::Unsupported => PyNotImplementedError::new_err(text),
        ErrorKind::System if text.contains("memory") => PyMemoryError::new_err(text),
        ErrorKind::System => PyOSError::new_err(text),
        ErrorKind::Cancelled => PyKeyboardInterrupt::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}

/// What is a fault of ours where the library calls itself is one of the caller who brings chunks that don't belong together.
pub(crate) fn of_caller(error: Error) -> Error {
    if error.kind() == ErrorKind::Internal { Error::usage(error.to_string()) } else { error }
}

/// A result of the library as one of Python.
pub(crate) trait OrException<T> {
    /// The value, or the exception of the error.
    fn or_exception(self) -> Result<T, PyErr>;
}

impl<T> OrException<T> for zheng17_core::Result<T> {
    fn or_exception(self) -> Result<T, PyErr> {
        self.map_err(|error| exception(&error))
    }
}
