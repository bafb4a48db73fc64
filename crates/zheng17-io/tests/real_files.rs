//! Files of the field: each opens with the shape, the number of entries and the number type that its list states.

mod common;

use std::path::{Path, PathBuf};

use common::read;
use zheng17_core::matrix::ValueKind;
use zheng17_core::{CsrBuffer, ErrorKind};
use zheng17_io::dataset::Layout;
use zheng17_io::{FeatureTypes, Format, OpenOptions, open};

/// One line of the list.
struct Listed {
    path: PathBuf,
    format: String,
    layout: String,
    shape: String,
    n_entries: u64,
    value_type: String,
    compression: String,
}

fn manifest(shared: &Path) -> Vec<Listed> {
    let text = std::fs::read_to_string(shared.join("data/MANIFEST.tsv")).expect("the list can be read");
    text.lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            Listed {
                path: shared.join("data").join(fields[0]),
                format: fields[4].to_owned(),
                layout: fields[5].to_owned(),
                shape: fields[6].split(' ').next().unwrap_or_default().to_owned(),
                n_entries: fields[7].parse().unwrap_or(0),
                value_type: fields[8].split('/').next().unwrap_or_default().to_owned(),
                compression: fields[10].to_owned(),
            }
        })
        .filter(|listed| listed.path.exists() && (listed.format.contains("h5")))
        .collect()
}

/// Not AnnData or 10x, or without a matrix: see [`files_that_must_be_refused`].
const REFUSED: [(&str, ErrorKind, &str); 5] = [
    ("anndata_archive_v0.11.4.h5ad", ErrorKind::Input, "the file has no X; the file has no layers"),
    (
        "muon_test_rna_atac.h5mu",
        ErrorKind::Unsupported,
        "not supported yet: MuData (h5mu), several AnnData in one file",
    ),
    ("sympathetic.loom", ErrorKind::Unsupported, "not supported yet: loom"),
    (
        "lfs_pointer.h5",
        ErrorKind::Input,
        "not a file of counts: it is a Git LFS pointer, so the real file was not downloaded (git lfs pull)",
    ),
    ("scp_bad.h5", ErrorKind::Input, "not a file of counts: it is a text that starts with "),
];

#[test]
fn files_that_must_be_refused() {
    let Some(shared) = zheng17_test_support::shared("files_that_must_be_refused") else { return };
    for (name, kind, message) in REFUSED {
        let path = shared.join("data").join(name);
        let Err(error) = open(&path, &OpenOptions::default()) else { panic!("{name} opened") };
        assert_eq!(error.kind(), kind, "{name}");
        let expected = format!("{}: {message}", path.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
fn every_listed_file_opens_as_listed() {
    let Some(shared) = zheng17_test_support::shared("every_listed_file_opens_as_listed") else { return };
    let mut complaints = Vec::new();
    for listed in manifest(&shared) {
        let name = listed.path.file_name().expect("a name").display().to_string();
        if REFUSED.iter().any(|(refused, ..)| *refused == name) {
            continue;
        }
        if let Err(complaint) = opens_as_listed(&listed, &name) {
            complaints.push(format!("{name}: {complaint}"));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn opens_as_listed(listed: &Listed, name: &str) -> Result<(), String> {
    let options = OpenOptions {
        genome: name.contains("multiple_genomes").then(|| "hg19_chr21".to_owned()),
        feature_types: if listed.format == "10x h5 v3" { FeatureTypes::All } else { FeatureTypes::default() },
        ..OpenOptions::default()
    };
    let dataset = open(&listed.path, &options).map_err(|error| error.to_string())?;
    let whole = read(dataset.source.as_ref(), 100).map_err(|error| error.to_string())?;
    let shape = dataset.source.shape();
    let matrix = &dataset.matrix;
    let layout = match matrix.layout {
        Layout::Csr if listed.format.starts_with("10x") => "csc genes x cells",
        Layout::Csr => "csr",
        Layout::Csc => "csc",
        Layout::Dense => "dense",
        Layout::Coordinate => "coo",
    };
    let found = (
        format!("{}x{}", shape.n_cells, shape.n_genes),
        whole.indices.len() as u64,
        layout,
        matrix.value_type.as_str(),
        matrix.compression.contains(&listed.compression),
    );
    let stated = (listed.shape.clone(), listed.n_entries, listed.layout.as_str(), listed.value_type.as_str(), true);
    if found != stated {
        return Err(format!("{found:?}, listed as {stated:?}"));
    }
    if (dataset.obs.n_rows(), dataset.var.n_rows()) != (shape.n_cells, shape.n_genes) {
        return Err("names don't fit the matrix".to_owned());
    }
    Ok(())
}

#[test]
fn genes_only_by_default() {
    let Some(shared) = zheng17_test_support::shared("genes_only_by_default") else { return };
    let dataset = open(&shared.join("data/pbmc_1k_citeseq.10xv3.h5"), &OpenOptions::default()).expect("it opens");
    assert_eq!(dataset.format, Format::TenxV3);
    assert_eq!(dataset.source.shape().n_genes, 36_601);
    assert_eq!(
        dataset.notes,
        ["10 of 36611 features are not Gene Expression and were left out (10 Antibody Capture)."]
    );
}

#[test]
fn a_folder_of_texts_equals_the_hdf5_file() {
    let Some(shared) = zheng17_test_support::shared("a_folder_of_texts_equals_the_hdf5_file") else { return };
    let opened = ["scanpy_3.0.0_mtx", "scanpy_3.0.0_filtered_feature_bc_matrix.h5"]
        .map(|name| open(&shared.join("data").join(name), &OpenOptions::default()).expect("a sound file"));
    let [folder, hdf5] = &opened;
    assert_eq!((folder.format, hdf5.format), (Format::TenxMtx, Format::TenxV3));
    assert_eq!(folder.obs, hdf5.obs);
    assert_eq!(folder.var.index, hdf5.var.index);
    for column in ["gene_ids", "feature_types"] {
        assert_eq!(folder.var.column(column), hdf5.var.column(column), "{column}");
    }
    let [mut folder, mut hdf5] = opened.map(|dataset| {
        let shape = dataset.source.shape();
        let mut cells = CsrBuffer::new(shape.n_genes, ValueKind::F32);
        dataset.source.read_cells(0..shape.n_cells, &mut cells).expect("sound cells");
        cells
    });
    folder.sort_rows();
    hdf5.sort_rows();
    assert_eq!(folder, hdf5);
}

#[test]
fn zarr_is_named_as_what_is_missing() {
    let Some(shared) = zheng17_test_support::shared("zarr_is_named_as_what_is_missing") else { return };
    for name in ["annbatch_example_0.zarr", "anndatajs_0.10_csc.zarr", "anndatajs_0.7_csr.zarr"] {
        let error = open(&shared.join("data").join(name), &OpenOptions::default()).err().expect("not read yet");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().ends_with("not supported yet: zarr"), "{error}");
    }
}
