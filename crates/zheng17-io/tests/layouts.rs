//! Files in many layouts of HDF5, written by h5py and anndata, hold for us what they hold for Python.

mod common;

use std::path::Path;

use common::{dump, first_difference, open_and_read, run_python};
use zheng17_io::{FeatureTypes, OpenOptions};

/// Runs a script that fills a folder with files and a list, and compares each with its text.
fn compare_all(python: &Path, script: &str, arguments: &[&Path], at_least: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut all = vec![folder.path()];
    all.extend(arguments);
    run_python(python, script, &all);
    let list = std::fs::read_to_string(folder.path().join("list.tsv")).expect("the script wrote a list");
    let mut complaints = Vec::new();
    let mut n_compared = 0;
    for line in list.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[name, layer, raw, genome, feature, key] = fields.as_slice() else { panic!("a wrong line: {line}") };
        let chosen = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let options = OpenOptions {
            layer: chosen(layer),
            raw: !raw.is_empty(),
            genome: chosen(genome),
            feature_types: match feature {
                "" => FeatureTypes::GeneExpression,
                "all" => FeatureTypes::All,
                named => FeatureTypes::Named(named.to_owned()),
            },
        };
        let expected =
            std::fs::read_to_string(folder.path().join(format!("{key}.expected"))).expect("an expected text");
        let complaint = match open_and_read(&folder.path().join(name), &options) {
            Ok((dataset, whole)) => first_difference(&dump(&dataset, &whole), &expected),
            Err(error) => Some(error.to_string()),
        };
        complaints.extend(complaint.map(|complaint| format!("{key}: {complaint}")));
        n_compared += 1;
    }
    assert!(complaints.is_empty(), "{} of {n_compared}:\n{}", complaints.len(), complaints.join("\n"));
    assert!(n_compared >= at_least, "only {n_compared} files were compared");
}

#[test]
fn layouts_made_by_h5py_and_anndata() {
    let Some(python) = zheng17_test_support::python("layouts_made_by_h5py_and_anndata") else { return };
    compare_all(&python, "layouts.py", &[], 400);
}

#[test]
fn real_files_as_anndata_and_scanpy_read_them() {
    let test = "real_files_as_anndata_and_scanpy_read_them";
    let (Some(python), Some(shared)) = (zheng17_test_support::python(test), zheng17_test_support::shared(test)) else {
        return;
    };
    compare_all(&python, "real.py", &[&shared], 40);
}
