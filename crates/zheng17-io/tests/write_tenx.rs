//! What the 10x writer writes, read back by the real scanpy where a Python that has it is given in `ZHENG17_PYTHON`.

use std::path::Path;
use std::process::Command;

use zheng17_core::matrix::{CsrBuffer, ValueKind};
use zheng17_io::write::{CreateOptions, TenxFeatures, TenxWriter};
use zheng17_test_support::python;

struct Lists {
    ids: Vec<String>,
    names: Vec<String>,
    feature_types: Vec<String>,
    genomes: Vec<String>,
}

impl Lists {
    fn new(n_genes: usize) -> Self {
        let list = |f: &dyn Fn(usize) -> String| (0..n_genes).map(f).collect();
        Self {
            ids: list(&|at| format!("ENSG{at:011}")),
            names: list(&|at| if at == 1 { "GENE0".to_string() } else { format!("GENE{at}") }),
            feature_types: list(&|_| "Gene Expression".to_string()),
            genomes: list(&|_| "GRCh38".to_string()),
        }
    }

    fn features(&self) -> TenxFeatures<'_> {
        TenxFeatures {
            ids: &self.ids,
            names: &self.names,
            feature_types: &self.feature_types,
            genomes: &self.genomes,
            library: "simulated",
            chemistry: "none",
        }
    }
}

fn barcodes(n_cells: usize) -> Vec<String> {
    (0..n_cells).map(|cell| format!("{cell:016}-1")).collect()
}

/// Entry (i, j) is there where (i·7 + j·3) % 11 is below 3, and is 1 + (i + j) % 500.
fn cells(range: std::ops::Range<usize>, n_genes: usize) -> CsrBuffer {
    let mut chunk = CsrBuffer::new(n_genes, ValueKind::F32);
    for cell in range {
        for gene in (0..n_genes).filter(|gene| (cell * 7 + gene * 3) % 11 < 3) {
            chunk.indices.push(gene as u32);
            chunk.values.push((1 + (cell + gene) % 500) as f64);
        }
        chunk.end_row();
    }
    chunk
}

#[test]
fn scanpy_reads_what_we_write() {
    let Some(python) = python("scanpy_reads_what_we_write") else { return };
    let folder = tempfile::tempdir().expect("folder");
    for (n_cells, n_genes) in [(1500, 400), (3, 2)] {
        let path = folder.path().join(format!("{n_cells}.h5"));
        let lists = Lists::new(n_genes);
        let mut writer = TenxWriter::create(&path, &CreateOptions::default(), &barcodes(n_cells), &lists.features())
            .expect("create");
        for start in (0..n_cells).step_by(97) {
            writer.push(cells(start..(start + 97).min(n_cells), n_genes).view()).expect("push");
        }
        writer.finish().expect("finish");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/check_tenx.py");
        let arguments = [n_cells.to_string(), n_genes.to_string()];
        let output = Command::new(&python).arg(script).arg(&path).args(arguments).output().expect("python starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn values_that_are_no_counts_are_refused_with_their_cell() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("out.h5");
    let lists = Lists::new(4);
    for wrong in [0.5, -1.0, 2_147_483_648.0, f64::NAN, f64::INFINITY] {
        let mut writer =
            TenxWriter::create(&path, &CreateOptions::default(), &barcodes(6), &lists.features()).expect("create");
        writer.push(cells(0..3, 4).view()).expect("counts");
        let mut chunk = CsrBuffer::new(4, ValueKind::F64);
        for cell in 3..6 {
            chunk.indices.push(2);
            chunk.values.push(if cell == 4 { wrong } else { 2_147_483_647.0 });
            chunk.end_row();
        }
        let error = writer.push(chunk.view()).expect_err("no count");
        assert!(error.to_string().contains("cell 4"), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
}

#[test]
fn missing_cells_are_an_error() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("out.h5");
    let lists = Lists::new(4);
    let mut writer =
        TenxWriter::create(&path, &CreateOptions::default(), &barcodes(6), &lists.features()).expect("create");
    writer.push(cells(0..5, 4).view()).expect("counts");
    let error = writer.finish().expect_err("five cells for six barcodes");
    assert!(error.to_string().contains("indptr"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
}
