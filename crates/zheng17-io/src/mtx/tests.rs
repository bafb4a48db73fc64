//! Small inputs of our own, and the real files beside the repository where they are present.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;
use zheng17_core::matrix::ValueKind;
use zheng17_core::{CsrBuffer, ErrorKind};

use super::*;
use crate::table::ColumnData;

/// Genes × cells: three genes, four cells, one of them empty.
const MATRIX: &str =
    "%%MatrixMarket matrix coordinate integer general\n%a comment\n3 4 5\n1 1 5\n3 1 2\n2 2 1\n1 4 7\n3 4 9\n";
const BARCODES: &str = "AAAC-1\nAAAG-1\nAAAT-1\nAACA-1\n";
const FEATURES: &str = "E1\tA\tGene Expression\nE2\tB\tGene Expression\nE3\tA\tGene Expression\n";

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).expect("writing to memory");
    encoder.finish().expect("writing to memory")
}

/// A folder with these files; names that end in `.gz` are compressed.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a sub-folder");
        let bytes = if Path::new(name).extension().is_some_and(|end| end == "gz") {
            gzip(text)
        } else {
            text.as_bytes().to_vec()
        };
        std::fs::write(path, bytes).expect("writing a file");
    }
    folder
}

fn usual_folder(matrix: &str) -> TempDir {
    folder(&[("matrix.mtx", matrix), ("barcodes.tsv", BARCODES), ("features.tsv", FEATURES)])
}

fn open(path: &Path) -> Result<Dataset> {
    open_mtx(path, &OpenOptions::default())
}

fn all_cells(dataset: &Dataset) -> CsrBuffer {
    let shape = dataset.source.shape();
    let mut cells = CsrBuffer::new(shape.n_genes, ValueKind::F32);
    dataset.source.read_cells(0..shape.n_cells, &mut cells).expect("reading from memory");
    cells
}

fn assert_usual(dataset: &Dataset) {
    let cells = all_cells(dataset);
    assert_eq!(cells.indptr, [0, 2, 3, 3, 5]);
    assert_eq!(cells.indices, [0, 2, 1, 0, 2]);
    assert_eq!(cells.values, zheng17_core::Values::F32(vec![5.0, 2.0, 1.0, 7.0, 9.0]));
    assert_eq!(dataset.obs.index, ["AAAC-1", "AAAG-1", "AAAT-1", "AACA-1"]);
    assert_eq!(dataset.source.cell_name(3).as_deref(), Some("AACA-1"));
}

fn message(result: Result<Dataset>) -> String {
    match result {
        Ok(_) => panic!("it was read"),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Input | ErrorKind::Usage), "{error:?}");
            error.to_string()
        }
    }
}

/// The message of the error for a single file with this text.
fn complaint(text: &str) -> String {
    let folder = folder(&[("counts.mtx", text)]);
    message(open(&folder.path().join("counts.mtx")))
}

#[test]
fn folder_of_cell_ranger_3() {
    let folder = folder(&[("matrix.mtx.gz", MATRIX), ("barcodes.tsv.gz", BARCODES), ("features.tsv.gz", FEATURES)]);
    let dataset = open(folder.path()).expect("a good folder");
    assert_usual(&dataset);
    assert_eq!(dataset.format, Format::TenxMtx);
    assert_eq!(dataset.matrix.location, "matrix.mtx.gz");
    assert_eq!(dataset.matrix.compression, "gzip");
    assert_eq!(dataset.matrix.value_type, "int64");
    // Names may repeat (case 49): nothing is renamed.
    assert_eq!(dataset.var.index, ["A", "B", "A"]);
    let ids = vec!["E1", "E2", "E3"];
    assert_eq!(dataset.var.column("gene_ids"), Some(&ColumnData::Strings(ids.into())));
    assert_eq!(dataset.notes, Vec::<String>::new());
}

#[test]
fn one_two_or_three_columns() {
    // Case 35.
    for (features, names) in [
        ("E1\nE2\nE3\n", ["E1", "E2", "E3"]),
        ("E1\tA\nE2\tB\nE3\tC\n", ["A", "B", "C"]),
        ("E1\tA\tGene Expression\nE2\tB\tGene Expression\nE3\t\tGene Expression", ["A", "B", "E3"]),
        ("E1\tA\tGene Expression\tchr1\t5\t9\r\nE2\tB\tGene Expression\r\nE3\tC\r\n\r\n", ["A", "B", "C"]),
    ] {
        let folder = folder(&[("matrix.mtx", MATRIX), ("barcodes.tsv", BARCODES), ("genes.tsv", features)]);
        let dataset = open(folder.path()).expect("a good folder");
        assert_usual(&dataset);
        assert_eq!(dataset.var.index, names);
        assert_eq!(dataset.choices.feature_types, [("Gene Expression".to_owned(), 3)]);
    }
}

#[test]
fn every_mix_of_names_is_found() {
    // Case 36.
    for prefix in ["", "GSM1_", "sample.a-"] {
        for features in FEATURES_NAMES {
            for matrix in ["matrix.mtx", "matrix.mtx.gz"] {
                for barcodes in ["barcodes.tsv", "barcodes.tsv.gz"] {
                    let [matrix, barcodes, features] =
                        [matrix, barcodes, features].map(|name| format!("{prefix}{name}"));
                    let folder = folder(&[(&matrix, MATRIX), (&barcodes, BARCODES), (&features, FEATURES)]);
                    assert_usual(&open(folder.path()).expect("a good folder"));
                    let single = open(&folder.path().join(&matrix)).expect("a file with its lists");
                    assert_usual(&single);
                    assert_eq!((single.format, single.matrix.location), (Format::TenxMtx, matrix));
                }
            }
        }
    }
}

const FEATURES_NAMES: [&str; 4] = ["features.tsv", "features.tsv.gz", "genes.tsv", "genes.tsv.gz"];

#[test]
fn compression_is_told_by_content() {
    let folder = usual_folder(MATRIX);
    std::fs::write(folder.path().join("matrix.mtx"), gzip(MATRIX)).expect("writing a file");
    std::fs::rename(folder.path().join("barcodes.tsv"), folder.path().join("barcodes.tsv.gz"))
        .expect("renaming a file");
    assert_usual(&open(folder.path()).expect("a good folder"));
}

#[test]
fn missing_files_are_listed() {
    let folder = folder(&[("GSM1_matrix.mtx", MATRIX), ("GSM1_barcodes.tsv", BARCODES), ("features.tsv", FEATURES)]);
    let text = message(open(folder.path()));
    assert!(
        text.ends_with("there is none of GSM1_features.tsv, GSM1_features.tsv.gz, GSM1_genes.tsv, GSM1_genes.tsv.gz"),
        "{text}"
    );
    let empty = TempDir::new().expect("a temporary folder");
    let text = message(open(empty.path()));
    assert!(text.contains("matrix.mtx or matrix.mtx.gz"), "{text}");
}

#[test]
fn several_samples_must_be_chosen() {
    let folder = folder(&[
        ("a_matrix.mtx", MATRIX),
        ("a_barcodes.tsv", BARCODES),
        ("a_features.tsv", FEATURES),
        ("b_matrix.mtx.gz", MATRIX),
    ]);
    let text = message(open(folder.path()));
    assert!(text.ends_with("2 matrices: a_matrix.mtx, b_matrix.mtx.gz; give one of these files instead"), "{text}");
    assert_usual(&open(&folder.path().join("a_matrix.mtx")).expect("one of them"));
}

#[test]
fn genomes_are_sub_folders() {
    let hg19 = [("hg19/matrix.mtx", MATRIX), ("hg19/barcodes.tsv", BARCODES), ("hg19/genes.tsv", FEATURES)];
    let mm10 = [("mm10/matrix.mtx", MATRIX), ("mm10/barcodes.tsv", BARCODES), ("mm10/genes.tsv", "X\nY\nZ\n")];
    let one = folder(&hg19);
    let dataset = open(one.path()).expect("the only genome");
    assert_usual(&dataset);
    assert_eq!(dataset.choices.genomes, ["hg19"]);
    assert_eq!(Path::new(&dataset.matrix.location), Path::new("hg19").join("matrix.mtx"));

    let both = folder(&[&hg19[..], &mm10[..]].concat());
    let text = message(open(both.path()));
    assert!(text.ends_with("2 genomes: hg19, mm10; choose one by --genome"), "{text}");
    let of = |genome: &str| OpenOptions { genome: Some(genome.to_owned()), ..OpenOptions::default() };
    let dataset = open_mtx(both.path(), &of("mm10")).expect("a genome");
    assert_eq!(dataset.var.index, ["X", "Y", "Z"]);
    let text = message(open_mtx(both.path(), &of("mm9")));
    assert!(text.ends_with("there is no genome mm9; there are: hg19, mm10"), "{text}");
    let text = message(open_mtx(&both.path().join("hg19"), &of("hg19")));
    assert!(text.contains("without genomes"), "{text}");
}

#[test]
fn other_feature_types_are_left_out_and_counted() {
    let features = "E1\tA\tGene Expression\nE2\tB\tAntibody Capture\nE3\tC\tGene Expression\n";
    let folder = folder(&[("matrix.mtx", MATRIX), ("barcodes.tsv", BARCODES), ("features.tsv", features)]);
    let dataset = open(folder.path()).expect("a good folder");
    assert_eq!(dataset.var.index, ["A", "C"]);
    assert_eq!(all_cells(&dataset).indices, [0, 1, 0, 1]);
    assert_eq!(all_cells(&dataset).indptr, [0, 2, 2, 2, 4]);
    assert_eq!(dataset.notes, ["1 of 3 features are not Gene Expression and were left out (1 Antibody Capture)."]);
    let with = |feature_types| open_mtx(folder.path(), &OpenOptions { feature_types, ..OpenOptions::default() });
    assert_eq!(with(FeatureTypes::All).expect("all").var.n_rows(), 3);
    let named = |name: &str| with(FeatureTypes::Named(name.to_owned()));
    assert_eq!(named("Antibody Capture").expect("antibodies").var.index, ["B"]);
    let text = message(named("Peaks"));
    assert!(text.contains("--feature-type: Gene Expression (2), Antibody Capture (1)"), "{text}");
}

#[test]
fn unsorted_entries_give_the_same_matrix() {
    let unsorted = "%%MatrixMarket matrix coordinate integer general\n3 4 5\n1 4 7\n1 1 5\n3 4 9\n2 2 1\n3 1 2\n";
    assert_usual(&open(usual_folder(unsorted).path()).expect("a good folder"));
    let late = "%%MatrixMarket matrix coordinate integer general\n3 4 5\n1 1 5\n2 2 1\n1 4 7\n3 4 9\n3 1 2\n";
    assert_usual(&open(usual_folder(late).path()).expect("a good folder"));
}

#[test]
fn comments_blank_lines_and_windows_line_ends() {
    let odd =
        format!("\u{feff}{}\r\n\r\n", MATRIX.replace('\n', " \r\n").replace("3 1 2", "% aside\r\n\r\n\t3\t1   2e0"));
    assert_usual(&open(usual_folder(&odd).path()).expect("a good folder"));
}

#[test]
fn several_gzip_members_are_one_file() {
    let folder = usual_folder(MATRIX);
    let (first, second) = MATRIX.split_at(70);
    std::fs::write(folder.path().join("matrix.mtx"), [gzip(first), gzip(second)].concat()).expect("writing a file");
    assert_usual(&open(folder.path()).expect("a good folder"));
}

#[test]
fn a_matrix_the_other_way_round_is_noticed() {
    let transposed = "%%MatrixMarket matrix coordinate integer general\n4 3 5\n1 1 5\n1 3 2\n2 2 1\n4 1 7\n4 3 9\n";
    let dataset = open(usual_folder(transposed).path()).expect("a good folder");
    assert_usual(&dataset);
    assert!(dataset.notes[0].contains("cells as rows"), "{:?}", dataset.notes);
    let text = message(open(usual_folder(&MATRIX.replace("3 4 5", "3 5 5")).path()));
    assert!(text.contains("3 rows and 5 columns") && text.contains("3 features and 4 barcodes"), "{text}");
}

#[test]
fn a_file_alone_is_genes_by_cells() {
    let folder = folder(&[("counts.mtx.gz", MATRIX), ("barcodes.tsv", BARCODES), ("features.tsv", FEATURES)]);
    let dataset = open(&folder.path().join("counts.mtx.gz")).expect("a good file");
    assert_eq!(dataset.format, Format::Mtx);
    assert_eq!(dataset.var.index, ["0", "1", "2"]);
    assert_eq!(dataset.obs.index, ["0", "1", "2", "3"]);
    assert_eq!(all_cells(&dataset).indptr, [0, 2, 3, 3, 5]);
    assert!(dataset.notes[0].contains("rows were taken as 3 genes and columns as 4 cells"), "{:?}", dataset.notes);
}

#[test]
fn reals_integers_and_too_large_values() {
    let text = "%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 0.1\n2 1 -3\n1 2 9007199254740993\n";
    let folder = folder(&[("counts.mtx", text)]);
    let dataset = open(&folder.path().join("counts.mtx")).expect("a good file");
    assert_eq!(dataset.matrix.value_type, "float64");
    // Above 2^53 a value stays above, for the check of values to refuse it.
    let expected = vec![0.1, -3.0, 9_007_199_254_740_994.0];
    assert_eq!(all_cells(&dataset).values, zheng17_core::Values::F64(expected));
}

#[test]
fn wrong_headers_are_explained() {
    for (banner, expected) in [
        ("", "line 1: expected `%%MatrixMarket matrix coordinate integer general` or the like, found an empty line"),
        ("PK\u{3}\u{4}", "line 1: expected"),
        ("%%MatrixMarket matrix coordinate pattern general", "positions but no counts"),
        ("%%MatrixMarket matrix coordinate complex general", "only `integer` and `real`"),
        ("%%MatrixMarket matrix coordinate integer symmetric", "only `general` can be read"),
        ("%%MatrixMarket matrix array integer general", "not `matrix array`"),
    ] {
        let text = complaint(&format!("{banner}\n1 1 1\n1 1 1\n"));
        assert!(text.contains(expected), "{text}");
    }
    let banner = "%%MatrixMarket matrix coordinate integer general";
    for (sizes, expected) in [
        ("", "the file ends before the size line"),
        ("aaggg\n", "line 2: expected the size line (rows, columns, entries), found `aaggg`"),
        ("3 4\n", "found `3 4`"),
        ("3 4 5 6\n", "found `3 4 5 6`"),
        ("3 -4 5\n", "found `3 -4 5`"),
        ("9000000000 4 5\n", "at most"),
        ("4 99999999999999999999 5\n", "found"),
    ] {
        let text = complaint(&format!("{banner}\n{sizes}"));
        assert!(text.contains(expected), "{text}");
    }
    assert!(complaint("").contains("the file is empty"));
}

#[test]
fn wrong_entries_name_their_line() {
    let banner = "%%MatrixMarket matrix coordinate integer general\n3 4 2\n1 1 1\n";
    for (line, expected) in [
        ("", "line 3: expected 2 entries, found 1: the file ends too early"),
        ("2 2", "line 4: expected row, column and value, found `2 2`, in entry 2 of 2"),
        ("2", "line 4: expected row, column and value"),
        ("2 2 ", "line 4: expected row, column and value"),
        ("2 2 1 1", "line 4: expected row, column and value, found `2 2 1 1`"),
        ("2 2 one", "line 4: expected row, column and value"),
        ("2,2,1", "line 4: expected row, column and value"),
        ("-2 2 1", "line 4: expected row, column and value"),
        ("0 2 1", "line 4: row index 0 is not between 1 and 3"),
        ("4 2 1", "line 4: row index 4 is not between 1 and 3"),
        ("3 5 1", "line 4: column index 5 is not between 1 and 4"),
        ("99999999999999999999 1 1", "line 4: expected row, column and value"),
        ("2 2 1\n3 3 1", "line 5: one entry more than the 2 that the size line promises"),
    ] {
        let text = complaint(&format!("{banner}{line}"));
        assert!(text.contains(expected), "{line:?} gave {text}");
        assert!(text.contains("counts.mtx: "), "{text}");
    }
}

#[test]
fn cut_files_are_refused() {
    // Case 38: a wrong promise, a text cut in mid-line, a cut gzip stream.
    let text = complaint(&MATRIX.replace("3 4 5", "3 4 55"));
    assert!(text.contains("expected 55 entries, found 5"), "{text}");
    let text = complaint(&MATRIX[..MATRIX.len() - 3]);
    assert!(text.contains("line 8: expected row, column and value, found `3 4`, in entry 5 of 5"), "{text}");
    let long = format!(
        "%%MatrixMarket matrix coordinate integer general\n3 4000 4000\n{}",
        (1..=4000).map(|cell| format!("{} {cell} {}", cell % 3 + 1, cell * 7 % 13)).collect::<Vec<_>>().join("\n")
    );
    let bytes = gzip(&long);
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("counts.mtx.gz");
    std::fs::write(&path, &bytes[..bytes.len() * 2 / 3]).expect("writing a file");
    let text = message(open(&path));
    assert!(text.contains("the gzip stream ends too early, after line "), "{text}");
    for junk in ["x", "bytes of something else"] {
        std::fs::write(&path, [&bytes, junk.as_bytes()].concat()).expect("writing a file");
        let text = message(open(&path));
        assert!(
            text.contains("the gzip stream is damaged, after line 4001: the bytes behind its end are not"),
            "{text}"
        );
    }
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8].fill(0xff);
    std::fs::write(&path, damaged).expect("writing a file");
    let error = open(&path).err().expect("a damaged file");
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
}

#[test]
fn a_header_can_not_take_the_memory() {
    // The largest that is believed, with nothing behind it.
    let text = complaint("%%MatrixMarket matrix coordinate integer general\n3 4 18446744073709551615\n1 1 1\n");
    assert!(text.contains("expected 18446744073709551615 entries, found 1"), "{text}");
    let endless = "1".repeat(3 << 20);
    let text = complaint(&format!("%%MatrixMarket matrix coordinate integer general\n{endless}"));
    assert!(text.contains("line 2: longer than any line"), "{text}");
}

#[test]
fn options_of_other_formats_are_refused() {
    let folder = usual_folder(MATRIX);
    let layer = OpenOptions { layer: Some("counts".to_owned()), ..OpenOptions::default() };
    assert!(message(open_mtx(folder.path(), &layer)).contains("have no layers"));
    let raw = OpenOptions { raw: true, ..OpenOptions::default() };
    assert!(message(open_mtx(folder.path(), &raw)).contains("have no raw"));
    let error = open(&folder.path().join("absent.mtx")).err().expect("no such file");
    assert_eq!(error.kind(), ErrorKind::Input);
}

#[test]
fn lists_must_be_sound() {
    let folder = folder(&[("matrix.mtx", MATRIX), ("barcodes.tsv", "a\n\nb\nc\n"), ("genes.tsv", FEATURES)]);
    let text = message(open(folder.path()));
    assert!(text.contains("barcodes.tsv: line 2: blank line"), "{text}");
    std::fs::write(folder.path().join("barcodes.tsv"), b"a\nb\xff\nc\nd\n").expect("writing a file");
    let text = message(open(folder.path()));
    assert!(text.contains("barcodes.tsv: line 2: not Unicode"), "{text}");
}

/// Cells, genes, entries, the sum of counts, and the sum of count × row × column counted from 1.
fn digest(dataset: &Dataset) -> (usize, usize, usize, u64, u64) {
    let shape = dataset.source.shape();
    let cells = all_cells(dataset);
    let view = cells.view();
    let (mut sum, mut weighted) = (0, 0);
    for cell in 0..shape.n_cells {
        for (at, &gene) in view.row_indices(cell).iter().enumerate() {
            let count = view.row_values(cell).get(at) as u64;
            sum += count;
            weighted += count * (cell as u64 + 1) * (u64::from(gene) + 1);
        }
    }
    (shape.n_cells, shape.n_genes, cells.indices.len(), sum, weighted)
}

#[test]
fn real_folders() {
    let Some(shared) = zheng17_test_support::shared("mtx::real_folders") else { return };
    for (name, expected) in [
        ("scanpy_3.0.0_mtx", (1107, 507, 23_866, 41_549, 7_376_015_539)),
        ("visium_coexpress_mtx_v3", (2898, 19_465, 1_069_459, 3_085_005, 43_299_992_191_840)),
        ("ebi_chr_mtx", (100, 32_738, 84_735, 246_062, 212_694_176_951)),
        ("scprep_10X_dupgenes_mtx", (100, 100, 1405, 7663, 6_871_452)),
        ("scanpy_1.2.0_mtx", (12, 343, 12, 12, 15_384)),
        ("bpcells_int_mat.mtx.gz", (5, 4, 8, 17, 156)),
    ] {
        let dataset = open(&shared.join("data").join(name)).expect("a good file");
        assert_eq!(digest(&dataset), expected, "{name}");
        assert_eq!(dataset.var.n_rows(), expected.1, "{name}");
        assert_eq!(dataset.obs.n_rows(), expected.0, "{name}");
    }
}

#[test]
fn real_files_that_are_damaged() {
    let Some(shared) = zheng17_test_support::shared("mtx::real_files_that_are_damaged") else { return };
    for (name, expected) in [
        ("AB_toy_data_toy.unsorted_mtx.mtx", "line 4355: one entry more than the 4352"),
        ("bad_format_has_character.mtx", "line 4: expected the size line (rows, columns, entries), found `aaggg`"),
        ("bad_format_has_space.mtx", "expected 4352 entries, found 6"),
        ("matrix_with_header.mtx", "expected 14 entries, found 12"),
        ("mtx_character_before_data.mtx", "line 2: expected the size line (rows, columns, entries), found `a`"),
        ("unsorted_matrix.mtx.gz", "line 11: row index 6 is not between 1 and 4"),
    ] {
        let text = message(open(&shared.join("data/scp_mtx").join(name)));
        assert!(text.contains(expected), "{text}");
    }
}
