//! Where the chunks of a dataset stand in a file, whichever of HDF5's indices lists them. Like `pure`, it names `hdf5-reader`;
//! it reads no chunk.

use hdf5_reader::error::Error as ReaderError;
use hdf5_reader::messages::layout::ChunkIndexing;
use hdf5_reader::{Dataset, Hdf5File as Reader};

use super::chunks::StoredChunk;

/// The chunks of a dataset, each with the position of its first element. `dims` are the lengths of a chunk.
pub(super) fn find_chunks(
    reader: &Reader,
    dataset: &Dataset,
    address: u64,
    dims: &[u32],
    indexing: Option<&ChunkIndexing>,
    element_size: usize,
) -> Result<Vec<(Vec<u64>, StoredChunk)>, ReaderError> {
    let storage = reader.storage();
    let (offset_size, length_size) = (reader.superblock().offset_size, reader.superblock().length_size);
    let shape = dataset.shape();
    let n_dims = shape.len();
    let found = match indexing {
        None => {
            let n_dims_32 = Some(n_dims as u32);
            let leaves = hdf5_reader::btree_v1::collect_btree_v1_leaves_storage(
                storage,
                address,
                offset_size,
                length_size,
                n_dims_32,
                dims,
                None,
            )?;
            let mut chunks = Vec::with_capacity(leaves.len());
            for (key, address) in leaves {
                let hdf5_reader::btree_v1::BTreeV1Key::RawData { chunk_size, filter_mask, mut offsets } = key else {
                    return Err(ReaderError::InvalidData("the index of chunks holds something else".to_owned()));
                };
                offsets.truncate(n_dims);
                chunks.push((offsets, StoredChunk { address, size: u64::from(chunk_size), filter_mask }));
            }
            return if chunks.iter().all(|chunk| chunk.0.len() == n_dims) {
                Ok(chunks)
            } else {
                Err(ReaderError::InvalidData("the index of chunks has too few dimensions".to_owned()))
            };
        }
        Some(ChunkIndexing::SingleChunk { filtered_size, filters }) => {
            vec![hdf5_reader::chunk_index::single_chunk_entry(address, *filtered_size, *filters, n_dims)]
        }
        Some(ChunkIndexing::Implicit) => hdf5_reader::chunk_index::collect_implicit_chunk_entries(
            address,
            shape,
            dims,
            element_size,
            None,
            storage.len(),
        )?,
        Some(ChunkIndexing::FixedArray { .. }) => hdf5_reader::fixed_array::collect_fixed_array_chunk_entries_storage(
            storage,
            address,
            offset_size,
            length_size,
            shape,
            dims,
            None,
        )?,
        Some(ChunkIndexing::ExtensibleArray { .. }) => {
            hdf5_reader::extensible_array::collect_extensible_array_chunk_entries_storage(
                storage,
                address,
                offset_size,
                length_size,
                shape,
                dataset.max_dims(),
                dims,
                None,
            )?
        }
        Some(ChunkIndexing::BTreeV2) => hdf5_reader::chunk_index::collect_v2_chunk_entries_storage(
            storage,
            address,
            offset_size,
            length_size,
            n_dims as u32,
            dims,
            None,
        )?,
    };
    Ok(found
        .into_iter()
        .filter(|chunk| chunk.offsets.len() == n_dims)
        .map(|chunk| {
            (chunk.offsets, StoredChunk { address: chunk.address, size: chunk.size, filter_mask: chunk.filter_mask })
        })
        .collect())
}
