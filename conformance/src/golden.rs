//! The golden set: texts in `golden/` that every backend must reproduce, and that only the reference backend may renew.
//!
//! A text that changed on purpose is renewed with
//! `INSTA_UPDATE=always cargo test -p zheng17-conformance --test backends -- serial::golden`.

use std::path::{Path, PathBuf};

use crate::suite::{Outcome, Stop, Subject};

/// Compares a text with the one of this name.
pub(crate) fn compare(subject: &Subject, name: &str, text: &str) -> Outcome {
    if subject.renews_golden_set {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(folder());
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        // A difference panics with both texts, which the runner reports as a failure.
        settings.bind(|| insta::assert_snapshot!(name, text));
        return Ok(());
    }
    let path = folder().join(format!("{name}.snap"));
    let golden = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    // Two lines of three dashes enclose what insta says of the text.
    let golden = golden.splitn(3, "---\n").nth(2).unwrap_or_default();
    let (mut found, mut expected) = (text.trim_end().lines(), golden.trim_end().lines());
    for line in 1.. {
        match (found.next(), expected.next()) {
            (None, None) => break,
            (found, expected) if found == expected => {}
            (found, expected) => {
                return Err(Stop::Failed(format!(
                    "{}, line {line}: found {found:?}, expected {expected:?}",
                    path.display()
                )));
            }
        }
    }
    Ok(())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}
