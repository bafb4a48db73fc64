//! What the output takes over from an AnnData input, compared by the real anndata where a Python that has it is given in
//! `ZHENG17_PYTHON`.

use std::path::{Path, PathBuf};
use std::process::Command;

use zheng17_core::Context;
use zheng17_core::matrix::{CsrBuffer, ValueKind, ValuesRef};
use zheng17_io::table::Table;
use zheng17_io::write::{CreateOptions, H5adWriter, Place, UnsValue, copy_rest};
use zheng17_io::{OpenOptions, open};
use zheng17_test_support::{python, shared, skip};

/// What the reader can't read, and what was computed from the input's values.
const LEFT_OUT: [&str; 2] = [
    "obsm/cube was left out: obsm/cube: 3 dimensions in chunks of 3; at most 2 can be read.",
    "varm/PCs of the input was left out: it was computed from other values than X has now.",
];

fn run(python: &Path, arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/check_rest.py");
    let output = Command::new(python).arg(script).args(arguments).output().expect("python starts");
    assert!(
        output.status.success(),
        "{arguments:?}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A wrong or unusual file that `python/odd.py` made.
fn odd_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/odd").join(name)
}

/// Writes every so many cells and genes of the input, without `X`, and gives the notes on what was left out.
fn take_over(input: &Path, output: &Path, options: &OpenOptions, every_cell: usize, every_gene: usize) -> Vec<String> {
    let dataset = open(input, options).expect("open");
    let cells: Vec<usize> = (0..dataset.obs.n_rows()).step_by(every_cell).collect();
    let genes: Vec<usize> = (0..dataset.var.n_rows()).step_by(every_gene).collect();
    let inputs = [input.to_path_buf()];
    let mut writer =
        H5adWriter::create(output, &CreateOptions { inputs: &inputs, ..CreateOptions::default() }).expect("create");
    writer.write_obs(&dataset.obs.select(&cells)).expect("obs");
    writer.write_var(&dataset.var.select(&genes)).expect("var");
    let kept = Some(cells.as_slice()).filter(|_| every_cell > 1);
    let notes = copy_rest(&dataset, kept, &genes, &mut writer, &Context::default()).expect("copy");
    writer.finish().expect("finish");
    notes
}

#[test]
fn a_layer_keeps_the_cells_and_genes_of_the_output() {
    let folder = tempfile::tempdir().expect("folder");
    let (input, output) = (folder.path().join("in.h5ad"), folder.path().join("out.h5ad"));
    let (n_cells, n_genes) = (30, 20);
    let names = |n: usize| Table::from_index("_index", (0..n).map(|at| at.to_string()).collect());
    let is_stored = |cell: usize, gene: usize| (cell * 7 + gene * 3).is_multiple_of(4);
    let mut writer = H5adWriter::create(&input, &CreateOptions::default()).expect("create");
    writer.write_obs(&names(n_cells)).expect("obs");
    writer.write_var(&names(n_genes)).expect("var");
    for place in [Place::X, Place::Layer("counts")] {
        let mut matrix = writer.csr(place, n_genes, (n_cells * n_genes) as u64).expect("start");
        let mut rows = CsrBuffer::new(n_genes, ValueKind::F32);
        for cell in 0..n_cells {
            for gene in (0..n_genes).filter(|&gene| is_stored(cell, gene)) {
                rows.indices.push(gene as u32);
                rows.values.push((cell * n_genes + gene) as f64 + 1.0);
            }
            rows.end_row();
        }
        matrix.push(rows.view()).expect("push");
        matrix.finish().expect("finish");
    }
    writer.finish().expect("finish");

    assert!(take_over(&input, &output, &OpenOptions::default(), 4, 3).is_empty());
    let options = OpenOptions { layer: Some("counts".to_string()), ..OpenOptions::default() };
    let layer = open(&output, &options).expect("open");
    let mut found = CsrBuffer::new(0, ValueKind::F32);
    layer.source.read_cells(0..n_cells.div_ceil(4), &mut found).expect("read");
    assert_eq!(found.n_genes, n_genes.div_ceil(3));
    for (row, cell) in (0..n_cells).step_by(4).enumerate() {
        let genes = (0..n_genes).step_by(3).enumerate().filter(|&(_, gene)| is_stored(cell, gene));
        let (indices, values): (Vec<u32>, Vec<f64>) =
            genes.map(|(at, gene)| (at as u32, (cell * n_genes + gene) as f64 + 1.0)).unzip();
        let view = found.view();
        assert_eq!(view.row_indices(row), indices);
        assert!((0..values.len()).all(|at| view.row_values(row).get(at) == values[at]));
    }
}

#[test]
fn groups_too_deep_or_within_themselves_are_left_out_and_named() {
    let folder = tempfile::tempdir().expect("folder");
    let (deep, output) = (folder.path().join("deep.h5ad"), folder.path().join("out.h5ad"));
    let mut writer = H5adWriter::create(&deep, &CreateOptions::default()).expect("create");
    let names = Table::from_index("_index", vec!["a", "b"].into());
    writer.write_obs(&names).expect("obs");
    writer.write_var(&names).expect("var");
    let mut x = writer.dense(Place::X, 2, 2, ValueKind::F32).expect("start");
    x.push(ValuesRef::F32(&[1.0; 4])).expect("push");
    x.finish().expect("finish");
    let nested = (0..40).fold(UnsValue::from(1_i64), |inner, _| UnsValue::dict([("a", inner)]));
    writer.write_uns("deep", &nested).expect("uns");
    writer.finish().expect("finish");
    let path = format!("uns/deep{}", "/a".repeat(31));
    let note = format!("{path} was left out: {path}: it lies within more than 32 groups.");
    assert_eq!(take_over(&deep, &output, &OpenOptions::default(), 1, 1), [note]);
    let copied = std::fs::read(&output).expect("read");
    assert!(copied.len() < std::fs::read(&deep).expect("read").len(), "what is deeper is not there");

    let cycles = odd_file("groups_within_themselves.h5ad");
    let output = folder.path().join("cycles.h5ad");
    let expected = [("uns/inner/up", "uns/inner/up"), ("uns/me", "uns/me"), ("uns/ragged", "uns/ragged/again")]
        .map(|(left_out, at)| format!("{left_out} was left out: {at}: a group that lies within itself."));
    assert_eq!(take_over(&cycles, &output, &OpenOptions::default(), 1, 1), expected);
}

#[test]
fn a_column_of_raw_that_anndata_refuses_is_left_out() {
    let folder = tempfile::tempdir().expect("folder");
    let output = folder.path().join("out.h5ad");
    let notes = take_over(&odd_file("raw_category_twice.h5ad"), &output, &OpenOptions::default(), 1, 1);
    if cfg!(feature = "libhdf5") && notes.iter().any(|note| note.contains("newer than libhdf5")) {
        return skip("a_column_of_raw_that_anndata_refuses_is_left_out", "needs libhdf5 2.0 or later");
    }
    assert_eq!(notes, ["A column was left out: raw/var/kind/codes: category \"T\" is there more than once."]);
    let raw = open(&output, &OpenOptions { raw: true, ..OpenOptions::default() }).expect("open");
    assert_eq!(raw.var.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["n"]);
}

#[test]
fn raw_layers_and_all_else_stay_with_their_cells_and_genes() {
    let Some(python) = python("raw_layers_and_all_else_stay_with_their_cells_and_genes") else { return };
    let folder = tempfile::tempdir().expect("folder");
    let input = folder.path().join("in.h5ad");
    run(&python, &["make", input.to_str().expect("path")]);
    for (every_cell, every_gene) in [(1, 1), (1, 3), (2, 1), (2, 3), (7, 5)] {
        let output = folder.path().join(format!("out-{every_cell}-{every_gene}.h5ad"));
        let notes = take_over(&input, &output, &OpenOptions::default(), every_cell, every_gene);
        assert_eq!(notes, LEFT_OUT);
        let steps = [every_cell.to_string(), every_gene.to_string()];
        run(&python, &["check", input.to_str().expect("path"), output.to_str().expect("path"), &steps[0], &steps[1]]);
    }
}

#[test]
fn what_is_damaged_is_left_out_whole_and_named() {
    let Some(python) = python("what_is_damaged_is_left_out_whole_and_named") else { return };
    let folder = tempfile::tempdir().expect("folder");
    let (input, output) = (folder.path().join("in.h5ad"), folder.path().join("out.h5ad"));
    run(&python, &["make_damaged", input.to_str().expect("path")]);
    let dataset = open(&input, &OpenOptions::default()).expect("open");
    let genes: Vec<usize> = (0..dataset.var.n_rows()).step_by(2).collect();
    let mut writer = H5adWriter::create(&output, &CreateOptions::default()).expect("create");
    writer.write_obs(&dataset.obs).expect("obs");
    writer.write_var(&dataset.var.select(&genes)).expect("var");
    let n_cells = dataset.obs.n_rows();
    let mut umap = writer.dense(Place::Obsm("X_umap"), n_cells, 2, ValueKind::F32).expect("start");
    umap.push(ValuesRef::F32(&vec![0.0; n_cells * 2])).expect("push");
    umap.finish().expect("finish");
    writer.write_uns("texts", &"ours".into()).expect("uns");
    let notes = copy_rest(&dataset, None, &genes, &mut writer, &Context::default()).expect("copy");
    writer.finish().expect("finish");
    for left_out in
        ["raw", "obsm/cube", "obsm/short", "layers/by_genes", "layers/counts", "varm/PCs of the input", "uns/odd"]
    {
        let start = format!("{left_out} was left out: ");
        assert_eq!(notes.iter().filter(|note| note.starts_with(&start)).count(), 1, "{left_out}: {notes:#?}");
    }
    assert_eq!(notes.len(), 7, "{notes:#?}");
    run(&python, &["check_damaged", input.to_str().expect("path"), output.to_str().expect("path")]);
}

#[test]
fn genes_of_raw_have_no_layers() {
    let Some(python) = python("genes_of_raw_have_no_layers") else { return };
    let folder = tempfile::tempdir().expect("folder");
    let (input, output) = (folder.path().join("in.h5ad"), folder.path().join("out.h5ad"));
    run(&python, &["make", input.to_str().expect("path")]);
    let notes = take_over(&input, &output, &OpenOptions { raw: true, ..OpenOptions::default() }, 1, 2);
    let of_var = ["layers", "varm", "varp"]
        .map(|group| format!("{group} was left out: it belongs to the genes of X, and raw was chosen."));
    assert_eq!(notes, [&[LEFT_OUT[0].to_string()], of_var.as_slice()].concat());
    run(&python, &["check_raw", input.to_str().expect("path"), output.to_str().expect("path")]);
}

#[test]
fn files_of_all_ages_can_be_read_after_it() {
    let name = "files_of_all_ages_can_be_read_after_it";
    let (Some(python), Some(shared)) = (python(name), shared(name)) else { return };
    let folder = tempfile::tempdir().expect("folder");
    let mut inputs: Vec<PathBuf> = std::fs::read_dir(shared.join("data"))
        .expect("folder")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "h5ad"))
        .collect();
    inputs.sort();
    let mut arguments = vec!["compare_all".to_string()];
    let mut n_files = 0;
    for input in inputs {
        // What can't be opened is another test's subject.
        let Ok(dataset) = open(&input, &OpenOptions::default()) else { continue };
        if dataset.obs.n_rows() < 4 || dataset.var.n_rows() < 4 {
            continue;
        }
        n_files += 1;
        for (every_cell, every_gene) in [(1, 2), (3, 2)] {
            let output = folder.path().join(format!("{n_files}-{every_cell}.h5ad"));
            let notes = take_over(&input, &output, &OpenOptions::default(), every_cell, every_gene);
            arguments.extend([input.display().to_string(), output.display().to_string()]);
            arguments.extend([every_cell.to_string(), every_gene.to_string(), notes.join("\n")]);
        }
    }
    assert!(n_files > 10, "only {n_files} files were tried");
    run(&python, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
}
