//! Matrices that are stored by genes: read by genes as they stand, and by cells within any limit of memory.

mod common;

use std::path::{Path, PathBuf};

use common::open_and_read;
use zheng17_core::matrix::ValueKind;
use zheng17_core::{ChunkSource, CsrBuffer, Values};
use zheng17_io::{Dataset, OpenOptions, open};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn open_within(name: &str, memory: u64) -> Dataset {
    open(&fixture(name), &OpenOptions { memory: Some(memory), ..OpenOptions::default() }).expect("a file")
}

const FILES: [&str; 3] = ["layouts/empty_rows_csc.h5ad", "layouts/store_all_csc.h5ad", "odd/reals_csc.h5ad"];

/// Files that the program can't read where it reads through an old libhdf5 are passed over.
fn whole(name: &str) -> Option<CsrBuffer> {
    match open_and_read(&fixture(name), &OpenOptions::default()) {
        Ok((_, whole)) => Some(whole),
        Err(error) if common::is_newer_than_libhdf5(&error.to_string()) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn cells_are_the_same_within_any_memory() {
    for name in FILES {
        let Some(whole) = whole(name) else { continue };
        for memory in [0, 500, 2000, 1 << 20] {
            for rows in [1, 7, 1000] {
                let found = common::read(&open_within(name, memory).source, rows).expect("cells");
                assert!(found == whole, "{name}, {memory} bytes, {rows} rows");
            }
        }
    }
}

#[test]
fn threads_that_run_ahead_of_each_other_read_the_same() {
    for name in FILES {
        let Some(whole) = whole(name) else { continue };
        let dataset = open_within(name, 1500);
        let n_cells = whole.n_cells();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (source, whole) = (&dataset.source, &whole);
                scope.spawn(move || {
                    let mut chunk = CsrBuffer::new(0, ValueKind::F32);
                    for round in 0..30 {
                        let start = (round * 4 + thread) * 5 % n_cells;
                        let end = (start + 5).min(n_cells);
                        source.read_cells(start..end, &mut chunk).expect("a range");
                        let mut expected = CsrBuffer::new(whole.n_genes, ValueKind::F32);
                        expected.append(whole.view().rows(start..end));
                        assert_eq!((chunk.first_cell, &chunk.indptr), (start, &expected.indptr), "{name}");
                        assert_eq!(chunk.indices, expected.indices, "{name}");
                        let (found, expected) = (chunk.values.as_ref(), expected.values.as_ref());
                        assert!((0..found.len()).all(|at| found.get(at) == expected.get(at)), "{name}");
                    }
                });
            }
        });
    }
}

#[test]
fn genes_are_the_columns_of_the_cells() {
    for name in FILES {
        let Some(whole) = whole(name) else { continue };
        let source = open_within(name, 0).source;
        assert!(source.stored_by_genes());
        let mut genes = CsrBuffer::new(0, ValueKind::F32);
        let mut n_entries = 0;
        for start in (0..whole.n_genes).step_by(3) {
            let end = (start + 3).min(whole.n_genes);
            source.read_genes(start..end, &mut genes).expect("genes");
            assert_eq!((genes.first_cell, genes.n_genes, genes.n_cells()), (start, whole.n_cells(), end - start));
            let (genes, whole) = (genes.view(), whole.view());
            for row in 0..genes.n_cells() {
                for (at, &cell) in genes.row_indices(row).iter().enumerate() {
                    let cell_genes = whole.row_indices(cell as usize);
                    let place = cell_genes.iter().position(|&gene| gene as usize == start + row).expect("the entry");
                    let value = whole.row_values(cell as usize).get(place);
                    assert_eq!(genes.row_values(row).get(at), value, "{name}");
                    n_entries += 1;
                }
            }
        }
        assert_eq!(n_entries, whole.indices.len(), "{name}");
    }
}

#[test]
fn only_cells_that_need_it_get_64_bits() {
    let source = open_within("odd/reals_csc.h5ad", 1 << 20).source;
    let mut cells = CsrBuffer::new(0, ValueKind::F32);
    source.read_cells(0..2, &mut cells).expect("cells");
    assert_eq!(cells.values, Values::F32(vec![1.0, 2.0, 3.0]));
    source.read_cells(2..4, &mut cells).expect("cells");
    assert_eq!(cells.values.kind(), ValueKind::F64);
}

#[test]
fn the_note_says_how_cells_are_read() {
    let note = |memory| open_within("layouts/store_all_csc.h5ad", memory).notes.concat();
    let start = "X is stored by genes (CSC); steps that need cells get its 259 entries as rows in memory, ";
    assert_eq!(note(1 << 20), format!("{start}once."));
    assert_eq!(note(1000), format!("{start}a part at a time within 1 MB, each with a pass over the file."));
}
