//! A dataset: how it is stored, and rows of it.

use std::ops::Range;
use std::ptr;

use hdf5_metno_sys::h5d::{
    H5D_layout_t, H5D_space_status_t, H5Dget_create_plist, H5Dget_num_chunks, H5Dget_space, H5Dget_space_status,
    H5Dget_storage_size, H5Dget_type, H5Dopen2, H5Dread,
};
use hdf5_metno_sys::h5f::{H5Fget_create_plist, H5Fget_filesize};
use hdf5_metno_sys::h5p::{
    H5P_CLS_DATASET_ACCESS, H5P_DEFAULT, H5Pcreate, H5Pget_chunk, H5Pget_external_count, H5Pget_filter2, H5Pget_layout,
    H5Pget_nfilters, H5Pget_sizes, H5Pset_chunk_cache,
};
use hdf5_metno_sys::h5s::{
    H5S_class_t, H5S_seloper_t, H5Screate_simple, H5Sget_simple_extent_dims, H5Sget_simple_extent_ndims,
    H5Sget_simple_extent_type, H5Sselect_hyperslab,
};
use zheng17_core::{Error, Result};

use crate::filter::expect_bytes;
use crate::handle::{Handle, c_string, check, enter};
use crate::types::{Type, Values};

/// Decoded chunks are kept up to this many bytes for each dataset, and the last one however large it is.
const KEPT_BYTES: u64 = 16 << 20;

/// Slots of the table of kept chunks: a prime, so that chunks side by side rarely meet.
const KEPT_SLOTS: usize = 4099;

/// Values that were never written may make up this many bytes of one read; more means a header that claims what is not there.
const MOST_UNWRITTEN_BYTES: u64 = 64 << 20;

const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;

/// An open dataset; it keeps its file open.
pub struct Dataset {
    handle: Handle,
    element_handle: Handle,
    element: Type,
    shape: Vec<u64>,
    chunk_shape: Option<Vec<u64>>,
    filters: Vec<u16>,
    n_written: u64,
    /// Bytes of an element in the file, where texts are references to the heap.
    stored_size: usize,
    stored_bytes: u64,
    is_written: bool,
}

impl Dataset {
    /// The caller holds the lock.
    pub(crate) fn open(file: &Handle, path: &str) -> Result<Self> {
        let c_path = c_string(path.as_bytes())?;
        let open = |access| {
            // SAFETY: the file is open; the path ends with a zero and outlives the call.
            Handle::new(unsafe { H5Dopen2(file.id(), c_path.as_ptr(), access) })
        };
        let mut handle = open(H5P_DEFAULT)?;
        // SAFETY: the dataset is open.
        let (properties, element_handle, space) = unsafe {
            (
                Handle::new(H5Dget_create_plist(handle.id()))?,
                Handle::new(H5Dget_type(handle.id()))?,
                Handle::new(H5Dget_space(handle.id()))?,
            )
        };
        // SAFETY: the list is open and a dataset's.
        let (layout, n_elsewhere) =
            unsafe { (H5Pget_layout(properties.id()), check(H5Pget_external_count(properties.id()))?) };
        if n_elsewhere > 0 {
            return Err(Error::unsupported("its values are in another file"));
        }
        let shape = shape(&space)?;
        let chunk_shape = match layout {
            H5D_layout_t::H5D_CHUNKED => {
                let mut lengths = vec![0; shape.len()];
                // SAFETY: the list is open and a chunked dataset's; there is room for so many dimensions.
                let n = unsafe { H5Pget_chunk(properties.id(), lengths.len() as i32, lengths.as_mut_ptr()) };
                if check(n)? as usize != lengths.len() || lengths.contains(&0) {
                    return Err(Error::input("chunks without elements"));
                }
                Some(lengths)
            }
            H5D_layout_t::H5D_COMPACT | H5D_layout_t::H5D_CONTIGUOUS => None,
            _ => return Err(Error::unsupported("it is made up of other datasets")),
        };
        let element = Type::of(&element_handle)?;
        if element.size() == 0 {
            return Err(Error::input("elements of no bytes"));
        }
        let stored_size = element.stored_size(reference_size(file)?);
        let mut n_written = 0;
        if let Some(lengths) = &chunk_shape {
            let kept = chunk_bytes(lengths, stored_size).max(KEPT_BYTES);
            // SAFETY: the class is the library's own; the list is open.
            let access = unsafe {
                let access = Handle::new(H5Pcreate(*H5P_CLS_DATASET_ACCESS))?;
                check(H5Pset_chunk_cache(access.id(), KEPT_SLOTS, kept as usize, 1.0))?;
                access
            };
            // A dataset that is open already would keep the table it has.
            drop(handle);
            handle = open(access.id())?;
            // SAFETY: dataset and space are open, and the number outlives the call.
            check(unsafe { H5Dget_num_chunks(handle.id(), space.id(), &raw mut n_written) })?;
        }
        let mut file_bytes = 0;
        // SAFETY: the file is open, and the number outlives the call.
        check(unsafe { H5Fget_filesize(file.id(), &raw mut file_bytes) })?;
        let mut status = H5D_space_status_t::H5D_SPACE_STATUS_ERROR;
        // SAFETY: the dataset is open, and the status outlives the call.
        let stored_bytes = unsafe {
            check(H5Dget_space_status(handle.id(), &raw mut status))?;
            H5Dget_storage_size(handle.id()).min(file_bytes)
        };
        let is_written = status != H5D_space_status_t::H5D_SPACE_STATUS_NOT_ALLOCATED;
        let filters = filters(&properties)?;
        Ok(Self {
            handle,
            element_handle,
            element,
            shape,
            chunk_shape,
            filters,
            n_written,
            stored_size,
            stored_bytes,
            is_written,
        })
    }

    /// Lengths of the dimensions; empty for a single value, 0 for none.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The type of an element.
    pub fn element(&self) -> &Type {
        &self.element
    }

    /// Lengths of the dimensions of a chunk, if it is stored in chunks.
    pub fn chunk_shape(&self) -> Option<&[u64]> {
        self.chunk_shape.as_deref()
    }

    /// Registered numbers of the filters in the order in which they were applied.
    pub fn filters(&self) -> &[u16] {
        &self.filters
    }

    /// Number of chunks that were written.
    pub fn n_written_chunks(&self) -> u64 {
        self.n_written
    }

    /// Whether anything was written.
    pub fn is_written(&self) -> bool {
        self.is_written
    }

    /// Reads consecutive rows: elements of a dataset with one dimension, rows of one with more; a single value has one row.
    ///
    /// # Errors
    /// If there are no such rows, most of them were never written, or the library can't read them.
    pub fn read(&self, rows: Range<u64>) -> Result<Values> {
        let n_rows = self.shape.first().copied().unwrap_or(1);
        if rows.start > rows.end || rows.end > n_rows {
            return Err(Error::internal(format!("rows {}..{} of {n_rows} were asked for", rows.start, rows.end)));
        }
        let mut lengths = self.shape.clone();
        let mut starts = vec![0; lengths.len()];
        if let (Some(length), Some(start)) = (lengths.first_mut(), starts.first_mut()) {
            *length = rows.end - rows.start;
            *start = rows.start;
        }
        let count = if rows.is_empty() { 0 } else { count(&lengths)? };
        if count == 0 {
            return Ok(Values { bytes: Vec::new(), texts: Vec::new() });
        }
        let chunk_bytes = self.chunk_shape.as_ref().map(|lengths| chunk_bytes(lengths, self.stored_size));
        let there = match chunk_bytes {
            Some(bytes) => bytes.saturating_mul(self.n_written),
            None => self.stored_bytes,
        };
        let asked = (count as u64).saturating_mul(self.element.size() as u64);
        if asked > there.saturating_add(MOST_UNWRITTEN_BYTES) {
            return Err(Error::input("most of its values were never written"));
        }
        let _lock = enter();
        if let Some(bytes) = chunk_bytes {
            // The library trusts a filter to give a whole chunk. Where two of them change the length, the outer gives less.
            let n_changing = self.filters.iter().filter(|&&number| number != SHUFFLE && number != FLETCHER32).count();
            let bytes = bytes as usize;
            expect_bytes(if n_changing > 1 { 1 } else { bytes }, bytes.saturating_add(bytes / 8 + 4096));
        }
        // SAFETY: the dataset is open; the arrays have as many numbers as it has dimensions and outlive the calls.
        let (file_space, memory_space) = unsafe {
            let file_space = Handle::new(H5Dget_space(self.handle.id()))?;
            if lengths.is_empty() {
                (file_space, Handle::new(H5Dget_space(self.handle.id()))?)
            } else {
                check(H5Sselect_hyperslab(
                    file_space.id(),
                    H5S_seloper_t::H5S_SELECT_SET,
                    starts.as_ptr(),
                    ptr::null(),
                    lengths.as_ptr(),
                    ptr::null(),
                ))?;
                let rank = lengths.len() as i32;
                (file_space, Handle::new(H5Screate_simple(rank, lengths.as_ptr(), ptr::null()))?)
            }
        };
        // SAFETY: the type is the dataset's own, and both spaces select `count` elements.
        unsafe {
            self.element.read(&self.element_handle, &memory_space, count, |buffer| {
                H5Dread(
                    self.handle.id(),
                    self.element_handle.id(),
                    memory_space.id(),
                    file_space.id(),
                    H5P_DEFAULT,
                    buffer,
                )
            })
        }
    }
}

/// Bytes of a reference to the heap of a file: a length, an address, an index.
fn reference_size(file: &Handle) -> Result<usize> {
    let (mut address_size, mut length_size) = (0, 0);
    // SAFETY: the file is open, and the numbers outlive the call.
    unsafe {
        let properties = Handle::new(H5Fget_create_plist(file.id()))?;
        check(H5Pget_sizes(properties.id(), &raw mut address_size, &raw mut length_size))?;
    }
    Ok(4 + address_size + 4)
}

fn chunk_bytes(lengths: &[u64], element_size: usize) -> u64 {
    lengths.iter().fold(element_size as u64, |product, &length| product.saturating_mul(length))
}

fn filters(properties: &Handle) -> Result<Vec<u16>> {
    // SAFETY: the list is open and a dataset's.
    let n = check(unsafe { H5Pget_nfilters(properties.id()) })?;
    let number = |at| {
        let (mut flags, mut n_parameters, mut configuration) = (0, 0, 0);
        // SAFETY: the list is open; it has a filter at this place; no room for parameters or a name is offered, and what is
        // written outlives the call.
        let number = unsafe {
            H5Pget_filter2(
                properties.id(),
                at,
                &raw mut flags,
                &raw mut n_parameters,
                ptr::null_mut(),
                0,
                ptr::null_mut(),
                &raw mut configuration,
            )
        };
        let number = check(number)?;
        u16::try_from(number).map_err(|_| Error::input(format!("{number} is no number of a filter")))
    };
    (0..n.cast_unsigned()).map(number).collect()
}

/// Lengths of the dimensions of an open dataspace; empty for a single value, 0 for none. The caller holds the lock.
pub(crate) fn shape(space: &Handle) -> Result<Vec<u64>> {
    // SAFETY: the space is open; there is room for all its dimensions.
    unsafe {
        if H5Sget_simple_extent_type(space.id()) == H5S_class_t::H5S_NULL {
            return Ok(vec![0]);
        }
        let n = check(H5Sget_simple_extent_ndims(space.id()))?;
        let mut lengths = vec![0; n as usize];
        check(H5Sget_simple_extent_dims(space.id(), lengths.as_mut_ptr(), ptr::null_mut()))?;
        Ok(lengths)
    }
}

/// Number of elements.
pub(crate) fn count(shape: &[u64]) -> Result<usize> {
    let count = shape.iter().try_fold(1_u64, |product, &length| product.checked_mul(length));
    count
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| Error::input("more elements than a file can have"))
}
