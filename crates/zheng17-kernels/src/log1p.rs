//! log(1 + x) for many values at once, with the bits of [`zheng17_core::log1p`].
//!
//! The same operations in the same order, without branches, so that a compiler makes vector instructions of them. For values
//! that are not negative and at most 2^54, which normalised counts are.

use zheng17_core::log1p::log_of_reduced;

const SQRT_2_HIGH: u64 = 0x3ff6_a09e;
const ONE_HIGH: u64 = 0x3ff0_0000;
const HALF_SQRT_2_HIGH: u64 = SQRT_2_HIGH - 0x0010_0000;
const MANTISSA: u64 = 0x000f_ffff_ffff_ffff;

/// 2^52 as bits: a small integer put into its low bits, less 2^52, is that integer as a float.
const TWO_52_BITS: u64 = 0x4330_0000_0000_0000;

/// log(1 + x) for x from 0 to 2^54.
#[inline(always)]
pub(crate) fn log1p(x: f64) -> f64 {
    let u = 1.0 + x;
    let shifted = u.to_bits() + ((ONE_HIGH - HALF_SQRT_2_HIGH) << 32);
    let k = f64::from_bits((shifted >> 52) | TWO_52_BITS) - f64::from_bits(1023 | TWO_52_BITS);
    let reduced = f64::from_bits((shifted & MANTISSA) + (HALF_SQRT_2_HIGH << 32)) - 1.0;
    let lost = if x >= 1.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let f = if k == 0.0 { x } else { reduced };
    let correction = if k == 0.0 { 0.0 } else { lost / u };
    let log = log_of_reduced(k, f, correction);
    // Below 2^-54 the logarithm is x itself; the formula gives the same but for the last bits of subnormals.
    if x < f64::from_bits(0x3c90_0000_0000_0000) { x } else { log }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn bits_of_the_scalar_one() {
        let small = (0..400).map(|i| 2_f64.powi(-i));
        let usual = (0..200_000).map(|i| f64::from(i) * 0.000_37);
        let large = (0..55).map(|i| 2_f64.powi(i) * 1.1 - 1e-9);
        for x in small.chain(usual).chain(large).chain([0.0, 0.414_213_562_373_095_03, 0.414_213_562_373_095_1]) {
            let x = x.min(2_f64.powi(54));
            assert_eq!(super::log1p(x).to_bits(), zheng17_core::log1p::log1p(x).to_bits(), "log1p({x:e})");
        }
    }

    proptest! {
        #[test]
        fn bits_of_the_scalar_one_anywhere(x in 0.0_f64..9e15) {
            prop_assert_eq!(super::log1p(x).to_bits(), zheng17_core::log1p::log1p(x).to_bits());
        }
    }
}
