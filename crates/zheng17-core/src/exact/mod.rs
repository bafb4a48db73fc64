//! Sums without rounding: why every backend gets the same bits.

/// The most cells that the 128-bit sums have room for.
pub const MOST_CELLS: usize = (1 << 24) - 1;
