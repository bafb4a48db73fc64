//! HDF5 files through the system's libhdf5: groups, attributes and rows of datasets as bytes, with a description of their type.
//!
//! This is the one crate that calls the C library, and its interface is safe: handles close themselves, and every call is made
//! under the process-wide lock of `hdf5-metno-sys`, as libhdf5 is rarely built for threads. It knows nothing of AnnData, and
//! nothing of what the bytes mean. Without the feature `system` it is empty.

#![cfg(feature = "system")]
#![allow(unsafe_code, reason = "libhdf5 is a C library; each call says why it is sound")]

mod dataset;
mod file;
mod filter;
mod handle;
mod types;

pub use dataset::Dataset;
pub use file::{Attribute, File, Kind};
pub use filter::{Filter, is_available, register};
pub use types::{Field, Other, Type, Values};
