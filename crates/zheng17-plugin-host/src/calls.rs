//! What goes into a call and comes out of it: chunks as C sees them, messages, statuses, 128-bit integers.

use std::ffi::c_char;

use zheng17_core::matrix::{CsrView, ValuesRef};
use zheng17_core::{Error, ErrorKind, Result};
use zheng17_plugin_abi as abi;

use crate::ending::running;

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
pub(crate) fn call(whose: &str, what: &'static str, f: impl FnOnce(*mut abi::Message) -> i32) -> Result<()> {
    /// How many bytes a message may have, and how many show whether it had more.
    const CAPACITY: usize = 1024;
    const FENCE: usize = 64;
    let mut text: [c_char; CAPACITY + FENCE] = [0; CAPACITY + FENCE];
    let mut message = abi::Message { text: text.as_mut_ptr(), capacity: CAPACITY as u64 };
    let status = running(whose, what, || f(&raw mut message));
    if text[CAPACITY..].iter().any(|&c| c != 0) {
        return Err(Error::internal(format!("wrote a message longer than {CAPACITY} bytes {what}")));
    }
    let kind = match status {
        abi::STATUS_OK => return Ok(()),
        abi::STATUS_INPUT => ErrorKind::Input,
        abi::STATUS_UNSUPPORTED => ErrorKind::Unsupported,
        abi::STATUS_SYSTEM => ErrorKind::System,
        _ => ErrorKind::Internal,
    };
    let bytes: Vec<u8> = text.iter().map(|&c| c.cast_unsigned()).take_while(|&c| c != 0).collect();
    let said = for_people(&String::from_utf8_lossy(&bytes));
    Err(Error::new(kind, if said.is_empty() { format!("failed with status {status}") } else { said }))
}

/// A text of a plugin in one line that does nothing to a terminal.
pub(crate) fn for_people(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.trim().chars() {
        match c {
            '\n' | '\r' | '\t' => line.push(' '),
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

/// A 128-bit integer as Rust has it.
pub(crate) fn number(wide: abi::Wide) -> u128 {
    u128::from(wide.high) << 64 | u128::from(wide.low)
}
