//! Wrong and unusual files: each gives a clear error or a note. `python/odd.py` made them.

mod common;

use std::path::{Path, PathBuf};

use zheng17_core::source::CheckedSource;
use zheng17_core::{CsrBuffer, ErrorKind, Result};
use zheng17_io::dataset::Layout;
use zheng17_io::table::{ColumnData, Numbers};
use zheng17_io::{Dataset, FeatureTypes, Format, OpenOptions, open};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/odd").join(name)
}

/// Opens a fixture and reads it all, through the check that every run uses.
fn read_with(name: &str, options: &OpenOptions) -> Result<(Dataset, CsrBuffer)> {
    let dataset = open(&fixture(name), options)?;
    let whole = common::read(&CheckedSource::new(dataset.source.clone())?, 3)?;
    Ok((dataset, whole))
}

fn read(name: &str) -> (Dataset, CsrBuffer) {
    read_with(name, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The kind of the error, and its text without the name of the file.
fn error_of(name: &str, options: &OpenOptions) -> (ErrorKind, String) {
    let Err(error) = read_with(name, options) else { panic!("{name} was read") };
    let (place, text) = (fixture(name).display().to_string(), error.to_string());
    let Some(text) = text.strip_prefix(&format!("{place}: ")) else { panic!("no file in {text:?}") };
    (error.kind(), text.to_owned())
}

fn layer(name: &str) -> OpenOptions {
    OpenOptions { layer: Some(name.to_owned()), ..OpenOptions::default() }
}

fn genome(name: &str) -> OpenOptions {
    OpenOptions { genome: Some(name.to_owned()), ..OpenOptions::default() }
}

fn features(types: FeatureTypes) -> OpenOptions {
    OpenOptions { feature_types: types, ..OpenOptions::default() }
}

#[test]
fn wrong_files_name_dataset_and_fault() {
    use ErrorKind::{Input, Unsupported, Usage};
    let expected = [
        ("barcodes_missing.h5", Input, "matrix/barcodes: there is no such dataset"),
        ("data_missing.h5", Input, "matrix/data: there is no such dataset"),
        ("data_missing.h5ad", Input, "X/data: there is no such dataset"),
        ("link_to_itself.h5ad", Input, "X/data: there is no such dataset"),
        ("link_to_nothing.h5ad", Input, "X/data: there is no such dataset"),
        ("shape_missing.h5", Input, "matrix/shape: there is no such dataset"),
        ("complex_values.h5ad", Input, "X: numbers are expected here, but these are records"),
        ("feature_out_of_range.h5", Input, "matrix/indices: row 2: column index 5, but there are only 5 columns"),
        ("frame_missing.h5ad", Input, "obs: the file has no such data frame"),
        ("index_far_too_large.h5ad", Input, "X/indices: index 1099511627776 at position 4 is negative or too large"),
        ("index_floats.h5ad", Input, "X/indices: whole numbers are expected here, but these are real numbers"),
        ("index_negative.h5ad", Input, "X/indices: index -1 at position 4 is negative or too large"),
        ("index_too_large.h5ad", Input, "X: row 2: column index 5, but there are only 5 genes"),
        ("index_too_large_csc.h5ad", Input, "X/indices: column 1: row index 4, but there are only 4 cells"),
        ("lengths_differ.h5ad", Input, "X: 6 indices for 5 values"),
        ("link_to_another_file.h5ad", Unsupported, "X: it is a link to another file"),
        ("more_cells_than_names.h5ad", Input, "obs/_index: 3 values, but there are 4 rows"),
        ("no_encoding.h5ad", Unsupported, "X: a group that does not say how the matrix is encoded"),
        (
            "no_genes.h5",
            Usage,
            "there are no features of type \"Gene Expression\"; choose with --feature-type: Antibody Capture (5)",
        ),
        ("no_shape.h5ad", Input, "X: a sparse matrix that does not say its shape"),
        ("no_x.h5ad", Input, "the file has no X; the layers are counts, spliced"),
        ("nothing.h5", Input, "an HDF5 file that holds nothing"),
        ("null_x.h5ad", Input, "the file has no X; the file has no layers"),
        ("one_dimension.h5ad", Input, "X: number of dimensions: 1 instead of 2"),
        (
            "plain.h5",
            Input,
            "an HDF5 file, but neither AnnData nor a 10x matrix; it holds part00, part01, part02, part03, part04, part05, part06, \
             part07, …",
        ),
        ("pointers_decrease.h5ad", Input, "X/indptr: indptr decreases from 4 to 3 at row 1"),
        ("pointers_end.h5ad", Input, "X/indptr: indptr ends at 7, but there are 6 entries (row 3)"),
        ("pointers_missing.h5ad", Input, "X/indptr: 4 pointers, but 5 are due"),
        ("pointers_negative.h5ad", Input, "X/indptr: element 1 is negative"),
        ("pointers_start.h5ad", Input, "X/indptr: indptr starts at 1, not at 0 (row 0)"),
        ("texts_as_values.h5ad", Input, "X: numbers are expected here, but these are texts"),
        ("three_dimensions.h5ad", Input, "X: number of dimensions: 3 instead of 2"),
        ("tiny.h5mu", Unsupported, "not supported yet: MuData (h5mu), several AnnData in one file"),
        ("tiny.loom", Unsupported, "not supported yet: loom"),
        ("two_genomes.h5", Usage, "there are several genomes, choose one with --genome: hg19, mm10"),
        ("unknown_array_encoding.h5ad", Unsupported, "X: unknown encoding \"rec-array\""),
        ("unknown_encoding.h5ad", Unsupported, "X: unknown encoding \"coo_matrix\""),
        ("unknown_filter.h5ad", Unsupported, "X/data: filter 32008 can't be read by this program"),
        ("unwritten.h5ad", Input, "X/data: 1048576 of 1048576 chunks were never written"),
        ("values_in_another_file.h5ad", Unsupported, "X/data: its values are in another file"),
    ];
    for (name, kind, text) in expected {
        let found = error_of(name, &OpenOptions::default());
        if !common::is_newer_than_libhdf5(&found.1) {
            assert_eq!(found, (kind, text.to_owned()), "{name}");
        }
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let raw = OpenOptions { raw: true, ..OpenOptions::default() };
    let both = OpenOptions { raw: true, ..layer("counts") };
    let antibodies = || FeatureTypes::Named("Antibody Capture".to_owned());
    let expected = [
        ("no_x.h5ad", layer("missing"), "there is no layer \"missing\"; the layers are counts, spliced"),
        ("records.h5ad", layer("counts"), "there is no layer \"counts\"; the file has no layers"),
        ("no_x.h5ad", raw.clone(), "the file has no raw matrix"),
        ("no_x.h5ad", both, "a layer and raw can't both be chosen"),
        ("records.h5ad", genome("hg19"), "an AnnData file has no genomes to choose from"),
        ("records.h5ad", features(FeatureTypes::All), "an AnnData file has no feature types to choose from"),
        ("types.h5", layer("counts"), "a 10x file has no layers"),
        ("types.h5", raw, "a 10x file has no raw"),
        ("types.h5", genome("hg19"), "a genome was asked for, but the features of this file name none"),
        (
            "types.h5",
            features(FeatureTypes::Named("Peaks".to_owned())),
            "there are no features of type \"Peaks\"; choose with --feature-type: Gene Expression (3), Antibody Capture \
             (1), CRISPR Guide Capture (1)",
        ),
        (
            "no_types.h5",
            features(antibodies()),
            "features of type \"Antibody Capture\" were asked for, but this file has no types",
        ),
        ("two_genomes.h5", genome("GRCh38"), "there is no genome \"GRCh38\"; there is hg19, mm10"),
        ("one_genome.h5", features(antibodies()), "files of Cell Ranger 2 have no feature types to choose from"),
    ];
    for (name, options, text) in expected {
        assert_eq!(error_of(name, &options), (ErrorKind::Usage, text.to_owned()), "{name} {options:?}");
    }
}

#[test]
fn columns_that_can_not_be_read_are_left_out_with_a_note() {
    let expected = [
        ("categories_in_themselves.h5ad", "obs/kind/categories: categories that are categorical themselves."),
        ("category_twice.h5ad", "obs/kind/codes: category \"T\" is there more than once."),
        ("code_below_range.h5ad", "obs/kind/codes: row 1 has code -2, but there are 2 categories."),
        ("code_out_of_range.h5ad", "obs/kind/codes: row 1 has code 2, but there are 2 categories."),
        ("column_missing.h5ad", "obs/n: the column is listed but missing."),
        ("column_not_utf8.h5ad", "obs/t: text that is not UTF-8: \"\u{fffd}\"."),
        ("column_of_two_dimensions.h5ad", "obs/n: number of dimensions: 2 instead of 1."),
        ("column_of_unknown_encoding.h5ad", "obs/lists: unknown encoding \"awkward-array\"."),
        ("column_too_short.h5ad", "obs/n: 3 values, but there are 4 rows."),
    ];
    for (name, why) in expected {
        let (dataset, whole) = read(name);
        if dataset.notes.first().is_some_and(|note| common::is_newer_than_libhdf5(note)) {
            continue;
        }
        assert_eq!(dataset.notes, [format!("A column was left out: {why}")], "{name}");
        assert_eq!(whole.indices.len(), 6, "{name}: the counts are read all the same");
        let bad = dataset.obs.columns.iter().find(|column| ["kind", "t", "lists"].contains(&column.name.as_str()));
        assert!(bad.is_none(), "{name}");
    }
    let kept = read("code_out_of_range.h5ad").0;
    assert_eq!(kept.obs.column("n"), Some(&ColumnData::Numbers(Numbers::I64(vec![0, 1, 2, 3]))));
}

#[test]
fn a_frame_without_index_is_named_by_position() {
    let (dataset, _) = read("no_index.h5ad");
    assert_eq!(dataset.obs.index, ["0", "1", "2", "3"]);
    assert_eq!(dataset.notes, ["obs has no index \"_index\"; its rows are named by position."]);
}

#[test]
fn names_may_repeat() {
    let (dataset, whole) = read("duplicate_names.h5ad");
    assert_eq!(dataset.obs.index, ["x", "x", "y", "y"]);
    assert_eq!(whole.indptr, [0, 2, 3, 6, 6]);
    assert_eq!(read("types.h5").0.var.index, ["A", "B", "A"]);
}

#[test]
fn a_file_without_x_still_has_layers() {
    let (dataset, whole) = read_with("no_x.h5ad", &layer("spliced")).expect("a layer can be read");
    assert_eq!(dataset.matrix.location, "layers/spliced");
    assert_eq!(dataset.choices.layers, ["counts", "spliced"]);
    assert_eq!(whole.indices, [0, 2, 4, 0, 1, 4]);
}

#[test]
fn logged_is_said_of_x_only() {
    assert!(read("logged.h5ad").0.logged);
    assert!(!read_with("logged.h5ad", &layer("counts")).expect("a layer").0.logged);
    assert!(!read("other_parts.h5ad").0.logged);
}

#[test]
fn records_of_old_files_with_categories_elsewhere() {
    let (dataset, whole) = read("records.h5ad");
    assert_eq!((dataset.format, dataset.matrix.layout), (Format::H5ad, Layout::Csr));
    assert_eq!(dataset.obs.index, ["c0", "c1", "c2", "c3"]);
    let categories = Box::new(ColumnData::Strings(vec!["first", "second"].into()));
    let louvain = ColumnData::Categorical { codes: vec![0, 1, 0, 1], categories, ordered: false };
    assert_eq!(dataset.obs.column("louvain"), Some(&louvain));
    assert_eq!(dataset.obs.column("flag"), Some(&ColumnData::Bools(vec![false, false, true, true])));
    assert_eq!(dataset.obs.column("x"), Some(&ColumnData::Numbers(Numbers::F32(vec![0.0, 0.5, 1.0, 1.5]))));
    assert_eq!(whole.indices, [0, 2, 4, 0, 1, 4]);
}

#[test]
fn genes_only_unless_asked() {
    let (dataset, whole) = read("types.h5");
    assert_eq!(
        dataset.notes,
        ["2 of 5 features are not Gene Expression and were left out (1 Antibody Capture, 1 CRISPR Guide Capture)."]
    );
    assert_eq!((whole.n_genes, &whole.indices, &whole.indptr), (3, &vec![0, 2, 0, 1], &vec![0, 2, 2, 4, 4]));
    let guides = features(FeatureTypes::Named("CRISPR Guide Capture".to_owned()));
    let (dataset, whole) = read_with("types.h5", &guides).expect("guides");
    assert_eq!((dataset.var.index, whole.indices), (vec!["D"].into(), vec![0, 0]));
    let (dataset, whole) = read_with("types.h5", &features(FeatureTypes::All)).expect("all");
    assert_eq!((dataset.notes.len(), whole.n_genes), (0, 5));
    assert_eq!(dataset.choices.feature_types.len(), 3);
    assert_eq!(read("no_types.h5").1.n_genes, 5, "a file without types has only genes");
}

#[test]
fn one_genome_needs_no_choice_and_several_do() {
    assert_eq!(read("one_genome.h5").0.matrix.location, "hg19");
    let (dataset, _) = read_with("two_genomes.h5", &genome("mm10")).expect("a genome");
    assert_eq!((dataset.format, dataset.matrix.location.as_str()), (Format::TenxV2, "mm10"));
    assert_eq!(dataset.choices.genomes, ["hg19", "mm10"]);
    let ids = vec!["mm100", "mm101", "mm102", "mm103", "mm104"];
    assert_eq!(dataset.var.column("gene_ids"), Some(&ColumnData::Strings(ids.into())));
}

#[test]
fn other_files_are_told_by_their_content() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let expected: [(&[u8], &str); 5] = [
        (b"", "not a file of counts: it is empty"),
        (
            b"version https://example\n",
            "not a file of counts: it is a text that starts with \"version https://example\"",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
            "not a file of counts: it is a Git LFS pointer, so the real file was not downloaded (git lfs pull)",
        ),
        (b"PK\x03\x04rest", "not a file of counts: it is a zip archive"),
        (b"\x00\x01\x02\xff", "not a file of counts: its first bytes are of no known format"),
    ];
    for (content, text) in expected {
        let path = folder.path().join("file.h5ad");
        std::fs::write(&path, content).expect("a file");
        let Err(error) = open(&path, &OpenOptions::default()) else { panic!("{text}") };
        assert_eq!(error.to_string(), format!("{}: {text}", path.display()));
        assert_eq!(error.kind().exit_code(), 2);
    }
    let missing = folder.path().join("missing.h5ad");
    let Err(error) = open(&missing, &OpenOptions::default()) else { panic!("a file that is not there was opened") };
    assert_eq!(error.to_string(), format!("{}: there is no such file", missing.display()));
    let below = folder.path().join("file.h5ad/x");
    let Err(error) = open(&below, &OpenOptions::default()) else { panic!("a path below a file was opened") };
    assert_eq!(error.to_string(), format!("{}: there is no such file", below.display()));
    assert_eq!(error.kind(), ErrorKind::Input);
}

#[test]
fn pipes_and_devices_are_refused_before_they_are_opened() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipe = folder.path().join("pipe.h5ad");
    let status = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(status.success());
    std::fs::write(folder.path().join("matrix.mtx"), "").expect("a file");
    for name in ["barcodes.tsv", "genes.tsv"] {
        std::os::unix::fs::symlink(&pipe, folder.path().join(name)).expect("a link");
    }
    // Nobody writes to the pipe, so opening it would wait for ever.
    for (path, place) in [
        (pipe.clone(), pipe.clone()),
        ("/dev/null".into(), "/dev/null".into()),
        (folder.path().to_path_buf(), folder.path().join("barcodes.tsv")),
    ] {
        let Err(error) = open(&path, &OpenOptions::default()) else { panic!("{path:?} was opened") };
        let expected = format!("{}: not a regular file; the matrix is read more than once", place.display());
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Input, expected));
    }
}
