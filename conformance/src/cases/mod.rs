//! The list of cases, by group.

mod real_files;

use crate::suite::Case;

/// All cases.
pub fn cases() -> Vec<Case> {
    [real_files::cases()].into_iter().flatten().collect()
}
