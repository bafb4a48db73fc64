//! Sources that are stored by genes: what the check of counts makes of them.

use std::ops::Range;
use std::sync::Arc;

use zheng17_core::matrix::ValueKind;
use zheng17_core::source::{CheckedSource, MemorySource};
use zheng17_core::{ChunkSource, CsrBuffer, ErrorKind, Result, Shape, Values};

/// A matrix in memory whose rows are genes. Cells are read one entry at a time.
struct ByGenes(CsrBuffer);

/// Four cells, three genes; rows of genes with a stored zero and, in the last, cell 3 twice.
fn matrix(values: [f32; 6]) -> ByGenes {
    ByGenes(CsrBuffer {
        first_cell: 0,
        n_genes: 4,
        indptr: vec![0, 2, 3, 6],
        indices: vec![0, 2, 1, 3, 0, 3],
        values: Values::F32(values.to_vec()),
    })
}

impl ChunkSource for ByGenes {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.0.n_genes, n_genes: self.0.n_cells() }
    }
    fn n_entries(&self) -> Option<u64> {
        Some(self.0.indices.len() as u64)
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        let view = self.0.view();
        out.reset(cells.start, view.n_cells(), ValueKind::F32);
        for cell in cells {
            for gene in 0..view.n_cells() {
                for (at, &found) in view.row_indices(gene).iter().enumerate() {
                    if found as usize == cell {
                        out.indices.push(gene as u32);
                        out.values.push(view.row_values(gene).get(at));
                    }
                }
            }
            out.end_row();
        }
        Ok(())
    }
    fn stored_by_genes(&self) -> bool {
        true
    }
    fn read_genes(&self, genes: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        out.reset(genes.start, self.0.n_genes, ValueKind::F32);
        out.append(self.0.view().rows(genes));
        Ok(())
    }
    fn cell_name(&self, cell: usize) -> Option<String> {
        Some(format!("c{cell}"))
    }
    fn gene_name(&self, gene: usize) -> Option<String> {
        Some(format!("g{gene}"))
    }
    fn name(&self) -> String {
        "test".to_owned()
    }
}

fn buffer() -> CsrBuffer {
    CsrBuffer::new(0, ValueKind::F32)
}

#[test]
fn zeros_are_dropped_and_duplicates_summed_and_counted_once() {
    let source = Arc::new(CheckedSource::new(Arc::new(matrix([1.0, 0.0, 2.0, 3.0, 4.0, 5.0]))).expect("a source"));
    assert!(source.stored_by_genes(), "said through the check and the Arc");
    let mut genes = buffer();
    for _ in 0..2 {
        source.read_genes(0..1, &mut genes).expect("a gene");
        assert_eq!((&genes.indptr, &genes.indices), (&vec![0, 1], &vec![0]));
        source.read_genes(1..3, &mut genes).expect("genes");
        assert_eq!((genes.first_cell, genes.n_genes), (1, 4));
        assert_eq!((&genes.indptr, &genes.indices), (&vec![0, 1, 3], &vec![1, 0, 3]));
        assert_eq!(genes.values, Values::F32(vec![2.0, 4.0, 8.0]));
    }
    source.read_cells(0..4, &mut genes).expect("cells");
    assert_eq!(genes.indices, [0, 2, 1, 2]);
    assert_eq!(source.duplicates(), 1, "reading by cells meets the same duplicate again");
}

#[test]
fn wrong_values_are_named_by_cell_and_gene_whichever_way_they_are_read() {
    let source = CheckedSource::new(Arc::new(matrix([1.0, -1.0, f32::NAN, 3.0, 4.0, -2.0]))).expect("a source");
    let expected = "test: counts must be finite, not negative and at most 2^53, but cell 1 (c1) has NaN for gene 1 (g1); \
                    3 such values in all";
    let by_genes = source.read_genes(2..3, &mut buffer()).expect_err("a wrong value");
    assert_eq!((by_genes.to_string().as_str(), by_genes.kind()), (expected, ErrorKind::Input));
    let by_cells = source.read_cells(2..3, &mut buffer()).expect_err("a wrong value");
    assert_eq!(by_cells.to_string(), expected);
}

#[test]
fn a_cell_beyond_the_last_is_named_with_its_gene() {
    let mut wrong = matrix([1.0; 6]);
    wrong.0.indices[2] = 4;
    let source = CheckedSource::new(Arc::new(wrong)).expect("a source");
    let error = source.read_genes(1..3, &mut buffer()).expect_err("a wrong index");
    assert_eq!(error.to_string(), "test: column 1: row index 4, but there are only 4 cells");
}

#[test]
fn sources_by_cells_refuse_to_read_genes() {
    let mut cells = CsrBuffer::new(2, ValueKind::F32);
    cells.end_row();
    cells.end_row();
    let source = CheckedSource::new(Arc::new(MemorySource::new(cells, "cells").expect("a source"))).expect("a check");
    assert!(!source.stored_by_genes());
    let error = source.read_genes(0..1, &mut buffer()).expect_err("no genes");
    assert_eq!(error.kind(), ErrorKind::Internal);
}
