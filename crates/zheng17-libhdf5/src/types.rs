//! Types of elements as the library lays them out in memory, and values as bytes.

use std::ffi::{CStr, c_char, c_void};

use hdf5_metno_sys::h5::H5free_memory;
use hdf5_metno_sys::h5d::H5Dvlen_reclaim;
use hdf5_metno_sys::h5p::H5P_DEFAULT;
use hdf5_metno_sys::h5t::{
    H5T_class_t, H5T_order_t, H5T_sign_t, H5T_str_t, H5Tget_class, H5Tget_member_name, H5Tget_member_offset,
    H5Tget_member_type, H5Tget_nmembers, H5Tget_order, H5Tget_sign, H5Tget_size, H5Tget_strpad, H5Tget_super,
    H5Tis_variable_str,
};
use zheng17_core::Result;

use crate::handle::{Handle, check, name};

/// The type of an element. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "fields say what they are")]
pub enum Type {
    Integer {
        size: usize,
        signed: bool,
        big_endian: bool,
    },
    Float {
        size: usize,
        big_endian: bool,
    },
    FixedText {
        size: usize,
        padded_with_spaces: bool,
    },
    /// A position in [`Values::texts`], 8 bytes in the machine's order.
    VariableText,
    Bits {
        size: usize,
    },
    /// Numbers that have names.
    Enumeration {
        base: Box<Type>,
        names: Vec<String>,
    },
    Record {
        size: usize,
        fields: Vec<Field>,
    },
    /// Nothing that is read here; inside records its bytes mean nothing.
    Other {
        size: usize,
        kind: Other,
    },
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "fields say what they are")]
pub struct Field {
    pub name: String,
    pub offset: usize,
    pub element: Type,
}

/// Kinds of types that are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "names say what they are")]
pub enum Other {
    NestedArray,
    List,
    Reference,
    Opaque,
    Unknown,
}

/// Values of an attribute or of some rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// The elements one after the other, as [`Type`] describes them; empty for [`Type::Other`].
    pub bytes: Vec<u8>,
    /// The texts of [`Type::VariableText`].
    pub texts: Vec<Vec<u8>>,
}

impl Type {
    /// Describes a type that is open. The caller holds the lock.
    pub(crate) fn of(handle: &Handle) -> Result<Self> {
        let id = handle.id();
        // SAFETY: the handle is an open type.
        let (class, size) = unsafe { (H5Tget_class(id), H5Tget_size(id)) };
        // SAFETY: the handle is an open type of a class that has an order.
        let big_endian = || unsafe { H5Tget_order(id) } == H5T_order_t::H5T_ORDER_BE;
        Ok(match class {
            H5T_class_t::H5T_INTEGER => {
                // SAFETY: the handle is an open type of whole numbers.
                let signed = unsafe { H5Tget_sign(id) } == H5T_sign_t::H5T_SGN_2;
                Self::Integer { size, signed, big_endian: big_endian() }
            }
            H5T_class_t::H5T_FLOAT => Self::Float { size, big_endian: big_endian() },
            // SAFETY: the handle is an open type of texts.
            H5T_class_t::H5T_STRING if check(unsafe { H5Tis_variable_str(id) })? > 0 => Self::VariableText,
            H5T_class_t::H5T_STRING => {
                // SAFETY: as above.
                let padded_with_spaces = unsafe { H5Tget_strpad(id) } == H5T_str_t::H5T_STR_SPACEPAD;
                Self::FixedText { size, padded_with_spaces }
            }
            H5T_class_t::H5T_ENUM => {
                // SAFETY: the handle is an open enumeration.
                let base = Handle::new(unsafe { H5Tget_super(id) })?;
                let names = (0..n_members(handle)?).map(|at| member_name(handle, at)).collect::<Result<_>>()?;
                Self::Enumeration { base: Box::new(Self::of(&base)?), names }
            }
            H5T_class_t::H5T_COMPOUND => {
                let field = |at| {
                    // SAFETY: the handle is an open compound type, and `at` is below its number of members.
                    let (member, offset) =
                        unsafe { (Handle::new(H5Tget_member_type(id, at))?, H5Tget_member_offset(id, at)) };
                    Ok(Field { name: member_name(handle, at)?, offset, element: Self::of(&member)? })
                };
                Self::Record { size, fields: (0..n_members(handle)?).map(field).collect::<Result<_>>()? }
            }
            H5T_class_t::H5T_BITFIELD => Self::Bits { size },
            H5T_class_t::H5T_ARRAY => Self::Other { size, kind: Other::NestedArray },
            H5T_class_t::H5T_VLEN => Self::Other { size, kind: Other::List },
            H5T_class_t::H5T_REFERENCE => Self::Other { size, kind: Other::Reference },
            H5T_class_t::H5T_OPAQUE => Self::Other { size, kind: Other::Opaque },
            _ => Self::Other { size, kind: Other::Unknown },
        })
    }

    /// Bytes of one element in memory.
    pub fn size(&self) -> usize {
        match self {
            Self::Integer { size, .. }
            | Self::Float { size, .. }
            | Self::FixedText { size, .. }
            | Self::Bits { size }
            | Self::Record { size, .. }
            | Self::Other { size, .. } => *size,
            Self::VariableText => size_of::<*const c_char>(),
            Self::Enumeration { base, .. } => base.size(),
        }
    }

    /// Bytes of one element in a file whose references to its heap have so many bytes.
    pub(crate) fn stored_size(&self, reference: usize) -> usize {
        match self {
            Self::VariableText | Self::Other { kind: Other::List, .. } => reference,
            Self::Record { size, fields } => fields.iter().map(|field| &field.element).fold(*size, |size, element| {
                size.saturating_add(element.stored_size(reference)).saturating_sub(element.size())
            }),
            _ => self.size(),
        }
    }

    /// Adds where in an element the library puts pointers to texts.
    fn find_texts(&self, offset: usize, found: &mut Vec<usize>) {
        match self {
            Self::VariableText => found.push(offset),
            Self::Record { fields, .. } => {
                for field in fields {
                    field.element.find_texts(offset + field.offset, found);
                }
            }
            _ => {}
        }
    }

    /// Reads values with a call of the library, and takes over the texts that it allocated. The caller holds the lock.
    ///
    /// # Safety
    /// `handle` is the open type that this describes, `space` an open dataspace of `count` elements, and `fill` writes at most
    /// so many elements of this type into the buffer that it is given.
    pub(crate) unsafe fn read(
        &self,
        handle: &Handle,
        space: &Handle,
        count: usize,
        fill: impl FnOnce(*mut c_void) -> i32,
    ) -> Result<Values> {
        let mut values = Values { bytes: Vec::new(), texts: Vec::new() };
        let (size, Some(length)) = (self.size(), count.checked_mul(self.size())) else {
            return Err(zheng17_core::Error::input("more bytes than a file can have"));
        };
        if length == 0 || matches!(self, Self::Other { .. }) {
            return Ok(values);
        }
        values.bytes = vec![0; length];
        check(fill(values.bytes.as_mut_ptr().cast()))?;
        if !matches!(self, Self::VariableText | Self::Record { .. }) {
            return Ok(values);
        }
        let mut offsets = Vec::new();
        self.find_texts(0, &mut offsets);
        for element in values.bytes.chunks_exact(size) {
            for &offset in &offsets {
                let pointer = element[offset..].first_chunk().map_or(0, |bytes| usize::from_ne_bytes(*bytes));
                let pointer: *const c_char = std::ptr::with_exposed_provenance(pointer);
                let text = if pointer.is_null() {
                    Vec::new()
                } else {
                    // SAFETY: the library put a pointer here to a text that ends with a zero, and it is not freed yet.
                    unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec()
                };
                values.texts.push(text);
            }
        }
        // SAFETY: the buffer holds so many elements of this type as the library wrote them; the texts were copied, and what
        // else it allocated is not used.
        check(unsafe { H5Dvlen_reclaim(handle.id(), space.id(), H5P_DEFAULT, values.bytes.as_mut_ptr().cast()) })?;
        let mut position = 0_usize;
        for element in values.bytes.chunks_exact_mut(size) {
            for &offset in &offsets {
                if let Some(bytes) = element[offset..].first_chunk_mut() {
                    *bytes = position.to_ne_bytes();
                }
                position += 1;
            }
        }
        Ok(values)
    }
}

fn n_members(handle: &Handle) -> Result<u32> {
    // SAFETY: the handle is an open enumeration or compound type.
    check(unsafe { H5Tget_nmembers(handle.id()) }).map(i32::cast_unsigned)
}

fn member_name(handle: &Handle, at: u32) -> Result<String> {
    // SAFETY: the handle is an open enumeration or compound type; the library allocates the text, which is freed once here.
    unsafe {
        let text = H5Tget_member_name(handle.id(), at);
        let copy = name(text);
        if !text.is_null() {
            H5free_memory(text.cast());
        }
        copy
    }
}
