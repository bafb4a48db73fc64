//! Four 64-bit sums for each gene, in one half of a cache line: an entry costs one vector addition without carries.

/// Rows after which 64-bit sums are moved into 128-bit ones: each row adds at most 2^52 to a sum.
pub const ROWS_PER_FLUSH: usize = 4095;

/// The low 52 bits of a square; the rest has as many.
const LOW_BITS: u32 = 52;

/// q, the low and the high 52 bits of q², and a count; or sums of them over few rows.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(32))]
pub struct Lanes([u64; 4]);

impl Lanes {
    /// The terms of one entry.
    #[inline(always)]
    pub fn of(q: u64, count: u64) -> Self {
        let square = u128::from(q) * u128::from(q);
        Self([q, square as u64 & ((1 << LOW_BITS) - 1), (square >> LOW_BITS) as u64, count])
    }

    /// Adds the terms of an entry.
    #[inline(always)]
    pub fn add(&mut self, other: Self) {
        for (to, from) in self.0.iter_mut().zip(other.0) {
            *to += from;
        }
    }

    /// Σq.
    pub fn sum(self) -> u128 {
        u128::from(self.0[0])
    }

    /// Σq².
    pub fn sum_of_squares(self) -> u128 {
        u128::from(self.0[1]) + (u128::from(self.0[2]) << LOW_BITS)
    }

    /// The sum of the counts.
    pub fn count(self) -> u64 {
        self.0[3]
    }
}
