//! The golden set: texts in `golden/` that every backend must reproduce, and that only the reference backend may renew.
//!
//! A text that changed on purpose is renewed with
//! `INSTA_UPDATE=always cargo test -p zheng17-conformance --test backends -- serial::golden`.

use std::path::Path;

use crate::suite::{Outcome, Stop, Subject};

macro_rules! golden_set {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../golden/", $name, ".snap")))),+]
    };
}

/// The texts by their names. They are part of the program, so that it needs no files where it runs.
const GOLDEN_SET: &[(&str, &str)] = golden_set![
    "exact_300_cells_of_400_genes",
    "exact_500_cells_of_150_genes_64_bits",
    "exact_60_cells_of_900_genes",
    "scanpy-1.12_300_cells_of_400_genes",
    "scanpy-1.12_500_cells_of_150_genes_64_bits",
    "scanpy-1.12_60_cells_of_900_genes",
    "scanpy-1.4_300_cells_of_400_genes",
    "scanpy-1.4_500_cells_of_150_genes_64_bits",
    "scanpy-1.4_60_cells_of_900_genes",
    "scanpy-main_300_cells_of_400_genes",
    "scanpy-main_500_cells_of_150_genes_64_bits",
    "scanpy-main_60_cells_of_900_genes",
];

/// Compares a text with the one of this name.
pub(crate) fn compare(subject: &Subject, name: &str, text: &str) -> Outcome {
    if subject.renews_golden_set {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"));
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        // A difference panics with both texts, which the runner reports as a failure.
        settings.bind(|| insta::assert_snapshot!(name, text));
        return Ok(());
    }
    let Some((_, golden)) = GOLDEN_SET.iter().find(|(known, _)| *known == name) else {
        return Err(Stop::Failed(format!("the golden set has no {name}; its list in golden.rs must name it")));
    };
    // Two lines of three dashes enclose what insta says of the text.
    let golden = golden.splitn(3, "---\n").nth(2).unwrap_or_default();
    let (mut found, mut expected) = (text.trim_end().lines(), golden.trim_end().lines());
    for line in 1.. {
        match (found.next(), expected.next()) {
            (None, None) => break,
            (found, expected) if found == expected => {}
            (found, expected) => {
                return Err(Stop::Failed(format!(
                    "golden/{name}.snap, line {line}: found {found:?}, expected {expected:?}"
                )));
            }
        }
    }
    Ok(())
}
