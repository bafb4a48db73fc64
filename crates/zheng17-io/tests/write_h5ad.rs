//! What the h5ad writer writes, read back by the real anndata and scanpy where a Python that has them is given in
//! `ZHENG17_PYTHON`. The values follow the formulas in `python/check_h5ad.py`.

use std::path::Path;
use std::process::Command;

use zheng17_core::matrix::{CsrBuffer, ValueKind, Values, ValuesRef};
use zheng17_io::table::{ColumnData, Numbers, Table, Texts};
use zheng17_io::write::{Compression, CreateOptions, H5adWriter, Place, UnsValue};
use zheng17_test_support::python;

fn check(python: &Path, arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/check_h5ad.py");
    let output = Command::new(python).arg(script).args(arguments).output().expect("python starts");
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn names(prefix: &str, n: usize) -> Texts {
    (0..n).map(|at| format!("{prefix}{at}")).collect()
}

fn texts(values: &[&str]) -> ColumnData {
    ColumnData::Strings(values.to_vec().into())
}

/// A column of every kind, seven rows.
fn every_kind() -> Table {
    let mut index = names("zelle-", 5);
    index.extend(["Zürich μ 細胞", "zelle-0"]);
    let mut table = Table::from_index("barcode", index);
    let mut add = |name: &str, data| table.set(name, data);
    add("i8", ColumnData::Numbers(Numbers::I8((-3..4).collect())));
    add("i16", ColumnData::Numbers(Numbers::I16((0..7).map(|x| x * 1000 - 3000).collect())));
    add("i32", ColumnData::Numbers(Numbers::I32((0..7).map(|x| x * 100_000 - 3).collect())));
    add("i64", ColumnData::Numbers(Numbers::I64((0..7).map(|x| (1 << 40) + x).collect())));
    add("u8", ColumnData::Numbers(Numbers::U8((249..=255).collect())));
    add("u16", ColumnData::Numbers(Numbers::U16((65529..=65535).collect())));
    add("u32", ColumnData::Numbers(Numbers::U32((0..7).map(|x| u32::MAX - x).collect())));
    add("u64", ColumnData::Numbers(Numbers::U64((0..7).map(|x| u64::MAX - x).collect())));
    add("f32", ColumnData::Numbers(Numbers::F32((0..7).map(|x| x as f32 / 4.0).collect())));
    add("f64", ColumnData::Numbers(Numbers::F64((0..7).map(|x| f64::from(x) / 3.0).collect())));
    add("flag", ColumnData::Bools((0..7).map(|x| x % 2 == 0).collect()));
    add("text", texts(&["a", "", "ß", "a b", "x/y", "細胞", "a"]));
    let values = (0..7).map(|x| if x % 3 == 1 { String::new() } else { format!("t{}", x % 3) }).collect();
    add("gaps", ColumnData::NullableStrings { values, mask: (0..7).map(|x| x % 3 == 1).collect() });
    let mask: Vec<bool> = (0..7).map(|x| x == 2).collect();
    add("nullable_int", ColumnData::NullableNumbers { values: Numbers::I64((0..7).collect()), mask: mask.clone() });
    add(
        "nullable_float",
        ColumnData::NullableNumbers { values: Numbers::F64((0..7).map(f64::from).collect()), mask: mask.clone() },
    );
    add("nullable_bool", ColumnData::NullableBools { values: (0..7).map(|x| x > 3).collect(), mask });
    add(
        "type",
        ColumnData::Categorical {
            codes: vec![0, 1, 2, -1, 2, 1, 0],
            categories: Box::new(texts(&["T", "B", "NK"])),
            ordered: true,
        },
    );
    add(
        "cluster",
        ColumnData::Categorical {
            codes: vec![0, 1, 0, 1, 0, 1, 0],
            categories: Box::new(ColumnData::Numbers(Numbers::I64(vec![10, 20]))),
            ordered: false,
        },
    );
    add("per/cent", ColumnData::Numbers(Numbers::F64(vec![0.5; 7])));
    add("größe", ColumnData::Numbers(Numbers::F64(vec![1.5; 7])));
    table
}

/// Values of a dense matrix, given in parts that fit no chunk.
fn push_dense(writer: &mut H5adWriter, place: Place<'_>, n_rows: usize, n_columns: usize) {
    let mut matrix = writer.dense(place, n_rows, n_columns, ValueKind::F32).expect("start");
    let values: Vec<f32> = (0..n_rows * n_columns).map(|at| (at % 1009) as f32 / 8.0).collect();
    for part in values.chunks(1013) {
        matrix.push(ValuesRef::F32(part)).expect("push");
    }
    matrix.finish().expect("finish");
}

/// A sparse matrix: entry (i, j) is there where (i·7 + j·3) % 11 is below 3, and is i + j / 4; rows come in reverse order of columns.
fn push_csr(writer: &mut H5adWriter, place: Place<'_>, n_rows: usize, n_columns: usize, kind: ValueKind) {
    let mut matrix = writer.csr(place, n_columns, (n_rows * n_columns) as u64).expect("start");
    for start in (0..n_rows).step_by(100) {
        let mut chunk = CsrBuffer::new(n_columns, kind);
        for row in start..(start + 100).min(n_rows) {
            for column in (0..n_columns).rev().filter(|column| (row * 7 + column * 3) % 11 < 3) {
                chunk.indices.push(column as u32);
                chunk.values.push(row as f64 + column as f64 / 4.0);
            }
            chunk.end_row();
        }
        matrix.push(chunk.view()).expect("push");
    }
    matrix.finish().expect("finish");
}

#[test]
fn our_reader_reads_what_we_write() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("out.h5ad");
    for (compression, sparse) in [(Compression::None, true), (Compression::Gzip(6), false)] {
        let options = CreateOptions { compression, force: true, ..CreateOptions::default() };
        let mut writer = H5adWriter::create(&path, &options).expect("create");
        let mut obs = every_kind();
        writer.write_obs(&obs).expect("obs");
        writer.write_var(&Table::from_index("_index", names("g", 5))).expect("var");
        if sparse {
            push_csr(&mut writer, Place::X, 7, 5, ValueKind::F64);
        } else {
            push_dense(&mut writer, Place::X, 7, 5);
        }
        writer.finish().expect("finish");

        let found = zheng17_io::open(&path, &zheng17_io::OpenOptions::default()).expect("open");
        let mut x = CsrBuffer::new(5, ValueKind::F32);
        found.source.read_cells(0..7, &mut x).expect("read");
        x.sort_rows();
        let mut wanted = CsrBuffer::new(5, ValueKind::F32);
        for row in 0..7 {
            for column in 0..5 {
                let sparse_value = f64::from(row) + f64::from(column) / 4.0;
                let value = match sparse {
                    true if (row * 7 + column * 3) % 11 < 3 => sparse_value,
                    true => 0.0,
                    false => f64::from(row * 5 + column) / 8.0,
                };
                // The writer keeps stored zeros.
                if value != 0.0 || sparse && (row * 7 + column * 3) % 11 < 3 {
                    wanted.indices.push(column as u32);
                    wanted.values.push(value);
                }
            }
            wanted.end_row();
        }
        assert_eq!(x, wanted);

        // What changes its form or name on the way; everything else comes back as it was.
        obs.columns.iter_mut().filter(|column| column.name == "per/cent").for_each(|c| c.name = "per_cent".to_string());
        for (column, found) in obs.columns.iter().zip(&found.obs.columns) {
            assert_eq!(column.name, found.name);
            match column.name.as_str() {
                "gaps" => assert!(matches!(found.data, ColumnData::Categorical { .. })),
                "nullable_float" => assert!(matches!(found.data, ColumnData::Numbers(Numbers::F64(_)))),
                _ => assert_eq!(column, found),
            }
        }
        assert_eq!(obs.columns.len(), found.obs.columns.len());
        assert_eq!((obs.index_name, obs.index), (found.obs.index_name, found.obs.index));
    }
}

#[test]
fn anndata_reads_everything_we_write() {
    let Some(python) = python("anndata_reads_everything_we_write") else { return };
    let folder = tempfile::tempdir().expect("folder");
    for (name, compression) in [("plain", Compression::None), ("gzip", Compression::Gzip(4))] {
        let path = folder.path().join(format!("{name}.h5ad"));
        let options = CreateOptions { compression, ..CreateOptions::default() };
        let mut writer = H5adWriter::create(&path, &options).expect("create");
        writer.write_obs(&every_kind()).expect("obs");
        let mut var = Table::from_index("_index", names("gene", 5));
        var.set("_index", texts(&["1", "2", "3", "4", "5"]));
        writer.write_var(&var).expect("var");
        push_dense(&mut writer, Place::X, 7, 5);
        push_csr(&mut writer, Place::Layer("counts"), 7, 5, ValueKind::F32);
        push_csr(&mut writer, Place::Layer("wide"), 7, 5, ValueKind::F64);
        push_dense(&mut writer, Place::Layer("dense"), 7, 5);
        push_dense(&mut writer, Place::Obsm("X_pca"), 7, 3);
        let mut loadings = writer.dense(Place::Varm("PCs"), 5, 3, ValueKind::F64).expect("start");
        loadings.push(ValuesRef::F64(&(0..15).map(f64::from).collect::<Vec<_>>())).expect("push");
        loadings.finish().expect("finish");
        writer.write_uns("log1p", &UnsValue::Dict(Vec::new())).expect("uns");
        let nested = UnsValue::dict([
            ("text", "größe".into()),
            ("empty", "".into()),
            ("yes", true.into()),
            ("count", 17_i64.into()),
            ("number", 0.1.into()),
            ("warnings", vec!["a".to_string(), "ß".to_string()].into()),
            ("no_texts", Vec::<String>::new().into()),
            ("flags", vec![true, false].into()),
            ("counts", vec![1_i64, 2].into()),
            ("numbers", vec![0.5, f64::INFINITY].into()),
            ("no_numbers", Vec::<f64>::new().into()),
            ("deeper", UnsValue::dict([("a/b", UnsValue::Float(2.0))])),
        ]);
        writer.write_uns("zheng17", &nested).expect("uns");
        let notes = writer.finish().expect("finish");
        assert_eq!(
            notes,
            [
                "The column of obs \"per/cent\" is written as \"per_cent\".",
                "The column of var \"_index\" is written as \"_index-1\".",
                "The key of uns/zheng17/deeper \"a/b\" is written as \"a_b\".",
            ]
        );
        check(&python, &["everything", path.to_str().expect("path")]);
    }
}

#[test]
fn anndata_reads_matrices_of_many_chunks() {
    let Some(python) = python("anndata_reads_matrices_of_many_chunks") else { return };
    let folder = tempfile::tempdir().expect("folder");
    for (name, compression) in [("plain", Compression::None), ("gzip", Compression::Gzip(1))] {
        for sparse in [true, false] {
            let path = folder.path().join(format!("{name}-{sparse}.h5ad"));
            let options = CreateOptions { compression, ..CreateOptions::default() };
            let mut writer = H5adWriter::create(&path, &options).expect("create");
            writer.write_obs(&Table::from_index("_index", names("c", 1234))).expect("obs");
            writer.write_var(&Table::from_index("_index", names("g", 777))).expect("var");
            if sparse {
                push_csr(&mut writer, Place::X, 1234, 777, ValueKind::F32);
            } else {
                push_dense(&mut writer, Place::X, 1234, 777);
            }
            writer.finish().expect("finish");
            check(&python, &[if sparse { "big_csr" } else { "big_dense" }, path.to_str().expect("path")]);
        }
    }
}

#[test]
fn scanpy_goes_on_from_an_embedding_without_x() {
    let Some(python) = python("scanpy_goes_on_from_an_embedding_without_x") else { return };
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("none.h5ad");
    let mut writer = H5adWriter::create(&path, &CreateOptions::default()).expect("create");
    writer.write_obs(&Table::from_index("_index", names("c", 60))).expect("obs");
    writer.write_var(&Table::from_index("_index", names("g", 9))).expect("var");
    push_dense(&mut writer, Place::Obsm("X_pca"), 60, 4);
    writer.finish().expect("finish");
    check(&python, &["embedding", path.to_str().expect("path")]);
}

#[test]
fn as_many_columns_as_anndata_can_have_and_no_more() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("wide.h5ad");
    let mut obs = Table::from_index("_index", names("c", 2));
    for column in 0..4000 {
        obs.set(format!("column {column}"), ColumnData::Numbers(Numbers::I32(vec![column, -column])));
    }
    let mut writer = H5adWriter::create(&path, &CreateOptions::default()).expect("create");
    writer.write_obs(&obs).expect("obs");
    writer.write_var(&Table::from_index("_index", names("g", 1))).expect("var");
    writer.finish().expect("finish");
    if let Some(python) = python("as_many_columns_as_anndata_can_have_and_no_more") {
        check(&python, &["wide", path.to_str().expect("path"), "4000"]);
    }

    for column in 4000..4100 {
        obs.set(format!("column {column}"), ColumnData::Numbers(Numbers::I32(vec![column, -column])));
    }
    let options = CreateOptions { force: true, ..CreateOptions::default() };
    let mut writer = H5adWriter::create(&path, &options).expect("create");
    let error = writer.write_obs(&obs).expect_err("no room for their names");
    assert!(error.to_string().starts_with("attribute column-order of obs: 4100 values"), "{error}");
}

#[test]
fn anndata_reads_empty_matrices() {
    let Some(python) = python("anndata_reads_empty_matrices") else { return };
    let folder = tempfile::tempdir().expect("folder");
    for (n_cells, n_genes) in [(0, 4), (3, 0), (0, 0), (3, 4)] {
        for sparse in [true, false] {
            let path = folder.path().join(format!("{n_cells}-{n_genes}-{sparse}.h5ad"));
            let mut writer = H5adWriter::create(&path, &CreateOptions::default()).expect("create");
            writer.write_obs(&Table::from_index("_index", names("c", n_cells))).expect("obs");
            writer.write_var(&Table::from_index("_index", names("g", n_genes))).expect("var");
            if sparse {
                let mut matrix = writer.csr(Place::X, n_genes, (n_cells * n_genes) as u64).expect("start");
                let mut chunk = CsrBuffer::new(n_genes, ValueKind::F32);
                (0..n_cells).for_each(|_| chunk.end_row());
                chunk.values = Values::empty(ValueKind::F32);
                matrix.push(chunk.view()).expect("push");
                matrix.finish().expect("finish");
            } else {
                push_dense(&mut writer, Place::X, n_cells, n_genes);
            }
            writer.finish().expect("finish");
            let shape = [n_cells.to_string(), n_genes.to_string()];
            check(&python, &["shape", path.to_str().expect("path"), &shape[0], &shape[1]]);
        }
    }
}

#[test]
fn a_writer_that_is_not_finished_leaves_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("out.h5ad");
    let mut writer = H5adWriter::create(&path, &CreateOptions::default()).expect("create");
    let mut matrix = writer.dense(Place::X, 2, 3, ValueKind::F32).expect("start");
    matrix.push(ValuesRef::F32(&[1.0; 6])).expect("push");
    drop((writer, matrix));
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
}

#[test]
fn sizes_that_disagree_are_errors() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("out.h5ad");
    let start = || {
        let mut writer = H5adWriter::create(&path, &CreateOptions::default()).expect("create");
        writer.write_obs(&Table::from_index("_index", names("c", 2))).expect("obs");
        writer.write_var(&Table::from_index("_index", names("g", 3))).expect("var");
        writer
    };
    let mut writer = start();
    let mut short = writer.dense(Place::X, 2, 3, ValueKind::F32).expect("start");
    short.push(ValuesRef::F32(&[1.0; 5])).expect("push");
    short.finish().expect_err("five values for six places");
    let error = writer.finish().expect_err("X is not complete");
    assert!(error.to_string().contains("X: the matrix is not complete"), "{error}");

    let mut writer = start();
    push_dense(&mut writer, Place::Obsm("X_pca"), 3, 2);
    let error = writer.finish().expect_err("three rows for two cells");
    assert!(error.to_string().contains("obsm/X_pca"), "{error}");

    let mut writer = H5adWriter::create(&path, &CreateOptions::default()).expect("create");
    push_dense(&mut writer, Place::X, 2, 3);
    writer.finish().expect_err("no tables");
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
}

#[test]
fn a_category_that_is_not_there_is_an_error_with_its_column() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("out.h5ad");
    let mut writer = H5adWriter::create(&path, &CreateOptions::default()).expect("create");
    let mut obs = Table::from_index("_index", names("c", 2));
    obs.set(
        "type",
        ColumnData::Categorical { codes: vec![0, 2], categories: Box::new(texts(&["T", "B"])), ordered: false },
    );
    let error = writer.write_obs(&obs).expect_err("category 2 of 2");
    assert!(error.to_string().starts_with("obs/type: row 2"), "{error}");
}
