//! Rows of a dataset that is stored in chunks: which chunks hold them, and how their rows are put together.
//!
//! Knows positions and bytes; fetching and undoing filters is somebody else's.

use std::ops::Range;
use std::sync::Arc;

use zheng17_core::{Error, Result};

use super::kept::{KeptChunks, Wanted};

/// Rows that were never written may make up this many bytes of one read; more means a header that claims what is not there.
const MOST_UNWRITTEN_BYTES: u64 = 64 << 20;

/// Where a chunk stands in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredChunk {
    pub(super) address: u64,
    /// Bytes in the file.
    pub(super) size: u64,
    /// Bit i set: filter i was left out.
    pub(super) filter_mask: u32,
}

/// The chunks of a dataset with one or two dimensions.
pub(super) struct Chunks {
    n_rows: u64,
    /// Elements of a row; 1 for one dimension.
    row_length: u64,
    chunk_rows: u64,
    chunk_columns: u64,
    element_size: usize,
    fill: Vec<u8>,
    /// Position in the grid, row by row, and place in the file; sorted.
    places: Vec<(u64, StoredChunk)>,
    kept: KeptChunks,
}

/// The part of a read that stands in one chunk of a dataset with one dimension.
pub(super) struct ChunkPart<'a> {
    pub(super) wanted: Wanted,
    /// The wanted elements, counted in the dataset.
    pub(super) rows: Range<u64>,
    /// The same, counted in the chunk.
    pub(super) within: Range<usize>,
    /// Where the chunk stands, if it was ever written.
    pub(super) place: Option<&'a StoredChunk>,
}

impl Chunks {
    /// The chunks that were found in a file, each by the position of its first element.
    pub(super) fn new(
        shape: &[u64],
        chunk_shape: &[u64],
        element_size: usize,
        fill: Vec<u8>,
        found: impl IntoIterator<Item = (Vec<u64>, StoredChunk)>,
    ) -> Result<Self> {
        let (row_length, chunk_columns) = match (shape, chunk_shape) {
            ([_], [_]) => (1, 1),
            ([_, columns], [_, chunk_columns]) => (*columns, *chunk_columns),
            _ => {
                return Err(Error::unsupported(format!(
                    "{} dimensions in chunks of {}; at most 2 can be read",
                    shape.len(),
                    chunk_shape.len()
                )));
            }
        };
        let (n_rows, chunk_rows) = (shape[0], chunk_shape[0]);
        if chunk_rows == 0 || chunk_columns == 0 {
            return Err(Error::input("chunks without elements"));
        }
        let across = row_length.div_ceil(chunk_columns);
        let mut places = Vec::new();
        for (at, chunk) in found {
            let column = at.get(1).copied().unwrap_or(0);
            // A dataset that was made smaller may still have chunks beyond its end.
            if at[0] >= n_rows || column >= row_length {
                continue;
            }
            places.push((at[0] / chunk_rows * across + column / chunk_columns, chunk));
        }
        places.sort_by_key(|place| place.0);
        if let Some(pair) = places.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::input(format!("chunk {} is listed twice", pair[0].0)));
        }
        Ok(Self {
            n_rows,
            row_length,
            chunk_rows,
            chunk_columns,
            element_size,
            fill,
            places,
            kept: KeptChunks::default(),
        })
    }

    /// Bytes of one decoded chunk.
    pub(super) fn chunk_bytes(&self) -> Result<usize> {
        self.chunk_rows
            .checked_mul(self.chunk_columns)
            .and_then(|elements| elements.checked_mul(self.element_size as u64))
            .and_then(|bytes| u32::try_from(bytes).ok())
            .map(|bytes| bytes as usize)
            .ok_or_else(|| Error::input("chunks of more than 4 GiB, which HDF5 does not allow"))
    }

    /// Keeps decoded chunks up to so many bytes.
    pub(super) fn keep_up_to(&self, bytes: usize) {
        self.kept.set_limit(bytes);
    }

    /// Cuts consecutive elements of a dataset with one dimension where chunks end. `None` for two dimensions.
    pub(super) fn parts(&self, rows: Range<u64>) -> Option<impl Iterator<Item = ChunkPart<'_>>> {
        if self.row_length != 1 || self.chunk_columns != 1 {
            return None;
        }
        let chunks = rows.start / self.chunk_rows..rows.end.div_ceil(self.chunk_rows).max(rows.start / self.chunk_rows);
        let mut places = &self.places[self.places.partition_point(|place| place.0 < chunks.start)..];
        Some(chunks.map(move |chunk| {
            let top = chunk * self.chunk_rows;
            let end = (top + self.chunk_rows).min(self.n_rows);
            let rows = rows.start.max(top)..rows.end.min(end);
            let place = match places.split_first() {
                Some((first, others)) if first.0 == chunk => {
                    places = others;
                    Some(&first.1)
                }
                _ => None,
            };
            ChunkPart {
                wanted: Wanted { chunk, elements: rows.end - rows.start, of: end - top },
                within: (rows.start - top) as usize..(rows.end - top) as usize,
                rows,
                place,
            }
        }))
    }

    /// The bytes of consecutive rows. `decode` gives the bytes of a stored chunk with its filters undone.
    pub(super) fn read(&self, rows: Range<u64>, decode: &dyn Fn(&StoredChunk) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        if rows.is_empty() || self.row_length == 0 {
            return Ok(Vec::new());
        }
        debug_assert!(rows.end <= self.n_rows, "callers check their ranges");
        let across = self.row_length.div_ceil(self.chunk_columns);
        let bands = rows.start / self.chunk_rows..=(rows.end - 1) / self.chunk_rows;
        self.check_mostly_written(&rows, *bands.start() * across..(*bands.end() + 1) * across)?;
        let row_bytes = self.row_length as usize * self.element_size;
        let mut out = Vec::new();
        for band in bands {
            let top = band * self.chunk_rows;
            let wanted = rows.start.max(top)..rows.end.min(top + self.chunk_rows);
            let start = out.len();
            out.resize(start + (wanted.end - wanted.start) as usize * row_bytes, 0);
            for column in 0..across {
                let of = self.chunk_rows.min(self.n_rows - top);
                let part = Wanted { chunk: band * across + column, elements: wanted.end - wanted.start, of };
                let chunk = self.chunk(part, decode)?;
                let left = column * self.chunk_columns;
                let width = self.chunk_columns.min(self.row_length - left) as usize * self.element_size;
                let stride = self.chunk_columns as usize * self.element_size;
                let from = (wanted.start - top) as usize * stride;
                let left = left as usize * self.element_size;
                let lines = out[start..].chunks_exact_mut(row_bytes);
                match &chunk {
                    Some(bytes) if across == 1 && width == stride => {
                        let length = out.len() - start;
                        out[start..].copy_from_slice(&bytes[from..from + length]);
                    }
                    Some(bytes) => {
                        for (line, bytes) in lines.zip(bytes[from..].chunks_exact(stride)) {
                            line[left..left + width].copy_from_slice(&bytes[..width]);
                        }
                    }
                    None if self.fill.iter().all(|&byte| byte == 0) => {}
                    None => {
                        for line in lines {
                            for element in line[left..left + width].chunks_exact_mut(self.element_size) {
                                element.copy_from_slice(&self.fill);
                            }
                        }
                    }
                }
            }
        }
        Ok(out)
    }

    /// An error if a chunk was never written.
    pub(super) fn check_written(&self) -> Result<()> {
        let across = self.row_length.div_ceil(self.chunk_columns);
        let n_chunks = self.n_rows.div_ceil(self.chunk_rows).saturating_mul(across);
        match n_chunks - self.places.len() as u64 {
            0 => Ok(()),
            missing => Err(Error::input(format!("{missing} of {n_chunks} chunks were never written"))),
        }
    }

    /// An error if a read would mostly make up what was never written.
    fn check_mostly_written(&self, rows: &Range<u64>, chunks: Range<u64>) -> Result<()> {
        let position = |chunk: u64| self.places.partition_point(|place| place.0 < chunk) as u64;
        let written = position(chunks.end) - position(chunks.start);
        let missing = (chunks.end - chunks.start).saturating_sub(written);
        let bytes = (self.chunk_bytes()? as u64).saturating_mul(missing);
        let asked = (rows.end - rows.start).saturating_mul(self.row_length).saturating_mul(self.element_size as u64);
        if bytes.min(asked) > MOST_UNWRITTEN_BYTES {
            return Err(Error::input(format!("{missing} of {} chunks were never written", chunks.end - chunks.start)));
        }
        Ok(())
    }

    /// A decoded chunk; `None` if it was never written.
    fn chunk(&self, wanted: Wanted, decode: &dyn Fn(&StoredChunk) -> Result<Vec<u8>>) -> Result<Option<Arc<Vec<u8>>>> {
        let Ok(place) = self.places.binary_search_by_key(&wanted.chunk, |place| place.0) else {
            return Ok(None);
        };
        let size = self.chunk_bytes()?;
        let decode = || self.checked(wanted.chunk, decode(&self.places[place].1));
        self.kept.get_or_decode(wanted, size, decode).map(Some)
    }

    /// What was decoded, if it has the size of a chunk. Errors name the chunk.
    pub(super) fn checked<B: AsRef<[u8]>>(&self, chunk: u64, decoded: Result<B>) -> Result<B> {
        let check = |bytes: B| {
            let (found, expected) = (bytes.as_ref().len(), self.chunk_bytes()?);
            if found == expected {
                Ok(bytes)
            } else {
                Err(Error::input(format!("{found} bytes where {expected} are due")))
            }
        };
        decoded.and_then(check).map_err(|error| damaged(chunk, error))
    }
}

fn damaged(chunk: u64, error: Error) -> Error {
    if error.kind() == zheng17_core::ErrorKind::Input {
        error.at(format_args!("chunk {chunk} is damaged"))
    } else {
        error
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::cell::Cell;

    use super::super::kept::KEPT_BYTES;
    use super::*;

    fn place(number: u64) -> StoredChunk {
        StoredChunk { address: number, size: 1, filter_mask: 0 }
    }

    /// 7 x 5 bytes in chunks of 3 x 2, the one at (3, 2) never written.
    fn chunks() -> Chunks {
        let found = (0..9).filter(|&n| n != 4).map(|n| (vec![n / 3 * 3, n % 3 * 2], place(n)));
        Chunks::new(&[7, 5], &[3, 2], 1, vec![99], found).unwrap()
    }

    #[allow(clippy::unnecessary_wraps, reason = "it stands for a decoder, which can fail")]
    fn decode(chunk: &StoredChunk) -> Result<Vec<u8>> {
        let (top, left) = (chunk.address / 3 * 3, chunk.address % 3 * 2);
        Ok((0..6).map(|at| ((top + at / 2) * 10 + left + at % 2) as u8).collect())
    }

    #[test]
    fn any_rows_come_out_of_any_chunks() {
        let chunks = chunks();
        for start in 0..7 {
            for end in start..=7 {
                let expected: Vec<u8> =
                    (start..end)
                        .flat_map(|row| (0..5).map(move |column| (row, column)))
                        .map(|(row, column)| {
                            if (3..6).contains(&row) && (2..4).contains(&column) {
                                99
                            } else {
                                (row * 10 + column) as u8
                            }
                        })
                        .collect();
                assert_eq!(chunks.read(start..end, &decode).unwrap(), expected, "rows {start}..{end}");
            }
        }
    }

    #[test]
    fn a_range_is_cut_where_chunks_end() {
        let found = [0, 7, 21].map(|at| (vec![at], place(at)));
        let chunks = Chunks::new(&[25], &[7], 1, vec![0], found).unwrap();
        let parts = |rows: Range<u64>| {
            let parts = chunks.parts(rows).unwrap();
            let fields = |p: ChunkPart<'_>| (p.wanted.chunk, p.rows, p.within, p.place.map(|place| place.address));
            parts.map(fields).collect::<Vec<_>>()
        };
        assert_eq!(
            parts(5..25),
            [(0, 5..7, 5..7, Some(0)), (1, 7..14, 0..7, Some(7)), (2, 14..21, 0..7, None), (3, 21..25, 0..4, Some(21))]
        );
        assert_eq!(parts(14..14), []);
        assert_eq!(parts(8..9), [(1, 8..9, 1..2, Some(7))]);
        let last = chunks.parts(22..25).unwrap().next().unwrap();
        assert_eq!((last.wanted.elements, last.wanted.of), (3, 4));
    }

    #[test]
    fn ranges_that_move_forward_decode_each_chunk_once() {
        let chunks = Chunks::new(&[100], &[7], 1, vec![0], (0..15).map(|n| (vec![n * 7], place(n)))).unwrap();
        let decoded = Cell::new(0);
        for start in (0..100).step_by(3) {
            chunks
                .read(start..(start + 3).min(100), &|_| {
                    decoded.set(decoded.get() + 1);
                    Ok(vec![0; 7])
                })
                .unwrap();
        }
        assert_eq!(decoded.get(), 15);
    }

    #[test]
    fn one_large_chunk_is_kept_however_large() {
        let size = KEPT_BYTES as u64 + 1;
        let chunks =
            Chunks::new(&[2 * size], &[size], 1, vec![0], [(vec![0], place(0)), (vec![size], place(1))]).unwrap();
        let decoded = Cell::new(0);
        for start in [0, 10, size - 5, size + 7] {
            let bytes = chunks
                .read(start..start + 10, &|chunk| {
                    decoded.set(decoded.get() + 1);
                    Ok(vec![chunk.address as u8; size as usize])
                })
                .unwrap();
            let expected: Vec<u8> = (start..start + 10).map(|at| u8::from(at >= size)).collect();
            assert_eq!(bytes, expected, "from {start}");
        }
        assert_eq!(decoded.get(), 2);
    }

    #[test]
    fn a_chunk_of_another_length_is_damage_and_is_named() {
        let error = chunks().read(0..1, &|_| Ok(vec![0; 5])).unwrap_err();
        assert_eq!(error.to_string(), "chunk 0 is damaged: 5 bytes where 6 are due");
    }

    #[test]
    fn a_header_that_claims_unwritten_rows_is_refused() {
        let chunks = Chunks::new(&[1 << 40], &[1 << 20], 8, vec![0; 8], []).unwrap();
        assert!(chunks.read(0..1 << 40, &decode).is_err());
    }
}
