//! Number types that counts are stored in, turned into the smallest float that holds them exactly. Files and arrays both do it here.

use crate::matrix::Values;
use crate::source::LARGEST_COUNT;

/// The largest whole number up to which `f32` holds all of them.
const F32_EXACT: u64 = 1 << 24;

/// A number type that values are stored in.
pub trait StoredNumber: Copy {
    /// Whether `f32` surely holds it. A quick test that may miss some; what is not a number counts as held.
    fn is_small(self) -> bool;
    /// The nearest `f32`.
    fn to_f32(self) -> f32;
    /// The nearest `f64`, but never 2^53 for something larger, so that the check of counts refuses it.
    fn to_f64(self) -> f64;
}

/// Values as the smallest kind that holds all of them exactly: `f32` where possible.
pub fn smallest_values<T: StoredNumber>(values: &[T]) -> Values {
    if values.iter().all(|value| value.is_small()) {
        return Values::F32(values.iter().map(|value| value.to_f32()).collect());
    }
    let wide: Vec<f64> = values.iter().map(|value| value.to_f64()).collect();
    if wide.iter().all(|value| value.is_small()) {
        Values::F32(wide.iter().map(|value| value.to_f32()).collect())
    } else {
        Values::F64(wide)
    }
}

impl StoredNumber for f32 {
    fn is_small(self) -> bool {
        true
    }
    fn to_f32(self) -> f32 {
        self
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl StoredNumber for f64 {
    fn is_small(self) -> bool {
        f64::from(self as f32) == self || self.is_nan()
    }
    fn to_f32(self) -> f32 {
        self as f32
    }
    fn to_f64(self) -> f64 {
        self
    }
}

impl StoredNumber for bool {
    fn is_small(self) -> bool {
        true
    }
    fn to_f32(self) -> f32 {
        f32::from(u8::from(self))
    }
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// Whole numbers of at most 16 bits.
macro_rules! short {
    ($($number:ty),*) => {$(
        impl StoredNumber for $number {
            fn is_small(self) -> bool {
                true
            }
            fn to_f32(self) -> f32 {
                f32::from(self)
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }
    )*};
}
short!(u8, i8, u16, i16);

/// Whole numbers of more bits. `$magnitude` is their absolute value as `u64`.
macro_rules! long {
    ($($number:ty, $magnitude:expr;)*) => {$(
        impl StoredNumber for $number {
            fn is_small(self) -> bool {
                $magnitude(self) <= F32_EXACT
            }
            fn to_f32(self) -> f32 {
                self as f32
            }
            fn to_f64(self) -> f64 {
                let nearest = self as f64;
                if self > 0 && $magnitude(self) > LARGEST_COUNT as u64 { nearest.max(LARGEST_COUNT.next_up()) } else { nearest }
            }
        }
    )*};
}
long! {
    u32, u64::from;
    i32, |x: i32| u64::from(x.unsigned_abs());
    u64, |x: u64| x;
    i64, i64::unsigned_abs;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_the_smallest_exact_one() {
        assert_eq!(smallest_values(&[0_i64, -3, 1 << 24]), Values::F32(vec![0.0, -3.0, 16_777_216.0]));
        assert_eq!(smallest_values(&[(1_u32 << 24) + 1]), Values::F64(vec![16_777_217.0]));
        assert_eq!(smallest_values(&[1_i32 << 25]), Values::F32(vec![33_554_432.0]), "exact though large");
        assert_eq!(smallest_values(&[0.5, 0.1]), Values::F64(vec![0.5, 0.1]));
        assert_eq!(smallest_values(&[0.5]), Values::F32(vec![0.5]));
        assert_eq!(smallest_values(&[true, false]), Values::F32(vec![1.0, 0.0]));
        assert!(matches!(smallest_values(&[f64::NAN, 1.0]), Values::F32(v) if v[0].is_nan()));
    }

    #[test]
    fn whole_numbers_above_2_to_the_53_stay_above_it() {
        let limit = LARGEST_COUNT as u64;
        assert_eq!(limit.to_f64(), LARGEST_COUNT);
        assert!((limit + 1).to_f64() > LARGEST_COUNT);
        assert!((limit as i64 + 1).to_f64() > LARGEST_COUNT);
        assert!(u64::MAX.to_f64() > LARGEST_COUNT);
        assert!(i64::MIN.to_f64() < 0.0);
    }
}
