//! What is written, read back by our reader and, where `ZHENG17_PYTHON` gives a Python, by h5py.

use std::process::Command;

use super::{Attribute, DatasetSpec, Field, Filters, Hdf5Output, StoredType};
use crate::hdf5::{self, Array, Hdf5File, NodeKind, read_all};
use crate::table::Numbers;
use crate::write::array::{ArraySpec, ArrayWriter, Compression, Element, SharedSink, stored_bytes};

/// More chunks than two levels of their tree hold.
const N_CHUNKS: usize = 5000;
/// More members than two levels of the tree of a group hold.
const N_MEMBERS: usize = 9000;

fn texts() -> Vec<String> {
    let mut texts: Vec<String> =
        (0..70_000).map(|at| if at % 7 == 0 { String::new() } else { format!("t{at}") }).collect();
    texts.push("größe 細胞".to_string());
    texts.push("x".repeat(300_000));
    texts
}

fn write(path: &std::path::Path) {
    let sink = SharedSink::new(Hdf5Output::create(path, "out".to_string()).expect("create"));
    for (name, compression) in [("plain", Compression::None), ("gzip", Compression::Gzip(1))] {
        let spec = ArraySpec {
            path: name.to_string(),
            stored: i16::STORED,
            row: vec![3],
            rows_per_chunk: 2,
            compression,
            always_chunked: false,
        };
        let mut array = ArrayWriter::new(sink.clone(), spec).expect("start");
        let values: Vec<i16> = (0..(N_CHUNKS * 2 - 1) * 3).map(|at| at as i16).collect();
        array.push(&values).expect("push");
        array.finish(N_CHUNKS * 2 - 1).expect("finish");
    }
    let mut file = sink.lock();
    let texts = texts();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    file.create_texts("texts", &[texts.len()], texts.iter().copied()).expect("texts");
    file.create_texts("single", &[], ["größe"].into_iter()).expect("text");
    file.create_texts("none", &[0], [].into_iter()).expect("texts");
    file.create_texts("table", &[2, 3], ["a", "", "c", "d", "e", "f"].into_iter()).expect("texts");
    file.create_nothing("nothing").expect("nothing");
    let fields = [
        ("name".to_string(), Field::Texts(&["one".to_string(), "zwei ß".to_string()])),
        ("score".to_string(), Field::Elements(f32::STORED, stored_bytes(&[0.5_f32, 1.5]))),
        ("n".to_string(), Field::Elements(i64::STORED, stored_bytes(&[3_i64, 4]))),
        ("is_it".to_string(), Field::Elements(StoredType::Bool, vec![1, 0])),
    ];
    file.create_records("records", &fields, Some(2)).expect("records");

    file.create_group("many").expect("group");
    let spec = DatasetSpec { stored: u8::STORED, shape: Vec::new(), chunk: None, filters: Filters::default() };
    for member in 0..N_MEMBERS {
        let id = file.create_dataset(&format!("many/{member}"), &spec).expect("dataset");
        file.write_whole(id, &[member as u8]).expect("write");
        file.set_attribute(id, "half", Attribute::Number(&Numbers::F64(vec![member as f64 / 2.0]))).expect("attribute");
    }
    file.create_group("deep").expect("group");
    file.create_group("deep/a").expect("group");
    file.create_group("deep/a-b").expect("group");
    file.create_group("deep/a/b").expect("group");
    let many: Vec<String> = (0..3000).map(|at| format!("column {at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (name, value) in [
        ("text", Attribute::Text("ß")),
        ("empty", Attribute::Text("")),
        ("texts", Attribute::Texts(&many)),
        ("no_texts", Attribute::Texts(&[])),
        ("flag", Attribute::Bool(true)),
        ("flags", Attribute::Bools(&[true, false])),
        ("numbers", Attribute::Numbers(&Numbers::U16(vec![1, 65535]))),
        ("no_numbers", Attribute::Numbers(&Numbers::F32(Vec::new()))),
    ] {
        file.set_group_attribute("deep/a/b", name, value).expect("attribute");
    }
    file.create_group("gone").expect("group");
    file.create_texts("gone/texts", &[1], ["x"].into_iter()).expect("texts");
    file.remove("gone");
    file.create_group("gone").expect("the name is free again");
    file.remove("gone");
    file.close().expect("close");
}

fn check(file: &dyn Hdf5File) {
    for name in ["plain", "gzip"] {
        let values = (0..(N_CHUNKS * 2 - 1) * 3).map(|at| at as i16).collect();
        assert_eq!(read_all(file, name).expect("read"), Array::Numbers(Numbers::I16(values)));
    }
    assert_eq!(read_all(file, "texts").expect("read"), Array::Strings(texts()));
    assert_eq!(read_all(file, "single").expect("read"), Array::Strings(vec!["größe".to_string()]));
    assert_eq!(read_all(file, "none").expect("read"), Array::Strings(Vec::new()));
    let Array::Records(records) = read_all(file, "records").expect("read") else { panic!("records") };
    assert_eq!(records[0].1, Array::Strings(vec!["one".to_string(), "zwei ß".to_string()]));
    assert_eq!(records[2], ("n".to_string(), Array::Numbers(Numbers::I64(vec![3, 4]))));
    let mut members = file.children("many").expect("members");
    members.sort_by_key(|name| name.parse::<usize>().expect("a number"));
    assert_eq!(members, (0..N_MEMBERS).map(|at| at.to_string()).collect::<Vec<_>>());
    assert_eq!(read_all(file, "many/8999").expect("read"), Array::Numbers(Numbers::U8(vec![8999_u16 as u8])));
    assert_eq!(file.children("deep").expect("members"), ["a", "a-b"]);
    assert_eq!(file.kind("deep/a/b").expect("kind"), Some(NodeKind::Group));
    assert_eq!(file.kind("gone").expect("kind"), None);
    let attributes = file.attributes("deep/a/b").expect("attributes");
    assert_eq!(attributes.len(), 8);
    assert_eq!(attributes[0].values, Array::Strings(vec!["ß".to_string()]));
    assert!(attributes[0].shape.is_empty() && attributes[2].shape == [3000]);
}

#[test]
fn our_reader_and_h5py_read_large_and_odd_structures() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("out.h5");
    write(&path);
    check(hdf5::open(&path).expect("open").as_ref());
    if let Some(python) = zheng17_test_support::python("our_reader_and_h5py_read_large_and_odd_structures") {
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/check_hdf5.py");
        let output = Command::new(python).arg(script).arg(&path).output().expect("python starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn misuse_is_an_error() {
    let folder = tempfile::tempdir().expect("folder");
    let mut file = Hdf5Output::create(&folder.path().join("out.h5"), "out".to_string()).expect("create");
    file.create_group("a").expect("group");
    file.create_group("a").expect_err("taken");
    file.create_group("b/c").expect_err("no parent");
    file.create_group("").expect_err("no name");
    file.create_texts("a", &[1], ["x"].into_iter()).expect_err("taken by a group");
    file.create_texts("t", &[2], ["x"].into_iter()).expect_err("one text for two places");
    file.set_group_attribute("none", "x", Attribute::Bool(true)).expect_err("no such group");
    let spec = DatasetSpec { stored: u8::STORED, shape: vec![3], chunk: None, filters: Filters::default() };
    let id = file.create_dataset("d", &spec).expect("dataset");
    file.write_whole(id, &[1, 2]).expect_err("two bytes of three");
    file.write_chunk(id, &[1, 2, 3]).expect_err("no chunks");
    file.write_whole(id, &[1, 2, 3]).expect("whole");
    file.write_whole(id, &[1, 2, 3]).expect_err("written already");
    let numbers = Numbers::F64(vec![0.0; 9000]);
    let error = file.set_attribute(id, "large", Attribute::Numbers(&numbers)).expect_err("no room");
    assert!(error.to_string().contains("room for 81"), "{error}");
}
