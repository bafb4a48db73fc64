//! Files in many layouts of HDF5 hold for us what they hold for Python: a few that are kept here, and, where Python is given,
//! hundreds that it writes, and all real files.

mod common;

use std::path::Path;

use common::{dump, first_difference, is_newer_than_libhdf5, open_and_read, run_python};
use zheng17_core::CsrBuffer;
use zheng17_core::matrix::ValueKind;
use zheng17_io::{FeatureTypes, OpenOptions};
use zheng17_test_support as support;

/// Compares every file that a folder's list names with the text beside it. Where the program reads through the system's libhdf5,
/// a few may be newer than it.
fn compare_all(folder: &Path, at_least: usize) {
    let list = std::fs::read_to_string(folder.join("list.tsv")).expect("a list of files");
    let mut complaints = Vec::new();
    let (mut n_compared, mut n_newer) = (0, 0);
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
            memory: None,
        };
        let expected = std::fs::read_to_string(folder.join(format!("{key}.expected"))).expect("an expected text");
        let complaint = match open_and_read(&folder.join(name), &options) {
            Ok((dataset, whole)) => first_difference(&dump(&dataset, &whole), &expected),
            Err(error) if is_newer_than_libhdf5(&error.to_string()) => {
                n_newer += 1;
                continue;
            }
            Err(error) => Some(error.to_string()),
        };
        complaints.extend(complaint.map(|complaint| format!("{key}: {complaint}")));
        n_compared += 1;
    }
    assert!(complaints.is_empty(), "{} of {n_compared}:\n{}", complaints.len(), complaints.join("\n"));
    assert!(n_compared + n_newer >= at_least, "only {n_compared} files were compared");
    assert!(n_newer <= n_compared / 4, "{n_newer} files are newer than libhdf5");
}

#[test]
fn layouts_that_are_kept_here() {
    compare_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts"), 40);
}

#[cfg(feature = "libhdf5")]
#[test]
fn layouts_that_only_the_newest_libhdf5_knows() {
    let name = "tests/fixtures/layouts/chunks_latest_4_fixed_all.h5ad";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    match open_and_read(&path, &OpenOptions::default()) {
        Ok(_) => {}
        Err(error) if is_newer_than_libhdf5(&error.to_string()) => {
            support::skip("layouts_that_only_the_newest_libhdf5_knows", "needs libhdf5 2.0 or later");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn several_threads_read_ranges_in_any_order() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts");
    for name in ["chunks_earliest_2_grow_all.h5ad", "store_all_csc.h5ad", "dense_grow_latest_lzf.h5ad"] {
        let (dataset, whole) = match open_and_read(&folder.join(name), &OpenOptions::default()) {
            Ok(read) => read,
            Err(error) if is_newer_than_libhdf5(&error.to_string()) => continue,
            Err(error) => panic!("{error}"),
        };
        let n_cells = whole.n_cells();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (source, whole) = (&dataset.source, &whole);
                scope.spawn(move || {
                    let mut chunk = CsrBuffer::new(whole.n_genes, ValueKind::F32);
                    for round in 0..200 {
                        let start = (round * 31 + thread * 7) % n_cells;
                        let end = (start + 1 + round % 9).min(n_cells);
                        source.read_cells(start..end, &mut chunk).expect("a range");
                        let expected = whole.view().rows(start..end);
                        let mut copy = CsrBuffer::new(whole.n_genes, ValueKind::F32);
                        copy.append(expected);
                        assert_eq!((&chunk.indptr, &chunk.indices), (&copy.indptr, &copy.indices), "{name} {start}");
                        assert_eq!(chunk.values, copy.values, "{name} {start}");
                        assert_eq!(chunk.first_cell, start);
                    }
                });
            }
        });
    }
}

#[test]
fn layouts_made_by_h5py_and_anndata() {
    let Some(python) = support::python("layouts_made_by_h5py_and_anndata") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_python(&python, "layouts.py", &[folder.path()]);
    compare_all(folder.path(), 400);
}

#[test]
fn real_files_as_anndata_and_scanpy_read_them() {
    let test = "real_files_as_anndata_and_scanpy_read_them";
    let (Some(python), Some(shared)) = (support::python(test), support::shared(test)) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_python(&python, "real.py", &[folder.path(), &shared]);
    compare_all(folder.path(), 40);
}

#[test]
fn dense_matrices_are_the_same_within_any_memory() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts");
    let within = |name: &str, memory| {
        let options = OpenOptions { memory: Some(memory), ..OpenOptions::default() };
        open_and_read(&folder.join(name), &options)
    };
    for (name, memories) in [
        ("dense_blocks_earliest_gzip9shuffle.h5ad", [0, 5000, 20_000]),
        ("dense_grow_latest_lzf.h5ad", [3200, 5000, 20_000]),
    ] {
        let whole = match open_and_read(&folder.join(name), &OpenOptions::default()) {
            Ok((_, whole)) => whole,
            Err(error) if is_newer_than_libhdf5(&error.to_string()) => continue,
            Err(error) => panic!("{error}"),
        };
        let mut notes = Vec::new();
        for memory in memories {
            let (dataset, found) = within(name, memory).expect("a dense matrix");
            assert!(found == whole, "{name}, {memory} bytes");
            notes.push(dataset.notes.concat());
        }
        assert!(notes[0].contains(" values, each decoded 16 times to read all cells."), "{notes:?}");
        assert_eq!(notes[2], "", "enough for two rows of chunks");
    }
    let Err(error) = within("dense_grow_latest_lzf.h5ad", 0) else { panic!("that would take too long") };
    assert!(
        error.to_string().contains(": X: it is stored in chunks of 32 × 32 values, each decoded 32 times ")
            || is_newer_than_libhdf5(&error.to_string()),
        "{error}"
    );
}
