//! The narrow form: what is packed comes out with the same bits, and kernels that read it give what the rows give.

use std::sync::Arc;

use proptest::prelude::*;
use zheng17_core::exact::CountSummary;
use zheng17_core::kernels::ScalarKernels;
use zheng17_core::matrix::{GeneMap, ValueKind};
use zheng17_core::{ChunkKernels, ChunkSource, CsrBuffer, CsrView, ErrorKind, Values};
use zheng17_kernels::{CountFolder, KeptChunk, PackedChunk, select_kept_into};
use zheng17_simulate::{Parameters, Simulation};

const N_GENES: usize = 70_000;

/// A chunk whose rows have these genes and counts.
fn chunk_of(first_cell: usize, n_genes: usize, rows: &[Vec<(u32, f64)>]) -> CsrBuffer {
    let mut chunk = CsrBuffer::new(n_genes, ValueKind::F32);
    chunk.first_cell = first_cell;
    for row in rows {
        for &(gene, count) in row {
            chunk.indices.push(gene);
            chunk.values.push(count);
        }
        chunk.end_row();
    }
    chunk
}

/// Rows with steps and counts on either side of what a byte holds.
fn rows() -> impl Strategy<Value = Vec<Vec<(u32, f64)>>> {
    let step = prop_oneof![
        20 => 1_u32..20,
        2 => 250_u32..260,
        1 => 500_u32..5000,
    ];
    let count = prop_oneof![
        20 => 1_u32..16,
        2 => 10_u32..40,
        2 => 250_u32..260,
        1 => 60_000_u32..(1 << 24),
    ];
    let row = proptest::collection::vec((step, count), 0..300).prop_map(|entries| {
        let mut next = 0;
        let mut row = Vec::new();
        for (step, count) in entries {
            // The first gene of a row may be gene 0.
            next += step - u32::from(row.is_empty());
            if next as usize >= N_GENES {
                break;
            }
            row.push((next, f64::from(count)));
        }
        row
    });
    proptest::collection::vec(row, 0..20)
}

fn simulated(n_cells: usize) -> CsrBuffer {
    let mut chunk = CsrBuffer::new(3000, ValueKind::F32);
    let simulation = Simulation::new(Parameters { n_cells, n_genes: 3000, seed: 7 }).expect("a simulation");
    simulation.read_cells(0..n_cells, &mut chunk).expect("simulated cells");
    chunk
}

fn unpacked(packed: &PackedChunk) -> CsrBuffer {
    let mut out = CsrBuffer::new(packed.n_genes(), ValueKind::F32);
    out.first_cell = packed.first_cell();
    packed.unpack_into(&mut out);
    out
}

/// All that must hold of a chunk that can be packed.
fn check(chunk: &CsrBuffer) {
    let kept = KeptChunk::keep(chunk.view());
    let KeptChunk::Packed(packed) = &kept else { panic!("this chunk can be packed") };
    assert_eq!((packed.n_cells(), packed.n_genes()), (chunk.n_cells(), chunk.n_genes));
    assert_eq!((packed.n_entries(), packed.first_cell()), (chunk.indices.len(), chunk.first_cell));
    assert_eq!(&unpacked(packed), chunk);
    let mut scratch = CsrBuffer::new(1, ValueKind::F64);
    kept.view(&mut scratch);
    assert_eq!(&scratch, chunk);

    // Any range of rows, behind what the buffer holds.
    let middle = chunk.n_cells() / 3..chunk.n_cells() - chunk.n_cells() / 4;
    let mut out = chunk.clone();
    let mut expected = chunk.clone();
    kept.append_rows_to(middle.clone(), &mut out);
    expected.append(chunk.view().rows(middle));
    assert_eq!(out, expected);
    out.values.widen();
    expected.values.widen();
    packed.unpack_into(&mut out);
    expected.append(chunk.view());
    assert_eq!(out, expected);

    let mut bytes = vec![1, 2, 3];
    kept.write_to(&mut bytes);
    assert_eq!(KeptChunk::read_from(&bytes[3..]).expect("what was written"), kept);

    for excluded in [None, Some((0..chunk.n_genes).map(|gene| gene % 7 == 3).collect::<Arc<[bool]>>())] {
        let first_cell = 1234;
        let mut scalar = CountSummary::new(chunk.n_genes, excluded.clone());
        scalar.fold(chunk.view().with_first_cell(first_cell)).expect("scalar");
        let mut fast = CountFolder::new(chunk.n_genes, excluded);
        fast.fold_kept(&kept, first_cell).expect("packed");
        assert_eq!(fast.finish().expect("packed"), scalar);
    }

    for step in [1, 3, 50] {
        let genes = GeneMap::new(chunk.n_genes, &(step / 2..chunk.n_genes).step_by(step).collect::<Vec<_>>());
        for kind in [ValueKind::F32, ValueKind::F64] {
            let mut scalar = CsrBuffer::new(genes.n_selected(), kind);
            ScalarKernels.select_into(chunk.view(), &genes, &mut scalar).expect("scalar");
            let mut fast = CsrBuffer::new(genes.n_selected(), kind);
            select_kept_into(&kept, &genes, &mut fast);
            assert_eq!(fast, scalar);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_counts(rows in rows(), first_cell in 0_usize..1_000_000) {
        check(&chunk_of(first_cell, N_GENES, &rows));
    }

    #[test]
    fn damaged_bytes_are_refused(rows in rows(), at in any::<prop::sample::Index>(), flip in 1_u8..) {
        let kept = KeptChunk::keep(chunk_of(5, N_GENES, &rows).view());
        let mut bytes = Vec::new();
        kept.write_to(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert_eq!(KeptChunk::read_from(&bytes).expect_err("a byte was changed").kind(), ErrorKind::Input);
        bytes[at] ^= flip;
        prop_assert!(KeptChunk::read_from(&bytes[..at]).is_err());
        bytes.push(0);
        prop_assert!(KeptChunk::read_from(&bytes).is_err());
    }

    /// Even bytes with the right checksum make no chunk that breaks what kernels rely on.
    #[test]
    fn forged_bytes_give_sound_chunks(
        rows in rows(), at in any::<prop::sample::Index>(), flip in 1_u8.., packed in any::<bool>(),
    ) {
        let mut chunk = chunk_of(5, N_GENES, &rows);
        if !packed {
            chunk.values.push(0.5);
            chunk.indices.push(3);
            chunk.end_row();
        }
        let kept = KeptChunk::keep(chunk.view());
        prop_assert_eq!(matches!(kept, KeptChunk::Packed(_)), packed);
        let mut bytes = Vec::new();
        kept.write_to(&mut bytes);
        let end = bytes.len() - 4;
        bytes[at.index(end)] ^= flip;
        let checksum = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(forged) = KeptChunk::read_from(&bytes) {
            let mut scratch = CsrBuffer::new(1, ValueKind::F32);
            let view = forged.view(&mut scratch);
            prop_assert!(CsrView::checked(0, view.n_genes(), view.indptr(), view.indices(), view.values()).is_ok());
        }
    }
}

#[test]
fn edges() {
    check(&chunk_of(0, 5, &[]));
    check(&chunk_of(7, 0, &[vec![], vec![]]));
    check(&chunk_of(0, 5, &[vec![], vec![(0, 1.0), (4, 255.0)], vec![]]));
    let last = N_GENES as u32 - 1;
    let counts = [1.0, 254.0, 255.0, 256.0, 65_535.0, 8_388_607.0, 8_388_609.0, 16_777_215.0];
    let genes = [0, 254, 508, 509, 764, 1020, 60_000, last];
    check(&chunk_of(3, N_GENES, &[genes.into_iter().zip(counts).collect(), vec![(last, 2.0)], vec![(255, 3.0)]]));
    check(&chunk_of(0, 600, &[(0..600).map(|gene| (gene, 300.0)).collect()]));
    check(&chunk_of(0, N_GENES, &[(0..200).map(|gene| (gene * 300, 1.0)).collect()]));
}

#[test]
fn simulated_cells() {
    let chunk = simulated(300);
    check(&chunk);
    let mut part = CsrBuffer::new(chunk.n_genes, ValueKind::F32);
    part.append(chunk.view().rows(100..200));
    part.first_cell = 100;
    let kept = KeptChunk::keep(chunk.view().rows(100..200));
    assert_eq!(kept, KeptChunk::keep(part.view()));
    assert_eq!(kept.with_first_cell(4).first_cell(), 4);
}

#[test]
fn two_bytes_an_entry() {
    let chunk = simulated(300);
    let kept = KeptChunk::keep(chunk.view());
    let least = 2 * kept.n_entries() + 4 * kept.n_cells();
    assert!((least..least + least / 20).contains(&kept.bytes()), "{} bytes, at least {least}", kept.bytes());
}

#[test]
fn what_has_no_narrow_form() {
    let good = vec![(3, 1.0), (4, 2.0)];
    let bad_rows: [&[(u32, f64)]; 8] = [
        &[(4, 1.0), (3, 1.0)],
        &[(4, 1.0), (4, 1.0)],
        &[(4, 1.5)],
        &[(4, 16_777_216.0)],
        &[(4, -1.0)],
        &[(4, -0.0)],
        &[(4, f64::NAN)],
        &[(4, f64::INFINITY)],
    ];
    for row in bad_rows {
        let chunk = chunk_of(9, 10, &[good.clone(), row.to_vec(), good.clone()]);
        let kept = KeptChunk::keep(chunk.view());
        let KeptChunk::Rows(rows) = &kept else { panic!("{row:?} has no narrow form") };
        assert_eq!(format!("{rows:?}"), format!("{chunk:?}"));
        let mut bytes = Vec::new();
        kept.write_to(&mut bytes);
        assert_eq!(format!("{:?}", KeptChunk::read_from(&bytes).expect("what was written")), format!("{kept:?}"));
    }
    let mut wide = chunk_of(9, 10, &[good]);
    wide.values.widen();
    let kept = KeptChunk::keep(wide.view());
    assert_eq!(kept, KeptChunk::Rows(wide.clone()));
    let mut bytes = Vec::new();
    kept.write_to(&mut bytes);
    assert_eq!(KeptChunk::read_from(&bytes).expect("what was written"), kept);
    let mut scratch = CsrBuffer::new(1, ValueKind::F32);
    assert_eq!(kept.view(&mut scratch).values(), wide.values.as_ref());
    let mut scalar = CsrBuffer::new(10, ValueKind::F32);
    let genes = GeneMap::new(10, &[4]);
    select_kept_into(&kept, &genes, &mut scalar);
    assert_eq!(scalar.values, Values::F64(vec![2.0]));
}
