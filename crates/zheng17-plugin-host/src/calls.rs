//! What goes into a call and comes out of it: chunks as C sees them, messages, statuses, 128-bit integers.

use std::ffi::c_char;

use zheng17_core::matrix::{CsrView, ValuesRef};
use zheng17_core::{Error, ErrorKind, Result};
use zheng17_plugin_abi as abi;

/// A chunk as a plugin sees it; valid as long as the view.
pub(crate) fn chunk(view: CsrView<'_>) -> abi::Chunk {
    let (values, value_kind) = match view.values() {
        ValuesRef::F32(values) => (values.as_ptr().cast(), abi::VALUES_F32),
        ValuesRef::F64(values) => (values.as_ptr().cast(), abi::VALUES_F64),
    };
    abi::Chunk {
        first_cell: view.first_cell() as u64,
        n_cells: view.n_cells() as u64,
        n_genes: view.n_genes() as u64,
        n_entries: view.n_entries() as u64,
        indptr: view.indptr().as_ptr(),
        indices: view.indices().as_ptr(),
        values,
        value_kind,
        reserved: 0,
    }
}

/// Makes one call with room for a message, and turns its status into a result.
pub(crate) fn call(f: impl FnOnce(*mut abi::Message) -> i32) -> Result<()> {
    let mut text: [c_char; 1024] = [0; 1024];
    let mut message = abi::Message { text: text.as_mut_ptr(), capacity: text.len() as u64 };
    let status = f(&raw mut message);
    let kind = match status {
        abi::STATUS_OK => return Ok(()),
        abi::STATUS_INPUT => ErrorKind::Input,
        abi::STATUS_UNSUPPORTED => ErrorKind::Unsupported,
        abi::STATUS_SYSTEM => ErrorKind::System,
        _ => ErrorKind::Internal,
    };
    let bytes: Vec<u8> = text.iter().map(|&c| c.cast_unsigned()).take_while(|&c| c != 0).collect();
    let said = String::from_utf8_lossy(&bytes);
    Err(Error::new(kind, if said.is_empty() { format!("failed with status {status}") } else { said.into_owned() }))
}

/// A 128-bit integer as Rust has it.
pub(crate) fn number(wide: abi::Wide) -> u128 {
    u128::from(wide.high) << 64 | u128::from(wide.low)
}
