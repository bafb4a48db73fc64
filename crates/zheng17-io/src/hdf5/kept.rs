//! The last decoded chunks of a dataset, kept for the next read. Knows numbers of chunks and bytes, nothing of what they hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zheng17_core::Result;

/// Decoded chunks are kept up to this many bytes for each dataset unless it is told otherwise, and the last one however large
/// it is.
pub(super) const KEPT_BYTES: usize = 16 << 20;

/// A bounded store of decoded chunks. Reading it waits for nobody's decoding but that of a very large chunk.
pub(super) struct KeptChunks {
    /// The oldest first.
    chunks: Mutex<Vec<Kept>>,
    /// Bytes.
    limit: AtomicUsize,
}

impl Default for KeptChunks {
    fn default() -> Self {
        Self { chunks: Mutex::default(), limit: AtomicUsize::new(KEPT_BYTES) }
    }
}

struct Kept {
    chunk: u64,
    bytes: Arc<Vec<u8>>,
    /// Elements that nobody has asked for yet. A chunk whose elements were all asked for makes room for others.
    unread: u64,
}

/// What a read wants of a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// The chunk's number.
    pub(super) chunk: u64,
    /// Elements that are wanted.
    pub(super) elements: u64,
    /// Elements that the chunk has.
    pub(super) of: u64,
}

impl KeptChunks {
    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes how many bytes are kept.
    pub(super) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// The chunk, if it is kept.
    pub(super) fn get(&self, wanted: Wanted) -> Option<Arc<Vec<u8>>> {
        find(&mut self.lock(), wanted)
    }

    /// The chunk, decoded if it isn't kept. `size` is how many bytes it has.
    pub(super) fn get_or_decode(
        &self,
        wanted: Wanted,
        size: usize,
        decode: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Arc<Vec<u8>>> {
        let mut kept = self.lock();
        if let Some(bytes) = find(&mut kept, wanted) {
            return Ok(bytes);
        }
        if size <= KEPT_BYTES {
            // Others may read meanwhile; two that need the same chunk decode it twice, which is cheap and rare.
            drop(kept);
            let bytes = Arc::new(decode()?);
            let mut kept = self.lock();
            if let Some(bytes) = find(&mut kept, wanted) {
                return Ok(bytes);
            }
            keep(&mut kept, wanted, bytes.clone(), self.limit.load(Ordering::Relaxed));
            Ok(bytes)
        } else {
            // Large enough that two copies at once would hurt: everybody waits for this one, and it finds room.
            let limit = self.limit.load(Ordering::Relaxed);
            make_room(&mut kept, limit.saturating_sub(size));
            let bytes = Arc::new(decode()?);
            keep(&mut kept, wanted, bytes.clone(), limit);
            Ok(bytes)
        }
    }
}

/// Looks for a chunk and makes it the last that will be forgotten.
fn find(kept: &mut Vec<Kept>, wanted: Wanted) -> Option<Arc<Vec<u8>>> {
    let at = kept.iter().position(|kept| kept.chunk == wanted.chunk)?;
    let mut chunk = kept.remove(at);
    let bytes = chunk.bytes.clone();
    chunk.unread = chunk.unread.saturating_sub(wanted.elements);
    if chunk.unread > 0 {
        kept.push(chunk);
    }
    Some(bytes)
}

fn keep(kept: &mut Vec<Kept>, wanted: Wanted, bytes: Arc<Vec<u8>>, limit: usize) {
    let unread = wanted.of.saturating_sub(wanted.elements);
    if unread == 0 {
        return;
    }
    make_room(kept, limit.saturating_sub(bytes.len()));
    kept.push(Kept { chunk: wanted.chunk, bytes, unread });
}

/// Forgets the oldest chunks until the others have at most so many bytes.
fn make_room(kept: &mut Vec<Kept>, most: usize) {
    let mut total: usize = kept.iter().map(|chunk| chunk.bytes.len()).sum();
    let surplus = kept.iter().take_while(|chunk| {
        let is_too_much = total > most;
        total -= if is_too_much { chunk.bytes.len() } else { 0 };
        is_too_much
    });
    let surplus = surplus.count();
    kept.drain(..surplus);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn want(chunk: u64, elements: u64) -> Wanted {
        Wanted { chunk, elements, of: 10 }
    }

    fn bytes(size: usize) -> impl FnOnce() -> Result<Vec<u8>> {
        move || Ok(vec![7; size])
    }

    #[test]
    fn a_chunk_is_kept_until_all_of_it_was_asked_for() {
        let kept = KeptChunks::default();
        assert!(kept.get(want(3, 4)).is_none());
        kept.get_or_decode(want(3, 4), 10, bytes(10)).unwrap();
        assert!(kept.get(want(3, 5)).is_some());
        assert!(kept.get(want(3, 1)).is_some());
        assert!(kept.get(want(3, 1)).is_none(), "nobody needs it any more");
    }

    #[test]
    fn the_oldest_chunks_make_room() {
        let kept = KeptChunks::default();
        for chunk in 0..5 {
            let size = KEPT_BYTES / 4;
            kept.get_or_decode(want(chunk, 1), size, bytes(size)).unwrap();
        }
        let found: Vec<u64> = (0..5).filter(|&chunk| kept.get(want(chunk, 0)).is_some()).collect();
        assert_eq!(found, [1, 2, 3, 4]);
    }

    #[test]
    fn one_large_chunk_is_kept_however_large() {
        let kept = KeptChunks::default();
        let size = KEPT_BYTES + 1;
        for chunk in 0..2 {
            kept.get_or_decode(want(chunk, 1), size, bytes(size)).unwrap();
        }
        assert!(kept.get(want(0, 1)).is_none());
        assert_eq!(kept.get(want(1, 1)).unwrap().len(), size);
        kept.set_limit(2 * size);
        kept.get_or_decode(want(2, 1), size, bytes(size)).unwrap();
        assert!(kept.get(want(1, 1)).is_some() && kept.get(want(2, 1)).is_some(), "there is room for both");
    }
}
