//! Sums without rounding: why every backend gets the same bits.
//!
//! Each term of a sum becomes an integer by operations that IEEE 754 defines to the last bit, and integers are added. Addition
//! of integers is associative and commutative, so a summary has the same bits whatever the order, the chunks, the threads or
//! the machine. Fixed points:
//!
//! | quantity | unit | integer |
//! |---|---|---|
//! | totals of cells and genes | 2^−40 | `rint(x · 2^40)` |
//! | share of an entry in its cell's total | 2^−52 | `q = rint(min(x · (2^52 / t), 2^52))` and `q²` |
//! | log1p of a normalised value (below 64) | 2^−46 | `q = rint(l · 2^46)` and `q²` |
//! | `f32` arithmetic of scanpy, values below 2^e | 2^(e−52) | `q = rint(v · 2^(52−e))` and `rint(v² · 2^(104−2e))` |
//!
//! So q ≤ 2^52 and q² ≤ 2^104, which leaves a 128-bit sum room for [`MOST_CELLS`] cells. The variance is
//! n·Σq² − (Σq)², formed in 256 bits ([`wide`]) and converted to `f64` once: a constant gene gets exactly 0.

mod bytes;
mod counts;
mod moments;
pub mod wide;

pub use counts::{CountFacts, CountSummary, GeneCounts};
pub(crate) use moments::mean_and_variance;
pub use moments::{Arithmetic, GeneMoments, MomentPlan, MomentSummary};

/// The most cells that the 128-bit sums have room for: q² ≤ 2^104.
pub const MOST_CELLS: usize = (1 << 24) - 1;

/// The most that one cell adds to a gene's total: a count of 2^53, in units of 2^−40.
pub const MOST_TOTAL: u128 = 1 << 93;

/// The most that one cell adds to a gene's Σq.
pub const MOST_SUM: u128 = 1 << 52;

/// The most that one cell adds to a gene's Σq².
pub const MOST_SQUARES: u128 = 1 << 104;

/// 2^52: the integer that stands for a share of one.
pub const TWO_52: f64 = 4_503_599_627_370_496.0;

/// 2^40: the integer that stands for a total of one.
pub const TWO_40: f64 = 1_099_511_627_776.0;

/// 2^46: the integer that stands for a logarithmised value of one.
pub const TWO_46: f64 = 70_368_744_177_664.0;

/// A value in units of 2^−40, as totals are summed. Exact for integers; fractions below 2^−41 are 0.
#[inline]
pub fn fixed_total(value: f64) -> u128 {
    (value * TWO_40).round_ties_even() as u128
}

/// A sum of [`fixed_total`]s as the nearest `f64`.
#[inline]
pub fn total_from_fixed(total: u128) -> f64 {
    total as f64 / TWO_40
}

/// The weight w = 2^52 / t of a cell of total `t`; 0 for an empty cell.
#[inline]
pub fn share_weight(total: f64) -> f64 {
    if total > 0.0 { TWO_52 / total } else { 0.0 }
}

/// The share of a value in its cell's total as an integer in units of 2^−52, given the cell's [`share_weight`].
///
/// The minimum matters only for fractions so small that the rounded total is below one of its terms.
#[inline]
pub fn share(value: f64, weight: f64) -> u64 {
    (value * weight).min(TWO_52).round_ties_even() as u64
}
