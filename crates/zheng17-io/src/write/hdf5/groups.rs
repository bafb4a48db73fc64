//! Groups: a heap of names, nodes of symbols in the order of names, and a tree that finds them.

use super::header::{pad, put};
use super::index::{TreeKind, write_tree};
use super::{Appender, GroupMember};

/// Half of the symbols that a node has room for; the superblock says so.
pub(super) const SYMBOLS_PER_HALF_NODE: usize = 4;
/// Half of the children that a node of the tree has room for; the superblock says so.
pub(super) const CHILDREN_PER_HALF_NODE: usize = 16;

const SYMBOLS_PER_NODE: usize = 2 * SYMBOLS_PER_HALF_NODE;
const SYMBOL_BYTES: usize = 40;
/// Says that a heap of names has no free part.
const NOTHING_FREE: u64 = 1;

/// Where the tree and the names of a group are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupIndex {
    pub(super) tree: u64,
    pub(super) names: u64,
}

/// Adds a symbol: where the name is among the names, where the header is, and for groups where their index is.
pub(super) fn encode_symbol(out: &mut Vec<u8>, name: u64, member: &GroupMember) {
    put(out, [name, member.header], u64::to_le_bytes);
    let (is_group, index) = match member.index {
        Some(index) => (1, [index.tree, index.names]),
        None => (0, [0, 0]),
    };
    put(out, [is_group, 0], u32::to_le_bytes);
    put(out, index, u64::to_le_bytes);
}

/// Writes the index of a group whose members are sorted by the bytes of their names.
pub(super) fn write(file: &mut Appender, members: &[(String, GroupMember)]) -> std::io::Result<GroupIndex> {
    // The empty name stands first: it comes before all others.
    let mut names = vec![0; 8];
    let mut name_places = Vec::with_capacity(members.len());
    for (name, _) in members {
        name_places.push(names.len() as u64);
        names.extend(name.as_bytes());
        names.push(0);
        pad(&mut names);
    }
    let mut keys = vec![vec![0; 8]];
    let mut nodes = Vec::new();
    for (members, places) in members.chunks(SYMBOLS_PER_NODE).zip(name_places.chunks(SYMBOLS_PER_NODE)) {
        let mut node = b"SNOD\x01\0".to_vec();
        put(&mut node, [members.len() as u16], u16::to_le_bytes);
        for ((_, member), &place) in members.iter().zip(places) {
            encode_symbol(&mut node, place, member);
        }
        node.resize(8 + SYMBOLS_PER_NODE * SYMBOL_BYTES, 0);
        nodes.push(file.append(&node)?);
        // Behind each node stands its last name.
        keys.push(places.last().copied().unwrap_or(0).to_le_bytes().to_vec());
    }
    let tree = write_tree(file, TreeKind::Groups, keys, nodes, 2 * CHILDREN_PER_HALF_NODE)?;
    let names_at = file.append(&names)?;
    let mut heap = b"HEAP\0\0\0\0".to_vec();
    put(&mut heap, [names.len() as u64, NOTHING_FREE, names_at], u64::to_le_bytes);
    let names = file.append(&heap)?;
    Ok(GroupIndex { tree, names })
}
