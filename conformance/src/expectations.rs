//! Cases that backends are known to fail, each with its reason. They must fail.

use crate::suite::Expectation;

/// All of them. There are none at present.
pub const EXPECTATIONS: &[Expectation] = &[];
