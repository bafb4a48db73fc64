//! How far numbers may be apart: the one place that says so.
//!
//! What follows from exact sums has no tolerance between backends; it is compared bit by bit. Tolerances are for comparing
//! with other programs, with other arithmetic of our own, and for backends that say that their logarithms may differ.

use approx::AbsDiffEq as _;
use zheng17_core::backend::Determinism;
use zheng17_core::recipe::RecipeVersion;

use crate::suite::Stop;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Totals of cells and genes, and factors made of them.
    Total,
    /// Means, variances, dispersions, scores, scaled and normalised values, means and deviations of the scaling.
    Value,
    /// Variances of principal components.
    ComponentVariance,
    /// Loadings of well separated principal components, by their cosine.
    Loading,
}

/// What it is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Against {
    /// The same statement in ordinary 64-bit arithmetic, on 64-bit values.
    Float64,
    /// The same statement in 64-bit arithmetic, of results that were rounded to 32 bits.
    Float32,
    /// What another program wrote down for this version of the recipe.
    Oracle(RecipeVersion),
    /// The reference backend, by a backend of this determinism.
    Reference(Determinism),
}

/// |found − expected| ≤ absolute + relative · |expected|.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// What even zeros may differ by.
    pub absolute: f64,
    /// What large numbers may differ by.
    pub relative: f64,
}

/// The policy.
pub fn tolerance(quantity: Quantity, against: Against) -> Tolerance {
    let both = |t: f64| Tolerance { absolute: t, relative: t };
    match (quantity, against) {
        (_, Against::Reference(Determinism::SameBits | Determinism::SameBitsButPca)) => both(0.0),
        // A last place of f64 before rounding to f32 moves a result by at most one last place of f32.
        (_, Against::Reference(Determinism::SameBitsUpToLog)) => Tolerance { absolute: 1e-12, relative: 1.2e-7 },
        (Quantity::Total, Against::Float64) => Tolerance { absolute: 0.0, relative: 1e-12 },
        (_, Against::Float64) => both(1e-9),
        (_, Against::Float32) => both(1e-6),
        (Quantity::Total, Against::Oracle(_)) => Tolerance { absolute: 0.0, relative: 1e-6 },
        (Quantity::Value, Against::Oracle(version)) if version == RecipeVersion::SCANPY_1_4 => both(1e-3),
        (Quantity::Value, Against::Oracle(_)) => both(1e-5),
        (Quantity::ComponentVariance, Against::Oracle(version)) if version == RecipeVersion::SCANPY_1_4 => {
            Tolerance { absolute: 0.0, relative: 1e-3 }
        }
        (Quantity::ComponentVariance, Against::Oracle(_)) => Tolerance { absolute: 0.0, relative: 1e-4 },
        (Quantity::Loading, Against::Oracle(_)) => both(1e-3),
    }
}

impl Tolerance {
    /// Whether a number is near enough. NaN is near NaN, infinity near itself.
    pub fn holds(self, found: f64, expected: f64) -> bool {
        if found == expected || (found.is_nan() && expected.is_nan()) {
            return true;
        }
        found.is_finite()
            && expected.is_finite()
            && found.abs_diff_eq(&expected, self.absolute + self.relative * expected.abs())
    }

    /// Compares numbers one by one.
    ///
    /// # Errors
    /// [`Stop::Failed`] naming the worst pair, or that the numbers of numbers differ.
    pub fn compare(self, what: &str, found: &[f64], expected: &[f64]) -> Result<(), Stop> {
        if found.len() != expected.len() {
            return Err(Stop::Failed(format!("{what}: {} numbers, expected {}", found.len(), expected.len())));
        }
        let excess = |(f, e): (f64, f64)| match (f - e).abs() / (self.absolute + self.relative * e.abs()) {
            excess if excess.is_nan() => f64::INFINITY,
            excess => excess,
        };
        let pairs = || found.iter().copied().zip(expected.iter().copied());
        let wrong = pairs().enumerate().filter(|(_, (f, e))| !self.holds(*f, *e));
        let n_wrong = wrong.clone().count();
        match wrong.max_by(|a, b| excess(a.1).total_cmp(&excess(b.1))) {
            None => Ok(()),
            Some((at, (f, e))) => Err(Stop::Failed(format!(
                "{what}: {n_wrong} of {} numbers differ by too much; the worst, at {at}: found {f:e}, expected {e:e}",
                found.len()
            ))),
        }
    }
}

/// Compares numbers by the policy.
///
/// # Errors
/// [`Stop::Failed`] naming the worst pair.
pub fn compare(what: &str, quantity: Quantity, against: Against, found: &[f64], expected: &[f64]) -> Result<(), Stop> {
    tolerance(quantity, against).compare(what, found, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near() {
        let t = Tolerance { absolute: 1e-5, relative: 1e-5 };
        assert!(t.holds(1.0, 1.0 + 1.9e-5) && !t.holds(1.0, 1.0 + 2.1e-5));
        assert!(t.holds(f64::NAN, f64::NAN) && !t.holds(f64::NAN, 1.0) && !t.holds(1.0, f64::NAN));
        assert!(t.holds(f64::INFINITY, f64::INFINITY) && !t.holds(f64::INFINITY, 1e300));
        assert!(t.compare("x", &[1.0], &[1.0, 2.0]).is_err());
        assert_eq!(
            t.compare("x", &[1.0, 2.0, 3.0], &[1.0, 2.5, f64::NAN]),
            Err(Stop::Failed(
                "x: 2 of 3 numbers differ by too much; the worst, at 2: found 3e0, expected NaN".to_owned()
            ))
        );
    }
}
