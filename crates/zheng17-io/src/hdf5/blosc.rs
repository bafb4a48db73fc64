//! Decodes the container of c-blosc 1: blocks, split by bytes of an element, compressed and shuffled. The codecs are others' or
//! few lines; nothing here knows files.

use zheng17_core::{Error, Result};

use super::filters::{copy_back, inflate, lz4_block, unshuffle};

const BYTE_SHUFFLED: u8 = 0x01;
const STORED: u8 = 0x02;
const BIT_SHUFFLED: u8 = 0x04;
const NOT_SPLIT: u8 = 0x10;

/// Splits stop at this element size and at this few bytes per split, in every version of c-blosc 1.
const MOST_SPLITS: usize = 16;
const SMALLEST_SPLIT: usize = 128;

fn broken() -> Error {
    Error::input("bad blosc data")
}

/// Decodes one buffer. The result has at most `limit` bytes.
pub(super) fn decode(stored: &[u8], limit: usize) -> Result<Vec<u8>> {
    let header: &[u8; 16] = stored.first_chunk().ok_or_else(broken)?;
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
    let (flags, element_size) = (header[2], usize::from(header[3]));
    let (total, block_size) = (number(4), number(8));
    if total > limit {
        return Err(broken());
    }
    if flags & STORED != 0 {
        return Ok(stored.get(16..16 + total).ok_or_else(broken)?.to_vec());
    }
    if total == 0 {
        return Ok(Vec::new());
    }
    if block_size == 0 || element_size == 0 {
        return Err(broken());
    }
    let mut out = Vec::new();
    for (block, start) in (0..total).step_by(block_size).zip(stored[16..].chunks_exact(4)) {
        let start = u32::from_le_bytes([start[0], start[1], start[2], start[3]]) as usize;
        let length = block_size.min(total - block);
        let splits = if flags & NOT_SPLIT == 0
            && length == block_size
            && element_size <= MOST_SPLITS
            && block_size / element_size >= SMALLEST_SPLIT
        {
            element_size
        } else {
            1
        };
        let bytes = decode_splits(stored.get(start..).ok_or_else(broken)?, flags >> 5, length, splits)?;
        if flags & BYTE_SHUFFLED != 0 {
            out.extend(unshuffle(&bytes, element_size));
        } else if flags & BIT_SHUFFLED != 0 {
            out.extend(unshuffle_bits(bytes, element_size));
        } else {
            out.extend(bytes);
        }
    }
    if out.len() == total { Ok(out) } else { Err(broken()) }
}

fn decode_splits(mut stored: &[u8], codec: u8, length: usize, splits: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for _ in 0..splits {
        let size = stored.split_off(..4).ok_or_else(broken)?;
        let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
        let packed = stored.split_off(..size).ok_or_else(broken)?;
        let length = length / splits;
        if size == length {
            out.extend_from_slice(packed);
            continue;
        }
        let part = match codec {
            0 => expand_blosclz(packed, length)?,
            1 => lz4_block(packed, length)?,
            3 => inflate(packed, length)?,
            4 => zstd::bulk::decompress(packed, length).map_err(|error| broken().with_source(error))?,
            2 => return Err(Error::unsupported("blosc with the codec snappy can't be read by this program")),
            other => return Err(Error::unsupported(format!("blosc with the unknown codec {other}"))),
        };
        if part.len() != length {
            return Err(broken());
        }
        out.extend(part);
    }
    Ok(out)
}

/// The codec that blosc brings with it: literals and copies, like LZF with longer distances and lengths.
fn expand_blosclz(stored: &[u8], length: usize) -> Result<Vec<u8>> {
    /// Distances from here on have 16 bits of their own.
    const FAR: usize = 8191;
    let mut out = Vec::new();
    let mut input = stored;
    let take = |input: &mut &[u8]| input.split_off_first().copied().map(usize::from).ok_or_else(broken);
    let mut first = true;
    while let Ok(control) = take(&mut input) {
        let control = if std::mem::take(&mut first) { control & 31 } else { control };
        if control < 32 {
            out.extend_from_slice(input.split_off(..=control).ok_or_else(broken)?);
        } else {
            let mut run = (control >> 5) + 2;
            if run == 9 {
                loop {
                    let more = take(&mut input)?;
                    run += more;
                    if more < 255 {
                        break;
                    }
                }
            }
            let low = take(&mut input)?;
            let distance = if low == 255 && control & 31 == 31 {
                (take(&mut input)? << 8) + take(&mut input)? + FAR + 1
            } else {
                ((control & 31) << 8) + low + 1
            };
            if out.len() + run > length {
                return Err(broken());
            }
            copy_back(&mut out, distance, run).ok_or_else(broken)?;
        }
    }
    Ok(out)
}

/// Gathers each element's bits, which stand in planes of one bit of all elements. Blosc leaves blocks alone whose number of
/// elements is no multiple of 8.
fn unshuffle_bits(planes: Vec<u8>, element_size: usize) -> Vec<u8> {
    let count = planes.len() / element_size;
    if count == 0 || !count.is_multiple_of(8) {
        return planes;
    }
    let mut out = vec![0; planes.len()];
    for (plane, bits) in planes.chunks_exact(count / 8).take(element_size * 8).enumerate() {
        let (byte, bit) = (plane / 8, plane % 8);
        for (element, out) in out.chunks_exact_mut(element_size).enumerate() {
            out[byte] |= (bits[element / 8] >> (element % 8) & 1) << bit;
        }
    }
    out[count * element_size..].copy_from_slice(&planes[count * element_size..]);
    out
}
