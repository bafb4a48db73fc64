//! Unsigned 256-bit integers: as much as variances need, and no more.

/// An unsigned 256-bit integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct U256 {
    high: u128,
    low: u128,
}

impl U256 {
    /// The product of two 128-bit integers.
    pub fn product(a: u128, b: u128) -> Self {
        const HALF: u32 = 64;
        const MASK: u128 = (1 << HALF) - 1;
        let (a1, a0, b1, b0) = (a >> HALF, a & MASK, b >> HALF, b & MASK);
        let low = a0 * b0;
        let middle = a1 * b0 + (low >> HALF);
        let middle_2 = a0 * b1 + (middle & MASK);
        Self { high: a1 * b1 + (middle >> HALF) + (middle_2 >> HALF), low: (middle_2 << HALF) | (low & MASK) }
    }

    /// `self − other`, or 0 where that would be negative.
    pub fn saturating_sub(self, other: Self) -> Self {
        if self < other {
            return Self { high: 0, low: 0 };
        }
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Self { high: self.high - other.high - u128::from(borrow), low }
    }

    /// The nearest `f64`, ties to even.
    pub fn to_f64(self) -> f64 {
        if self.high == 0 {
            return self.low as f64;
        }
        // The top 128 bits decide, but for ties; a sticky last bit keeps what was cut off.
        let zeros = self.high.leading_zeros();
        let (top, rest) = if zeros == 0 {
            (self.high, self.low)
        } else {
            ((self.high << zeros) | (self.low >> (128 - zeros)), self.low << zeros)
        };
        (top | u128::from(rest != 0)) as f64 * 2_f64.powi(128 - zeros as i32)
    }
}

/// n·Σq² − (Σq)² as the nearest `f64`: n(n−1) times the variance (ddof 1), in squared units of q.
///
/// By Cauchy and Schwarz it is never negative for sums of the same numbers.
pub fn scaled_variance(n: u64, sum: u128, sum_of_squares: u128) -> f64 {
    U256::product(u128::from(n), sum_of_squares).saturating_sub(U256::product(sum, sum)).to_f64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn constant_gene_has_no_variance() {
        let (n, q) = (1_306_127_u64, (1_u128 << 52) - 12_345);
        assert_eq!(scaled_variance(n, u128::from(n) * q, u128::from(n) * q * q), 0.0);
    }

    #[test]
    fn largest_product() {
        let square = U256::product(u128::MAX, u128::MAX);
        assert_eq!(square, U256 { high: u128::MAX - 1, low: 1 });
        assert_eq!(square.to_f64(), 2_f64.powi(256));
    }

    #[test]
    fn ties_go_to_even_and_sticky_bits_break_them() {
        let tie = U256 { high: (1 << 53) + 1, low: 0 };
        assert_eq!(tie.to_f64(), 2_f64.powi(53 + 128));
        let above = U256 { high: (1 << 53) + 1, low: 1 };
        assert_eq!(above.to_f64(), (2_f64.powi(53) + 2.0) * 2_f64.powi(128));
    }

    proptest! {
        #[test]
        fn product_agrees_with_smaller_ones(a: u128, b: u64, c: u64) {
            // (a · b) + (a · c) = a · (b + c) in the high and low halves.
            let whole = U256::product(a, u128::from(b) + u128::from(c));
            let rest = whole.saturating_sub(U256::product(a, u128::from(b)));
            prop_assert_eq!(rest, U256::product(a, u128::from(c)));
        }

        #[test]
        fn small_ones_convert_as_u128(a: u64, b: u64) {
            prop_assert_eq!(U256::product(u128::from(a), u128::from(b)).to_f64(), (u128::from(a) * u128::from(b)) as f64);
        }

        #[test]
        fn variance_of_integers_is_exact(values in proptest::collection::vec(0_u64..(1 << 20), 2..40)) {
            let n = values.len() as u64;
            let sum: u128 = values.iter().map(|&q| u128::from(q)).sum();
            let squares: u128 = values.iter().map(|&q| u128::from(q) * u128::from(q)).sum();
            prop_assert_eq!(scaled_variance(n, sum, squares), (u128::from(n) * squares - sum * sum) as f64);
        }
    }
}
