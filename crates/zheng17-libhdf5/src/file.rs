//! A file: what stands where, and attributes.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;

use hdf5_metno_sys::h5::{H5_index_t, H5_iter_order_t};
use hdf5_metno_sys::h5a::{H5A_info_t, H5Aexists, H5Aget_space, H5Aget_type, H5Aiterate2, H5Aopen, H5Aread};
use hdf5_metno_sys::h5f::{H5F_ACC_RDONLY, H5Fopen};
use hdf5_metno_sys::h5i::{H5I_type_t, H5Iget_type, hid_t};
use hdf5_metno_sys::h5l::{H5L_info1_t, H5L_type_t, H5Lexists, H5Lget_info1, H5Literate1};
use hdf5_metno_sys::h5o::{H5O_INFO_BASIC, H5O_info1_t, H5Oexists_by_name, H5Oget_info2, H5Oopen};
use hdf5_metno_sys::h5p::H5P_DEFAULT;
use zheng17_core::{Error, Result};

use crate::dataset::{Dataset, count, shape};
use crate::handle::{Handle, c_string, check, enter, name};
use crate::types::{Type, Values};

/// An open file. Paths have no leading slash; the root group is the empty path.
pub struct File {
    handle: Handle,
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "names say what they are")]
pub enum Kind {
    Group,
    Dataset,
}

/// An attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// Empty for a single value; 0 for none.
    pub shape: Vec<u64>,
    /// The type of a value.
    pub element: Type,
    /// The values.
    pub values: Values,
}

impl File {
    /// Opens a file to read it.
    ///
    /// # Errors
    /// If the library can't open it, such as for a file that was cut.
    pub fn open(path: &Path) -> Result<Self> {
        let path = c_string(path.as_os_str().as_encoded_bytes())?;
        let _lock = enter();
        // SAFETY: the path ends with a zero and outlives the call.
        let handle = Handle::new(unsafe { H5Fopen(path.as_ptr(), H5F_ACC_RDONLY, H5P_DEFAULT) })?;
        Ok(Self { handle })
    }

    /// Names of the groups and datasets in a group, sorted. Links to other files are left out.
    ///
    /// # Errors
    /// If there is no such group.
    pub fn children(&self, group: &str) -> Result<Vec<String>> {
        let _lock = enter();
        let object = self.open_object(group)?;
        let mut names: Vec<Result<String>> = Vec::new();
        // SAFETY: the object is open; the callback gets the address of `names`, which outlives the call and has the type it expects.
        check(unsafe {
            H5Literate1(
                object.id(),
                H5_index_t::H5_INDEX_NAME,
                H5_iter_order_t::H5_ITER_NATIVE,
                ptr::null_mut(),
                Some(add_name::<H5L_info1_t>),
                (&raw mut names).cast(),
            )
        })?;
        let mut kept = Vec::new();
        for name in names {
            let name = name?;
            let path = if group.is_empty() { name.clone() } else { format!("{group}/{name}") };
            if !matches!(self.link(&path)?, Link::None | Link::Elsewhere) && kind(&self.open_object(&path)?).is_some() {
                kept.push(name);
            }
        }
        kept.sort_unstable();
        Ok(kept)
    }

    /// Where the object at a path stands in the file, whatever path leads to it.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn address(&self, path: &str) -> Result<u64> {
        let _lock = enter();
        let object = self.open_object(path)?;
        let mut info = MaybeUninit::<H5O_info1_t>::zeroed();
        // SAFETY: the object is open. The address is read alone, and any bytes are a number.
        unsafe {
            check(H5Oget_info2(object.id(), info.as_mut_ptr(), H5O_INFO_BASIC))?;
            Ok((&raw const (*info.as_ptr()).addr).read())
        }
    }

    /// What stands at a path, if anything.
    ///
    /// # Errors
    /// If it is a link to another file, or can't be opened.
    pub fn kind(&self, path: &str) -> Result<Option<Kind>> {
        let _lock = enter();
        let mut found = Some(Kind::Group);
        let ends = path.match_indices('/').map(|slash| slash.0).chain([path.len()]);
        for end in ends.filter(|_| !path.is_empty()) {
            if found != Some(Kind::Group) {
                return Ok(None);
            }
            found = match self.link(&path[..end])? {
                Link::None => return Ok(None),
                Link::Elsewhere => return Err(Error::unsupported("it is a link to another file")),
                Link::Object => kind(&self.open_object(&path[..end])?),
            };
        }
        Ok(found)
    }

    /// Names of the attributes of a group or dataset.
    ///
    /// # Errors
    /// If there is no such group or dataset.
    pub fn attribute_names(&self, path: &str) -> Result<Vec<String>> {
        let _lock = enter();
        let object = self.open_object(path)?;
        let mut names: Vec<Result<String>> = Vec::new();
        // SAFETY: the object is open; the callback gets the address of `names`, which outlives the call and has the type it expects.
        check(unsafe {
            H5Aiterate2(
                object.id(),
                H5_index_t::H5_INDEX_NAME,
                H5_iter_order_t::H5_ITER_NATIVE,
                ptr::null_mut(),
                Some(add_name::<H5A_info_t>),
                (&raw mut names).cast(),
            )
        })?;
        names.into_iter().collect()
    }

    /// An attribute of a group or dataset, if it has it.
    ///
    /// # Errors
    /// If there is no such group or dataset, or the attribute can't be read.
    pub fn attribute(&self, path: &str, name: &str) -> Result<Option<Attribute>> {
        let name = c_string(name.as_bytes())?;
        let _lock = enter();
        let object = self.open_object(path)?;
        // SAFETY: the object is open, and the name ends with a zero and outlives the calls.
        let attribute = unsafe {
            if check(H5Aexists(object.id(), name.as_ptr()))? == 0 {
                return Ok(None);
            }
            Handle::new(H5Aopen(object.id(), name.as_ptr(), H5P_DEFAULT))?
        };
        // SAFETY: the attribute is open.
        let (space, handle) =
            unsafe { (Handle::new(H5Aget_space(attribute.id()))?, Handle::new(H5Aget_type(attribute.id()))?) };
        let element = Type::of(&handle)?;
        let shape = shape(&space)?;
        // SAFETY: the type is the attribute's own, and the space has as many elements as the attribute.
        let values = unsafe {
            element.read(&handle, &space, count(&shape)?, |buffer| H5Aread(attribute.id(), handle.id(), buffer))?
        };
        Ok(Some(Attribute { shape, element, values }))
    }

    /// Opens a dataset.
    ///
    /// # Errors
    /// If there is none at this path, or its values are in another file.
    pub fn dataset(&self, path: &str) -> Result<Dataset> {
        let _lock = enter();
        match self.kind(path)? {
            Some(Kind::Dataset) => Dataset::open(&self.handle, path),
            _ => Err(Error::input("there is no such dataset")),
        }
    }

    /// The caller holds the lock.
    fn open_object(&self, path: &str) -> Result<Handle> {
        let path = c_string(if path.is_empty() { b"/" } else { path.as_bytes() })?;
        // SAFETY: the file is open; the path ends with a zero and outlives the call.
        Handle::new(unsafe { H5Oopen(self.handle.id(), path.as_ptr(), H5P_DEFAULT) })
    }

    /// What the last link of a path leads to; all before it lead to groups. The caller holds the lock.
    fn link(&self, path: &str) -> Result<Link> {
        let path = c_string(path.as_bytes())?;
        let mut info = MaybeUninit::<H5L_info1_t>::zeroed();
        // SAFETY: the file is open; the path ends with a zero and outlives the calls; the link is there when it is looked at. Its
        // kind is the first field of the record and read as a number, as a file may hold kinds that the enumeration lacks.
        let kind = unsafe {
            if check(H5Lexists(self.handle.id(), path.as_ptr(), H5P_DEFAULT))? == 0 {
                return Ok(Link::None);
            }
            check(H5Lget_info1(self.handle.id(), path.as_ptr(), info.as_mut_ptr(), H5P_DEFAULT))?;
            info.as_ptr().cast::<c_int>().read()
        };
        if kind == H5L_type_t::H5L_TYPE_HARD as c_int {
            return Ok(Link::Object);
        }
        if kind != H5L_type_t::H5L_TYPE_SOFT as c_int {
            return Ok(Link::Elsewhere);
        }
        // SAFETY: as above. A failure means that it leads nowhere, such as back to itself.
        let leads_somewhere = unsafe { H5Oexists_by_name(self.handle.id(), path.as_ptr(), H5P_DEFAULT) } > 0;
        Ok(if leads_somewhere { Link::Object } else { Link::None })
    }
}

enum Link {
    None,
    Object,
    /// To another file, or of a kind that only the program that made it knows.
    Elsewhere,
}

/// Called for each member or attribute of an object (`I` is what else the library says of it): keeps the name.
///
/// # Safety
/// `text` must end with a zero, and `names` be the address of a `Vec<Result<String>>` that nobody else uses.
unsafe extern "C" fn add_name<I>(_: hid_t, text: *const c_char, _: *const I, names: *mut c_void) -> c_int {
    // SAFETY: both are promised by the caller.
    unsafe { (*names.cast::<Vec<Result<String>>>()).push(name(text)) };
    0
}

fn kind(object: &Handle) -> Option<Kind> {
    // SAFETY: the object is open.
    match unsafe { H5Iget_type(object.id()) } {
        H5I_type_t::H5I_GROUP => Some(Kind::Group),
        H5I_type_t::H5I_DATASET => Some(Kind::Dataset),
        _ => None,
    }
}
