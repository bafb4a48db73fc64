//! Object headers: the messages that describe a group or dataset, and the superblock, which says where the root group's is.

use super::groups::{self, GroupIndex};
use super::types::{Dataspace, Datatype};
use super::{Filters, GroupMember, NOWHERE, SUPERBLOCK_BYTES};

/// Bytes that a message may have: 16 bits, in steps of eight.
pub(super) const LARGEST_MESSAGE: usize = 65_528;
/// Says that a message never changes.
const CONSTANT: u8 = 1;

/// Adds numbers as bytes.
pub(super) fn put<T, const N: usize>(
    out: &mut Vec<u8>,
    values: impl IntoIterator<Item = T>,
    to_bytes: fn(T) -> [u8; N],
) {
    for value in values {
        out.extend(to_bytes(value));
    }
}

/// Fills up with zeros to a multiple of eight bytes.
pub(super) fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    pad(&mut bytes);
    bytes
}

/// A message of an object header.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    kind: u16,
    flags: u8,
    body: Vec<u8>,
}

impl Message {
    /// Bytes of the body.
    pub(super) fn size(&self) -> usize {
        self.body.len()
    }

    pub(super) fn dataspace(dataspace: &Dataspace) -> Self {
        Self { kind: 0x01, flags: 0, body: padded(dataspace.encode()) }
    }

    pub(super) fn datatype(datatype: &Datatype) -> Self {
        Self { kind: 0x03, flags: CONSTANT, body: padded(datatype.encode()) }
    }

    /// Elements that were never written are zero. Places of chunks are found as they are written, others late; references to
    /// the heap must be zero from the start.
    pub(super) fn fill_value(datatype: &Datatype, chunked: bool) -> Self {
        let allocation = if chunked { 3 } else { 2 };
        let time = if datatype.has_texts() { 0 } else { 2 };
        Self { kind: 0x05, flags: CONSTANT, body: vec![2, allocation, time, 1, 0, 0, 0, 0] }
    }

    pub(super) fn contiguous(address: u64, bytes: u64) -> Self {
        let mut body = vec![3, 1];
        put(&mut body, [address, bytes], u64::to_le_bytes);
        Self { kind: 0x08, flags: 0, body: padded(body) }
    }

    /// The element counts as one more dimension.
    pub(super) fn chunked(index: u64, chunk: &[usize], element_size: usize) -> Self {
        let mut body = vec![3, 2, chunk.len() as u8 + 1];
        put(&mut body, [index], u64::to_le_bytes);
        put(&mut body, chunk.iter().chain([&element_size]).map(|&length| length as u32), u32::to_le_bytes);
        Self { kind: 0x08, flags: 0, body: padded(body) }
    }

    pub(super) fn filters(filters: Filters, element_size: usize) -> Option<Self> {
        let shuffle = filters.shuffle.then_some((2_u16, &b"shuffle\0"[..], element_size as u32));
        let gzip = filters.gzip.map(|level| (1_u16, &b"deflate\0"[..], u32::from(level)));
        let filters: Vec<_> = shuffle.into_iter().chain(gzip).collect();
        if filters.is_empty() {
            return None;
        }
        let mut body = vec![1, filters.len() as u8, 0, 0, 0, 0, 0, 0];
        for (number, name, parameter) in filters {
            // A chunk may do without it; it has one parameter.
            put(&mut body, [number, name.len() as u16, 1, 1], u16::to_le_bytes);
            body.extend(name);
            put(&mut body, [parameter, 0], u32::to_le_bytes);
        }
        Some(Self { kind: 0x0b, flags: CONSTANT, body })
    }

    pub(super) fn attribute(name: &str, datatype: &Datatype, dataspace: &Dataspace, values: &[u8]) -> Self {
        let mut name = name.as_bytes().to_vec();
        name.push(0);
        let (datatype, dataspace) = (datatype.encode(), dataspace.encode());
        let mut body = vec![1, 0];
        put(&mut body, [name.len(), datatype.len(), dataspace.len()].map(|size| size as u16), u16::to_le_bytes);
        for part in [name, datatype, dataspace] {
            body.extend(padded(part));
        }
        body.extend(values);
        Self { kind: 0x0c, flags: 0, body: padded(body) }
    }

    pub(super) fn symbol_table(index: GroupIndex) -> Self {
        let mut body = Vec::new();
        put(&mut body, [index.tree, index.names], u64::to_le_bytes);
        Self { kind: 0x11, flags: 0, body }
    }
}

/// An object header with all its messages in one block.
pub(super) fn encode(messages: &[Message]) -> Vec<u8> {
    let size: usize = messages.iter().map(|message| 8 + message.body.len()).sum();
    let mut out = vec![1, 0];
    put(&mut out, [messages.len() as u16], u16::to_le_bytes);
    // One link leads here.
    put(&mut out, [1, size as u32, 0], u32::to_le_bytes);
    for Message { kind, flags, body } in messages {
        put(&mut out, [*kind, body.len() as u16], u16::to_le_bytes);
        out.extend([*flags, 0, 0, 0]);
        out.extend(body);
    }
    out
}

/// The first bytes of the file.
pub(super) fn superblock(end: u64, root: &GroupMember) -> Vec<u8> {
    let mut out = b"\x89HDF\r\n\x1a\n".to_vec();
    // Versions, and eight bytes for addresses and lengths.
    out.extend([0, 0, 0, 0, 0, 8, 8, 0]);
    put(&mut out, [groups::SYMBOLS_PER_HALF_NODE as u16, groups::CHILDREN_PER_HALF_NODE as u16], u16::to_le_bytes);
    put(&mut out, [0], u32::to_le_bytes);
    put(&mut out, [0, NOWHERE, end, NOWHERE], u64::to_le_bytes);
    groups::encode_symbol(&mut out, 0, root);
    debug_assert_eq!(out.len(), SUPERBLOCK_BYTES);
    out
}
