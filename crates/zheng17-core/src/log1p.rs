//! log(1 + x), the same bits on every machine.
//!
//! A platform's own `log1p` may differ in the last bit from another's, so the recipe uses this one: only additions,
//! multiplications, divisions and bit operations, in an order that IEEE 754 fixes, without contraction. The error is below one
//! unit in the last place.
//!
//! Method: 1 + x = 2^k · (1 + f) with √½ < 1 + f < √2, and with s = f / (2 + f)
//!
//! log(1 + f) = 2 · artanh(s) = 2s + 2s³/3 + 2s⁵/5 + … = f − (f²/2 − s · (f²/2 + R)), R = 2s²/3 + 2s⁴/5 + …
//!
//! The last form, known from W. Kahan's and the FreeBSD libm, keeps f exact and makes everything else a small correction.
//! As |s| < 0.1716, the series is cut where its terms are below 2^−58.

/// The high part of log 2: its last 21 bits are zero, so that k times it is exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
/// log 2 − [`LN_2_HIGH`].
const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
/// The high 32 bits of √2.
const SQRT_2_HIGH: u64 = 0x3ff6_a09e;

/// log(1 + x), with an error below one unit in the last place.
///
/// Negative infinity at −1, NaN below it; infinity and NaN pass through.
#[inline]
pub fn log1p(x: f64) -> f64 {
    if !(x > -1.0 && x < f64::INFINITY) {
        return if x == -1.0 {
            f64::NEG_INFINITY
        } else if x < -1.0 {
            f64::NAN
        } else {
            x
        };
    }
    if x.abs() < 2_f64.powi(-54) {
        return x;
    }
    let u = 1.0 + x;
    // Adding the distance from √½ to 1 to the exponent bits makes every u in [√½, √2) come out with exponent 0.
    let bits = u.to_bits();
    let shifted = bits + ((0x3ff0_0000 - (SQRT_2_HIGH - 0x0010_0000)) << 32);
    let k = ((shifted >> 52) as i64 - 1023) as f64;
    let (f, correction) = if k == 0.0 {
        (x, 0.0)
    } else {
        // What was lost in rounding 1 + x, relative to u.
        let lost = if x >= 1.0 { 1.0 - (u - x) } else { x - (u - 1.0) };
        let reduced = (shifted & 0x000f_ffff_ffff_ffff) + ((SQRT_2_HIGH - 0x0010_0000) << 32);
        (f64::from_bits(reduced) - 1.0, lost / u)
    };
    log_of_reduced(k, f, correction)
}

/// log(2^k · (1 + f)) plus a small correction, for √½ < 1 + f < √2: the arithmetic that every implementation shares.
#[allow(clippy::inline_always, reason = "vectorised kernels compile it for their own instructions")]
#[inline(always)]
pub fn log_of_reduced(k: f64, f: f64, correction: f64) -> f64 {
    let half_square = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    let mut r = 2.0 / 23.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        r = r * z + 2.0 / odd;
    }
    let r = r * z;
    k * LN_2_HIGH - ((half_square - (s * (half_square + r) + (k * LN_2_LOW + correction))) - f)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &[(u64, u64, u64)] = include!("log1p_reference.rs");

    fn ulp(x: f64) -> f64 {
        let x = x.abs();
        x.next_up() - x
    }

    #[test]
    fn error_is_below_one_ulp() {
        let mut worst = 0.0_f64;
        for &(x, high, low) in REFERENCE {
            let (x, high, low) = (f64::from_bits(x), f64::from_bits(high), f64::from_bits(low));
            let error = ((log1p(x) - high) - low).abs() / ulp(high);
            assert!(error < 1.0, "log1p({x:e}) is off by {error} ulp");
            worst = worst.max(error);
        }
        assert!(worst > 0.0, "rounding must show somewhere, or the test compares nothing");
    }

    #[test]
    fn edges() {
        assert_eq!(log1p(0.0).to_bits(), 0.0_f64.to_bits());
        assert_eq!(log1p(-0.0).to_bits(), (-0.0_f64).to_bits());
        assert_eq!(log1p(f64::MIN_POSITIVE), f64::MIN_POSITIVE);
        assert_eq!(log1p(-1.0), f64::NEG_INFINITY);
        assert_eq!(log1p(f64::INFINITY), f64::INFINITY);
        assert!(log1p(-1.5).is_nan() && log1p(f64::NAN).is_nan() && log1p(f64::NEG_INFINITY).is_nan());
        assert_eq!(log1p(f64::MAX), 1024.0 * std::f64::consts::LN_2);
    }

    #[test]
    fn bits_are_pinned() {
        // One digest over many values: any change of method or contraction shows.
        let digest = (1..200_000_u64).fold(0_u64, |digest, i| {
            digest.rotate_left(5) ^ log1p(i as f64 * 0.001_37).to_bits().wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        assert_eq!(digest, 7_400_781_849_595_824_281);
    }

    #[test]
    fn never_decreases() {
        let values: Vec<f64> = (0..100_000).map(|i| log1p(f64::from(i) * 1e-4)).collect();
        assert!(values.is_sorted());
    }
}
