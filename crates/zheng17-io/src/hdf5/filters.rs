//! Undoes the filters of one stored chunk. Knows bytes and filter numbers, not files or datasets.

use zheng17_core::{Error, Result};

use super::blosc;

/// One filter of a dataset: its registered number and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) id: u16,
    pub(crate) parameters: Vec<u32>,
}

pub(crate) const DEFLATE: u16 = 1;
pub(crate) const SHUFFLE: u16 = 2;
pub(crate) const FLETCHER32: u16 = 3;
pub(crate) const SZIP: u16 = 4;
pub(crate) const NBIT: u16 = 5;
pub(crate) const SCALEOFFSET: u16 = 6;
pub(crate) const LZF: u16 = 32000;
pub(crate) const BLOSC: u16 = 32001;
pub(crate) const LZ4: u16 = 32004;
pub(crate) const ZSTD: u16 = 32015;

/// The name of a filter as h5py and its users say it.
pub(crate) fn name(id: u16) -> String {
    match id {
        DEFLATE => "gzip".to_owned(),
        SHUFFLE => "shuffle".to_owned(),
        FLETCHER32 => "fletcher32".to_owned(),
        SZIP => "szip".to_owned(),
        NBIT => "nbit".to_owned(),
        SCALEOFFSET => "scaleoffset".to_owned(),
        LZF => "lzf".to_owned(),
        BLOSC => "blosc".to_owned(),
        LZ4 => "lz4".to_owned(),
        ZSTD => "zstd".to_owned(),
        other => format!("filter {other}"),
    }
}

/// Whether [`undo`] knows a filter.
#[cfg(not(feature = "libhdf5"))]
pub(crate) fn is_known(id: u16) -> bool {
    matches!(id, DEFLATE | SHUFFLE | FLETCHER32 | LZF | BLOSC | LZ4 | ZSTD)
}

/// Undoes one filter. The result has at most `limit` bytes; `limit` is what the chunk holds once all filters are undone, plus
/// what an earlier filter of the pipeline may have added.
pub(crate) fn undo(filter: &Filter, stored: &[u8], element_size: usize, limit: usize) -> Result<Vec<u8>> {
    match filter.id {
        DEFLATE => inflate(stored, limit),
        SHUFFLE => {
            let size = filter.parameters.first().map_or(element_size, |&size| size as usize);
            Ok(unshuffle(stored, size))
        }
        FLETCHER32 => check_fletcher32(stored).map(<[u8]>::to_vec),
        LZF => expand_lzf(stored, limit),
        BLOSC => blosc::decode(stored, limit),
        LZ4 => decode_lz4_blocks(stored, limit),
        ZSTD => zstd::bulk::decompress(stored, limit).map_err(|error| Error::input("bad zstd data").with_source(error)),
        other => Err(Error::unsupported(format!("{} can't be read by this program", name(other)))),
    }
}

/// Decompresses zlib streams one after the other.
pub(crate) struct Inflater(libdeflater::Decompressor);

impl Default for Inflater {
    fn default() -> Self {
        Self(libdeflater::Decompressor::new())
    }
}

impl Inflater {
    /// Decompresses a stream of at most `limit` bytes into `out`, whatever it held.
    pub(crate) fn inflate(&mut self, stored: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<()> {
        // Deflate makes at most 1032 bytes out of one, so a header can't make us reserve more than the file deserves.
        let room = limit.min(stored.len().saturating_mul(1032).saturating_add(64));
        if room > out.capacity() {
            // Fresh zeros cost nothing until they are overwritten.
            *out = vec![0; room];
        } else {
            out.resize(room, 0);
        }
        let length =
            self.0.zlib_decompress(stored, out).map_err(|error| Error::input("bad gzip data").with_source(error))?;
        out.truncate(length);
        Ok(())
    }
}

/// Decompresses a zlib stream.
pub(crate) fn inflate(stored: &[u8], limit: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    Inflater::default().inflate(stored, limit, &mut out)?;
    Ok(out)
}

/// Puts the bytes of each element together again; bytes after the last whole element stay where they are.
pub(crate) fn unshuffle(stored: &[u8], size: usize) -> Vec<u8> {
    if size <= 1 || stored.len() < size {
        return stored.to_vec();
    }
    let count = stored.len() / size;
    let mut out = vec![0; stored.len()];
    let (elements, rest) = out.split_at_mut(count * size);
    rest.copy_from_slice(&stored[count * size..]);
    match size {
        2 => interleave::<2>(stored, count, elements),
        4 => interleave::<4>(stored, count, elements),
        8 => interleave::<8>(stored, count, elements),
        _ => {
            for (byte, plane) in stored.chunks_exact(count).take(size).enumerate() {
                for (element, &value) in elements.chunks_exact_mut(size).zip(plane) {
                    element[byte] = value;
                }
            }
        }
    }
    out
}

fn interleave<const N: usize>(stored: &[u8], count: usize, elements: &mut [u8]) {
    let planes: [&[u8]; N] = std::array::from_fn(|byte| &stored[byte * count..(byte + 1) * count]);
    for (at, element) in elements.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        *element = std::array::from_fn(|byte| planes[byte][at]);
    }
}

/// Checks the checksum in the last four bytes and gives what stands before it.
fn check_fletcher32(stored: &[u8]) -> Result<&[u8]> {
    let Some((data, sum)) = stored.split_last_chunk::<4>() else {
        return Err(Error::input("too short for its fletcher32 checksum"));
    };
    let found = fletcher32(data);
    let stated = u32::from_le_bytes(*sum);
    // Some old writers stored the bytes of each half the other way round; HDF5 accepts those as well.
    let swapped = (stated >> 8) & 0x00ff_00ff | (stated << 8) & 0xff00_ff00;
    if found == stated || found == swapped {
        Ok(data)
    } else {
        Err(Error::input(format!("fletcher32 checksum is {found:#010x}, not {stated:#010x} as stored")))
    }
}

/// The checksum as HDF5 computes it: over 16-bit big-endian words.
fn fletcher32(data: &[u8]) -> u32 {
    let (mut sum1, mut sum2) = (0_u32, 0_u32);
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    // 360 words are as many as fit before 32 bits overflow.
    for block in data.chunks(720) {
        for word in block.chunks(2) {
            sum1 += u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low));
            sum2 += sum1;
        }
        sum1 = fold(sum1);
        sum2 = fold(sum2);
    }
    fold(sum2) << 16 | fold(sum1)
}

/// Expands what h5py's LZF filter stored: runs of literal bytes and copies of what came before.
fn expand_lzf(stored: &[u8], limit: usize) -> Result<Vec<u8>> {
    let broken = || Error::input("bad lzf data");
    let mut out: Vec<u8> = Vec::new();
    let mut input = stored;
    let take = |input: &mut &[u8]| input.split_off_first().copied().ok_or_else(broken);
    while let Ok(control) = take(&mut input) {
        if control < 32 {
            out.extend_from_slice(input.split_off(..=usize::from(control)).ok_or_else(broken)?);
        } else {
            let mut length = usize::from(control >> 5) + 2;
            if length == 9 {
                length += usize::from(take(&mut input)?);
            }
            let distance = (usize::from(control & 31) << 8 | usize::from(take(&mut input)?)) + 1;
            copy_back(&mut out, distance, length).ok_or_else(broken)?;
        }
        if out.len() > limit {
            return Err(broken());
        }
    }
    Ok(out)
}

/// Appends `length` bytes from `distance` back, which may overlap what is being written.
pub(super) fn copy_back(out: &mut Vec<u8>, distance: usize, length: usize) -> Option<()> {
    let start = out.len().checked_sub(distance)?;
    if distance >= length {
        out.extend_from_within(start..start + length);
    } else {
        for at in start..start + length {
            out.push(out[at]);
        }
    }
    Some(())
}

/// The registered LZ4 filter: total and block size, big-endian, then blocks with their sizes.
fn decode_lz4_blocks(stored: &[u8], limit: usize) -> Result<Vec<u8>> {
    let broken = || Error::input("bad lz4 data");
    let (head, mut rest) = stored.split_first_chunk::<12>().ok_or_else(broken)?;
    let total = u64::from_be_bytes(std::array::from_fn(|at| head[at])) as usize;
    let block_size = u32::from_be_bytes(std::array::from_fn(|at| head[8 + at])) as usize;
    if total > limit || block_size == 0 {
        return Err(broken());
    }
    let mut out = Vec::new();
    while out.len() < total {
        let (size, after) = rest.split_first_chunk::<4>().ok_or_else(broken)?;
        let size = u32::from_be_bytes(*size) as usize;
        let block = after.get(..size).ok_or_else(broken)?;
        rest = &after[size..];
        let length = block_size.min(total - out.len());
        if size == length {
            out.extend_from_slice(block);
        } else {
            out.extend(lz4_block(block, length)?);
        }
    }
    Ok(out)
}

/// One LZ4 block that expands to exactly `length` bytes.
pub(super) fn lz4_block(block: &[u8], length: usize) -> Result<Vec<u8>> {
    // LZ4 makes at most 255 bytes out of one.
    if length > block.len().saturating_mul(255) {
        return Err(Error::input("bad lz4 data"));
    }
    let mut out = vec![0; length];
    match lz4_flex::block::decompress_into(block, &mut out) {
        Ok(written) if written == length => Ok(out),
        Ok(_) => Err(Error::input("bad lz4 data")),
        Err(error) => Err(Error::input("bad lz4 data").with_source(error)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn unshuffle_undoes_shuffle_for_every_size() {
        for size in [1, 2, 3, 4, 8, 16] {
            let data: Vec<u8> = (0..size * 7 + size - 1).map(|at| (at * 37 % 251) as u8).collect();
            let count = data.len() / size;
            let mut shuffled = data.clone();
            for element in 0..count {
                for byte in 0..size {
                    shuffled[byte * count + element] = data[element * size + byte];
                }
            }
            assert_eq!(unshuffle(&shuffled, size), data, "element size {size}");
        }
    }

    #[test]
    fn lzf_expands_literals_and_overlapping_copies() {
        // Two literals, then three bytes from one back.
        assert_eq!(expand_lzf(&[1, b'a', b'b', 1 << 5, 0], 100).unwrap(), b"abbbb");
        assert!(expand_lzf(&[1 << 5, 0], 100).is_err(), "a copy from before the start");
        assert!(expand_lzf(&[5, b'a'], 100).is_err(), "literals that end early");
        assert!(expand_lzf(&[1, b'a', b'b', 7 << 5, 200, 0], 100).is_err(), "more than the chunk holds");
    }

    #[test]
    fn fletcher32_tells_damage() {
        let mut stored = b"counts!".to_vec();
        stored.extend(fletcher32(b"counts!").to_le_bytes());
        assert_eq!(check_fletcher32(&stored).unwrap(), b"counts!");
        stored[0] ^= 1;
        assert!(check_fletcher32(&stored).is_err());
    }
}
