//! What the program writes, read by scanpy and compared with scanpy's own recipe.

use std::path::Path;
use std::process::Command;

fn run(folder: &Path, words: &str) {
    let program = assert_cmd::cargo::cargo_bin("zheng17");
    let output = Command::new(program).current_dir(folder).args(words.split_whitespace()).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn scanpy_reads_the_result_and_finds_the_same() {
    let Some(python) = zheng17_test_support::python("scanpy_reads_the_result_and_finds_the_same") else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    for words in [
        "simulate --cells 400 --genes 5000 --seed 11 -o counts.h5ad",
        "simulate --cells 400 --genes 5000 --seed 11 -o counts.h5",
        "run counts.h5ad -o scaled.h5ad --recipe-version scanpy-1.12 --top-genes 200 --pca 10 --gene-table genes.tsv",
        "run counts.h5 -o lognorm.h5ad --recipe-version scanpy-1.12 --top-genes 200 --write-x lognorm",
        "run counts.h5 -o none.h5ad --recipe-version scanpy-1.12 --top-genes 200 --write-x none --pca 10",
    ] {
        run(folder.path(), words);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/check_result.py");
    let output = Command::new(python).arg(script).arg(folder.path()).output().expect("python starts");
    let said = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
}
