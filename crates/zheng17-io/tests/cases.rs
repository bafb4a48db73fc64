//! Inputs that break programs of this kind, made by the scripts of `shared/cases`: those about files each have their outcome
//! here, by their numbers.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::open_and_read;
use tempfile::TempDir;
use zheng17_core::{CsrBuffer, ErrorKind};
use zheng17_io::table::{ColumnData, Numbers};
use zheng17_io::{Dataset, FeatureTypes, OpenOptions, open};
use zheng17_test_support as support;

/// What a script wrote.
struct Made {
    folder: TempDir,
}

impl Made {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }

    fn read(&self, name: &str) -> (Dataset, CsrBuffer) {
        self.read_with(name, &OpenOptions::default())
    }

    fn read_with(&self, name: &str, options: &OpenOptions) -> (Dataset, CsrBuffer) {
        open_and_read(&self.path(name), options).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The error, without the name of the file.
    fn error(&self, name: &str, options: &OpenOptions) -> (ErrorKind, String) {
        let path = self.path(name);
        let Err(error) = open_and_read(&path, options) else { panic!("{name} was read") };
        let text = error.to_string();
        let Some(text) = text.strip_prefix(&format!("{}: ", path.display())) else { panic!("no file in {text:?}") };
        (error.kind(), text.to_owned())
    }
}

/// Runs a script on a copy, since scripts write beside themselves.
fn made_by(script: &str, test: &str) -> Option<Made> {
    let (python, shared) = (support::python(test)?, support::shared(test)?);
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["_h.py", script] {
        std::fs::copy(shared.join("cases").join(name), folder.path().join(name)).expect("a script");
    }
    let status = Command::new(python).args(["-B", "-W", "ignore"]).arg(folder.path().join(script)).status();
    assert!(status.expect("python starts").success(), "{script} ran");
    Some(Made { folder })
}

/// Cells as sorted entries: equal for equal matrices, however they are stored.
fn rows(whole: &CsrBuffer) -> Vec<Vec<(u32, u64)>> {
    let view = whole.view();
    (0..view.n_cells())
        .map(|row| {
            let genes = view.row_indices(row).iter().enumerate();
            let mut entries: Vec<(u32, u64)> =
                genes.map(|(at, &gene)| (gene, view.row_values(row).get(at).to_bits())).collect();
            entries.sort_unstable();
            entries
        })
        .collect()
}

#[test]
fn case_31_the_genome_that_was_asked_for() {
    let Some(made) = made_by("31_tenx_v2_genome_ignored.py", "case_31_the_genome_that_was_asked_for") else { return };
    let genome = |name: &str| OpenOptions { genome: Some(name.to_owned()), ..OpenOptions::default() };
    let file = "31_two_genomes.h5";
    assert_eq!(made.read_with(file, &genome("hg19")).1.n_genes, 40);
    let (mouse, whole) = made.read_with(file, &genome("mm10"));
    assert_eq!((whole.n_genes, &mouse.var.index[29]), (30, "Mm29"));
    let several = "there are several genomes, choose one with --genome: hg19, mm10".to_owned();
    assert_eq!(made.error(file, &OpenOptions::default()), (ErrorKind::Usage, several));
    let wrong = "there is no genome \"GRCh38\"; there is hg19, mm10".to_owned();
    assert_eq!(made.error(file, &genome("GRCh38")), (ErrorKind::Usage, wrong));
}

#[test]
fn case_33_other_features_are_counted_not_dropped_silently() {
    let test = "case_33_other_features_are_counted_not_dropped_silently";
    let Some(made) = made_by("33_tenx_feature_types_dropped.py", test) else { return };
    let (dataset, genes) = made.read("33_types.h5");
    assert_eq!(genes.n_genes, 30);
    assert_eq!(
        dataset.notes,
        ["6 of 36 features are not Gene Expression and were left out (4 Antibody Capture, 2 CRISPR Guide Capture)."]
    );
    let all = OpenOptions { feature_types: FeatureTypes::All, ..OpenOptions::default() };
    let (_, all) = made.read_with("33_types.h5", &all);
    assert_eq!(all.n_genes, 36);
    let of_genes = |row: &Vec<(u32, u64)>| row.iter().copied().filter(|entry| entry.0 < 30).collect::<Vec<_>>();
    assert_eq!(rows(&genes), rows(&all).iter().map(of_genes).collect::<Vec<_>>());
}

#[test]
fn case_40_by_genes_as_by_cells() {
    let Some(made) = made_by("40_csc_input.py", "case_40_by_genes_as_by_cells") else { return };
    let (dataset, by_genes) = made.read("40_csc.h5ad");
    assert_eq!(rows(&made.read("40_csr.h5ad").1), rows(&by_genes));
    assert!(dataset.notes[0].starts_with("X is stored by genes (CSC); "), "{:?}", dataset.notes);
}

#[test]
fn case_41_dense_as_sparse() {
    let Some(made) = made_by("41_dense_input.py", "case_41_dense_as_sparse") else { return };
    let raw = OpenOptions { raw: true, ..OpenOptions::default() };
    let names: Vec<PathBuf> =
        std::fs::read_dir(made.path("")).expect("files").map(|file| file.expect("a file").path()).collect();
    assert!(names.len() > 1, "the script wrote several files");
    let read = |path: &Path, options: &OpenOptions| rows(&open_and_read(path, options).expect("it can be read").1);
    let expected = read(&names[0], &OpenOptions::default());
    let mut n_raw = 0;
    for path in &names {
        assert_eq!(read(path, &OpenOptions::default()), expected, "{}", path.display());
        if open(path, &OpenOptions::default()).expect("it opens").choices.raw {
            n_raw += 1;
            assert_eq!(read(path, &raw), expected, "raw of {}", path.display());
        }
    }
    assert!(n_raw > 0, "some have a raw");
}

#[test]
fn case_42_every_mix_of_index_types() {
    let Some(made) = made_by("42_index_dtype_mix.py", "case_42_every_mix_of_index_types") else { return };
    let expected = rows(&made.read("42_i4_i4.h5ad").1);
    for index in ["i4", "i8", "u4"] {
        for pointer in ["i4", "i8", "u8"] {
            assert_eq!(rows(&made.read(&format!("42_{index}_{pointer}.h5ad")).1), expected, "{index} {pointer}");
        }
    }
}

#[test]
fn case_44_cut_and_foreign_files() {
    let Some(made) = made_by("44_truncated_or_not_hdf5.py", "case_44_cut_and_foreign_files") else { return };
    made.read("44_ok.h5ad");
    let length = |name: &str| std::fs::metadata(made.path(name)).expect("a file").len();
    let cut = format!("truncated: {} of {} bytes", length("44_cut.h5ad"), length("44_ok.h5ad"));
    let text = "not a file of counts: it is a text that starts with \"version https://example\"";
    let damaged = "X/data: chunk 1 is damaged: bad gzip data: ";
    let expected = [
        ("44_cut.h5ad", cut.as_str()),
        ("44_text.h5ad", text),
        ("44_empty.h5ad", "not a file of counts: it is empty"),
        ("44_badchunk.h5ad", damaged),
    ];
    for (name, expected) in expected {
        let (kind, text) = made.error(name, &OpenOptions::default());
        assert!(text.starts_with(expected), "{name}: {text}");
        assert_eq!(kind.exit_code(), 2, "{name}");
    }
}

#[test]
fn case_46_files_of_anndata_0_6() {
    let Some(made) = made_by("46_old_anndata_layouts.py", "case_46_files_of_anndata_0_6") else { return };
    let (dataset, whole) = made.read("46_v06.h5ad");
    assert_eq!((whole.n_cells(), whole.n_genes), (12, 9));
    assert_eq!((&dataset.obs.index[11], &dataset.var.index[8]), ("c11", "g8"));
    let Some(ColumnData::Categorical { codes, categories, .. }) = dataset.obs.column("louvain") else {
        panic!("louvain is categorical");
    };
    assert_eq!(codes[..4], [0, 1, 0, 1]);
    assert_eq!(**categories, ColumnData::Strings(vec!["0", "1"].into()));
}

#[test]
fn case_48_missing_categories_and_nullables() {
    let test = "case_48_missing_categories_and_nullables";
    let Some(made) = made_by("48_categorical_missing_and_nullable.py", test) else { return };
    let (good, _) = made.read("48_good.h5ad");
    assert!(good.notes.is_empty(), "{:?}", good.notes);
    let texts = |words: [&str; 2]| Box::new(ColumnData::Strings(words.into_iter().collect()));
    let kinds = ColumnData::Categorical { codes: vec![0, -1, 1, 0], categories: texts(["T", "B"]), ordered: false };
    assert_eq!(good.obs.column("c"), Some(&kinds));
    let numbers = Box::new(ColumnData::Numbers(Numbers::I64(vec![10, 20])));
    let ordered = ColumnData::Categorical { codes: vec![0, 1, 1, 0], categories: numbers, ordered: true };
    assert_eq!(good.obs.column("i"), Some(&ordered));
    let mask = vec![false, true, false, false];
    let nullable = ColumnData::NullableNumbers { values: Numbers::I64(vec![1, 2, 3, 4]), mask };
    assert_eq!(good.obs.column("n"), Some(&nullable));
    let mask = vec![false, false, true, false];
    assert_eq!(good.obs.column("b"), Some(&ColumnData::NullableBools { values: vec![true, false, true, true], mask }));
    let (bad, counts) = made.read("48_code_oob.h5ad");
    assert_eq!(bad.notes, ["A column was left out: obs/c/codes: row 1 has code 2, but there are 2 categories."]);
    assert_eq!(counts.n_cells(), 4);
}

#[test]
fn case_49_names_that_repeat() {
    let Some(made) = made_by("49_duplicate_names_make_unique.py", "case_49_names_that_repeat") else { return };
    let (dataset, whole) = made.read("49_dups.h5ad");
    assert_eq!(dataset.var.index, ["A", "A", "A-1", "A", "B"]);
    assert_eq!(dataset.obs.index, ["x", "x", "y", "z", "z", "w"]);
    assert_eq!((whole.n_cells(), whole.n_genes), (6, 5));
}
