//! Room for what a plugin gives back, fenced: a pattern before and behind it shows whether the plugin wrote outside.

use zheng17_core::exact::{GeneCounts, GeneMoments};
use zheng17_core::matrix::{ValueKind, ValuesRef};
use zheng17_core::{Error, Result};
use zheng17_plugin_abi as abi;

/// How many items a fence has, on each side.
const FENCE: usize = 8;

/// Room for a number of items between two fences.
pub(crate) struct Fenced<T> {
    items: Vec<T>,
    n: usize,
    start: T,
    fence: T,
}

impl<T: Copy + PartialEq> Fenced<T> {
    /// No room yet. Items will be `start` before a call; `fence` is what no plugin writes.
    fn new(start: T, fence: T) -> Self {
        Self { items: Vec::new(), n: 0, start, fence }
    }

    /// Makes room for `n` items, all of them as at the start, and says where they go.
    pub(crate) fn fresh(&mut self, n: usize) -> *mut T {
        self.items.clear();
        self.items.resize(FENCE, self.fence);
        self.items.resize(FENCE + n, self.start);
        self.items.resize(FENCE + n + FENCE, self.fence);
        self.n = n;
        self.items[FENCE..].as_mut_ptr()
    }

    /// As [`fresh`](Self::fresh), but items that were not [forgotten](Self::forget) are what they were.
    pub(crate) fn again(&mut self, n: usize) -> *mut T {
        if self.items.len() < FENCE + n + FENCE {
            return self.fresh(n);
        }
        self.n = n;
        self.items[FENCE + n..][..FENCE].fill(self.fence);
        self.items[FENCE..].as_mut_ptr()
    }

    /// Makes the first items, and what was a fence behind the room, as at the start.
    pub(crate) fn forget(&mut self, n_items: usize) {
        self.items[FENCE..][..n_items].fill(self.start);
        self.items[FENCE + self.n..][..FENCE].fill(self.start);
    }

    pub(crate) fn items(&self) -> &[T] {
        &self.items[FENCE..][..self.n]
    }

    /// # Errors
    /// If the plugin wrote before or behind the room.
    pub(crate) fn check(&self, function: &str, what: &str) -> Result<()> {
        let (before, rest) = self.items.split_at(FENCE);
        let behind = &rest[self.n..][..FENCE];
        for (fence, side) in [(before, "before"), (behind, "behind")] {
            if fence.iter().any(|item| *item != self.fence) {
                return Err(Error::internal(format!("{function} wrote {side} the room for {what}")));
            }
        }
        Ok(())
    }
}

/// What each kind of result needs. Fresh memory costs more than most calls do, so it is used again.
pub(crate) struct Room {
    pub(crate) counts: Fenced<abi::GeneCounts>,
    pub(crate) cell_totals: Fenced<f64>,
    pub(crate) checked_counts: Vec<GeneCounts>,
    pub(crate) moments: Fenced<abi::GeneMoments>,
    pub(crate) checked_moments: Vec<GeneMoments>,
    pub(crate) row_lengths: Fenced<u64>,
    pub(crate) genes: Fenced<u32>,
    /// Zero before each call, as are those of 64 bits: what a plugin forgets to write is found to be no value.
    pub(crate) values_32: Fenced<f32>,
    pub(crate) values_64: Fenced<f64>,
    /// Only for plugins that are watched: others write where the results are wanted.
    pub(crate) scaled: Fenced<f32>,
}

impl Room {
    pub(crate) fn new() -> Self {
        const PATTERN: u64 = 0x5AFE_C0DE_5AFE_C0DE;
        const WIDE: abi::Wide = abi::Wide { low: PATTERN, high: PATTERN };
        // Numbers of neither kind are ever negative and as odd as this, and scaled values are not so large.
        let (single, double) = (-1.234_567_9e33_f32, -1.234_567_890_123_4e99_f64);
        let counts = abi::GeneCounts { total: WIDE, sum: WIDE, sum_of_squares: WIDE };
        let moments = abi::GeneMoments { sum: WIDE, sum_of_squares: WIDE };
        Self {
            counts: Fenced::new(abi::GeneCounts::default(), counts),
            cell_totals: Fenced::new(f64::NAN, double),
            checked_counts: Vec::new(),
            moments: Fenced::new(abi::GeneMoments::default(), moments),
            checked_moments: Vec::new(),
            row_lengths: Fenced::new(0, PATTERN),
            genes: Fenced::new(0, PATTERN as u32),
            values_32: Fenced::new(0.0, single),
            values_64: Fenced::new(0.0, double),
            scaled: Fenced::new(f32::NAN, single),
        }
    }

    /// The values that were selected.
    pub(crate) fn values(&self, kind: ValueKind) -> ValuesRef<'_> {
        match kind {
            ValueKind::F32 => ValuesRef::F32(self.values_32.items()),
            ValueKind::F64 => ValuesRef::F64(self.values_64.items()),
        }
    }
}
