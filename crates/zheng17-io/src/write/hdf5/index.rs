//! B-trees of version 1, written whole from the leaves up, and the one that finds the chunks of a dataset.

use super::header::put;
use super::{Appender, NOWHERE};

/// Children of a node of the tree of chunks; the format has no place to say another number.
const CHUNKS_PER_NODE: usize = 64;

/// Where a chunk is, and how many bytes it has there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkPlace {
    pub(super) address: u64,
    pub(super) size: u32,
}

/// What a tree is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeKind {
    Groups = 0,
    Chunks = 1,
}

/// Writes a tree over children and gives the address of its root. There is one key before each child and one behind the last;
/// all have one length, a multiple of eight. Without children there is one node with nothing in it.
pub(super) fn write_tree(
    file: &mut Appender,
    kind: TreeKind,
    mut keys: Vec<Vec<u8>>,
    mut children: Vec<u64>,
    per_node: usize,
) -> std::io::Result<u64> {
    let key_size = keys.first().map_or(0, Vec::len);
    // Nodes have room for all the children that they may have.
    let node_size = 24 + (per_node + 1) * key_size + per_node * 8;
    for level in 0_u8.. {
        let n_nodes = children.len().div_ceil(per_node).max(1);
        let start = file.next_address();
        let address = |node: usize| start + (node * node_size) as u64;
        let mut out = Vec::with_capacity(n_nodes * node_size);
        for node in 0..n_nodes {
            let first = node * per_node;
            let last = (first + per_node).min(children.len());
            out.extend(b"TREE");
            out.extend([kind as u8, level]);
            put(&mut out, [(last - first) as u16], u16::to_le_bytes);
            let left = if node == 0 { NOWHERE } else { address(node - 1) };
            let right = if node + 1 == n_nodes { NOWHERE } else { address(node + 1) };
            put(&mut out, [left, right], u64::to_le_bytes);
            for child in first..last {
                out.extend(&keys[child]);
                put(&mut out, [children[child]], u64::to_le_bytes);
            }
            out.extend(&keys[last]);
            out.resize((node + 1) * node_size, 0);
        }
        file.append(&out)?;
        if n_nodes == 1 {
            return Ok(start);
        }
        let behind = keys.pop();
        keys = keys.into_iter().step_by(per_node).chain(behind).collect();
        children = (0..n_nodes).map(address).collect();
    }
    Err(std::io::Error::other("a tree of more than 256 levels"))
}

/// Writes the index of chunks that follow each other along the first axis, and gives its address.
pub(super) fn write_chunk_index(
    file: &mut Appender,
    places: &[ChunkPlace],
    chunk: &[usize],
    element_size: usize,
) -> std::io::Result<u64> {
    if places.is_empty() {
        return Ok(NOWHERE);
    }
    let rows_per_chunk = chunk.first().copied().unwrap_or(1);
    let mut keys: Vec<Vec<u8>> = places
        .iter()
        .enumerate()
        .map(|(number, place)| {
            // Bytes, no filter left out, and where the chunk starts; the element counts as one more dimension.
            let mut key = Vec::new();
            put(&mut key, [place.size, 0], u32::to_le_bytes);
            put(&mut key, [(number * rows_per_chunk) as u64], u64::to_le_bytes);
            key.resize(8 + 8 * (chunk.len() + 1), 0);
            key
        })
        .collect();
    // Behind the last chunk, along every dimension.
    let mut behind = vec![0; 8];
    put(&mut behind, [(places.len() * rows_per_chunk) as u64], u64::to_le_bytes);
    put(&mut behind, chunk.iter().skip(1).chain([&element_size]).map(|&length| length as u64), u64::to_le_bytes);
    keys.push(behind);
    let children = places.iter().map(|place| place.address).collect();
    write_tree(file, TreeKind::Chunks, keys, children, CHUNKS_PER_NODE)
}
