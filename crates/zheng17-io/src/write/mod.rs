//! Sinks of results: AnnData (h5ad) and 10x HDF5 files, written chunk by chunk under a temporary name.
//!
//! [`H5adWriter`] writes what scanpy 1.10 and later read, [`TenxWriter`] what Cell Ranger writes; [`copy_rest`] takes over what
//! an input has besides. [`TemporaryFile`] is for every other output. Nothing here knows the recipe.

mod array;
mod frame;
mod h5ad;
mod hdf5;
mod names;
mod rest;
mod temporary;
mod tenx;
mod uns;

pub use array::Compression;
pub use h5ad::{CreateOptions, CsrWriter, DenseWriter, H5adWriter, Place};
pub use rest::copy_rest;
pub use temporary::{TemporaryFile, check_output, remove_all_temporaries};
pub use tenx::{TenxFeatures, TenxWriter};
pub use uns::UnsValue;
