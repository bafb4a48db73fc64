//! Chunks of a matrix that are kept once they were computed: in memory as long as there is room, then in the spill file. What
//! has no place is computed again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zheng17_core::{CsrView, Error, Result};
use zheng17_kernels::KeptChunk;

use crate::budget::Budget;
use crate::spill::{Place, SpillFile};

/// Bytes of a packed entry, about: to see beforehand that there is no room.
const PACKED_BYTES: u64 = 2;

/// What the stores of one source share.
pub(crate) struct Keeper {
    pub(crate) budget: Budget,
    pub(crate) spill: Option<SpillFile>,
}

enum Slot {
    Absent,
    Memory(Arc<KeptChunk>),
    Spilled(Place),
}

/// The chunks of one matrix.
pub(crate) struct Store {
    slots: Vec<Mutex<Slot>>,
    keeper: Arc<Keeper>,
    /// Bytes of the shared budget that others must not have used up for this store to take more.
    limit: u64,
    memory: AtomicU64,
    spilled: AtomicU64,
}

impl Store {
    pub(crate) fn new(n_chunks: usize, keeper: Arc<Keeper>, limit: u64) -> Self {
        let slots = (0..n_chunks).map(|_| Mutex::new(Slot::Absent)).collect();
        Self { slots, keeper, limit, memory: AtomicU64::new(0), spilled: AtomicU64::new(0) }
    }

    fn slot(&self, at: usize) -> MutexGuard<'_, Slot> {
        self.slots[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The chunk, if it is kept. `bytes` is scratch space.
    pub(crate) fn get(&self, at: usize, bytes: &mut Vec<u8>) -> Result<Option<Arc<KeptChunk>>> {
        let place = match &*self.slot(at) {
            Slot::Absent => return Ok(None),
            Slot::Memory(chunk) => return Ok(Some(Arc::clone(chunk))),
            Slot::Spilled(place) => *place,
        };
        let Some(spill) = &self.keeper.spill else {
            return Err(Error::internal("a chunk was spilled without a spill file"));
        };
        spill.get(place, bytes)?;
        KeptChunk::read_from(bytes).map(|chunk| Some(Arc::new(chunk)))
    }

    /// Keeps a chunk if there is room: in memory, else, if `may_spill`, in the spill file.
    pub(crate) fn offer(&self, at: usize, chunk: CsrView<'_>, may_spill: bool, bytes: &mut Vec<u8>) {
        let spill = self.keeper.spill.as_ref().filter(|_| may_spill);
        let at_least = chunk.n_entries() as u64 * PACKED_BYTES;
        if !self.keeper.budget.take(at_least, self.limit) {
            if let Some(spill) = spill {
                self.spill(at, &KeptChunk::keep(chunk), spill, bytes);
            }
            return;
        }
        let kept = KeptChunk::keep(chunk);
        let more = (kept.bytes() as u64).saturating_sub(at_least);
        if self.keeper.budget.take(more, self.limit) {
            let mut slot = self.slot(at);
            if matches!(*slot, Slot::Absent) {
                self.memory.fetch_add(at_least + more, Ordering::Relaxed);
                *slot = Slot::Memory(Arc::new(kept));
            } else {
                // Another worker needed the same chunk at the same time.
                self.keeper.budget.give_back(at_least + more);
            }
        } else {
            self.keeper.budget.give_back(at_least);
            if let Some(spill) = spill {
                self.spill(at, &kept, spill, bytes);
            }
        }
    }

    fn spill(&self, at: usize, kept: &KeptChunk, spill: &SpillFile, bytes: &mut Vec<u8>) {
        bytes.clear();
        kept.write_to(bytes);
        if let Some(place) = spill.put(bytes) {
            let mut slot = self.slot(at);
            if matches!(*slot, Slot::Absent) {
                self.spilled.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                *slot = Slot::Spilled(place);
            }
        }
    }

    /// Forgets a chunk that nobody will ask for again.
    pub(crate) fn forget(&self, at: usize) {
        let slot = std::mem::replace(&mut *self.slot(at), Slot::Absent);
        self.account_for(&slot);
    }

    fn account_for(&self, forgotten: &Slot) {
        if let Slot::Memory(chunk) = forgotten {
            // As it was counted: no less than what was foreseen.
            let bytes = (chunk.bytes() as u64).max(chunk.n_entries() as u64 * PACKED_BYTES);
            self.memory.fetch_sub(bytes, Ordering::Relaxed);
            self.keeper.budget.give_back(bytes);
        }
    }

    /// Whether every chunk is kept.
    pub(crate) fn is_complete(&self) -> bool {
        (0..self.slots.len()).all(|at| !matches!(*self.slot(at), Slot::Absent))
    }

    /// Bytes in memory and in the spill file.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.memory.load(Ordering::Relaxed), self.spilled.load(Ordering::Relaxed))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for slot in std::mem::take(&mut self.slots) {
            self.account_for(&slot.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

#[cfg(test)]
mod tests {
    use zheng17_core::CsrBuffer;
    use zheng17_core::matrix::{ValueKind, Values};

    use super::*;

    fn keeper(limit: u64, spill: bool) -> Arc<Keeper> {
        let spill = spill.then(|| SpillFile::new(std::env::temp_dir()));
        Arc::new(Keeper { budget: Budget::new(limit), spill })
    }

    fn chunk() -> CsrBuffer {
        let mut chunk = CsrBuffer::new(100, ValueKind::F32);
        chunk.indices = (0..100).collect();
        chunk.values = Values::F32(vec![1.0; 100]);
        chunk.end_row();
        chunk
    }

    #[test]
    fn a_chunk_that_two_workers_offer_counts_once_and_is_given_back() {
        let keeper = keeper(10_000, false);
        let store = Store::new(2, Arc::clone(&keeper), 10_000);
        let (chunk, mut bytes) = (chunk(), Vec::new());
        store.offer(0, chunk.view(), false, &mut bytes);
        let once = store.bytes();
        assert!(once.0 >= 200 && once.1 == 0);
        store.offer(0, chunk.view(), false, &mut bytes);
        assert_eq!(store.bytes(), once);
        assert!(!store.is_complete());
        store.forget(0);
        assert_eq!(store.bytes(), (0, 0));
        assert!(keeper.budget.take(10_000, u64::MAX), "everything was given back");
    }

    #[test]
    fn what_memory_has_no_room_for_is_spilled_if_it_may_be() {
        let keeper = keeper(100, true);
        let store = Store::new(1, keeper, 100);
        let (chunk, mut bytes) = (chunk(), Vec::new());
        store.offer(0, chunk.view(), false, &mut bytes);
        assert!(store.get(0, &mut bytes).expect("no error").is_none());
        store.offer(0, chunk.view(), true, &mut bytes);
        let kept = store.get(0, &mut bytes).expect("no error").expect("it is kept");
        assert_eq!(kept.view(&mut CsrBuffer::new(0, ValueKind::F32)).indices(), chunk.indices);
        assert!(store.is_complete() && store.bytes().1 > 0);
    }
}
