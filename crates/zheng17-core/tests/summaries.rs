//! Summaries merge to the same bits however cells are divided and in whatever order, and their bytes can be trusted.

use std::sync::Arc;

use proptest::prelude::*;
use zheng17_core::exact::{Arithmetic, CountSummary, MomentPlan, MomentSummary};
use zheng17_core::matrix::{CsrBuffer, CsrView, Values};

/// Cells × genes, with the cells divided into parts and the parts in some order.
#[derive(Debug, Clone)]
struct Divided {
    matrix: CsrBuffer,
    /// Where each part begins and ends, in the order in which they are merged.
    parts: Vec<(usize, usize)>,
}

impl Divided {
    fn chunks(&self) -> impl Iterator<Item = CsrView<'_>> {
        self.parts.iter().map(|&(from, to)| self.matrix.view().rows(from..to))
    }
}

/// Matrices of counts or fractions, in either number type, divided at random.
fn divided() -> impl Strategy<Value = Divided> {
    let value = prop_oneof![
        (1_u32..50).prop_map(f64::from),
        (1_u64..1 << 40).prop_map(|x| x as f64),
        (0.001_f64..9.0),
        Just(2_f64.powi(-45)),
    ];
    let row = proptest::collection::btree_map(0_u32..12, value, 0..8);
    let matrix = (proptest::collection::vec(row, 1..40), any::<bool>()).prop_map(|(rows, single)| {
        let mut matrix =
            CsrBuffer { first_cell: 0, n_genes: 12, indptr: vec![0], indices: vec![], values: Values::F64(vec![]) };
        for row in rows {
            // Backwards, so that rows are not sorted.
            for (gene, value) in row.into_iter().rev() {
                matrix.indices.push(gene);
                matrix.values.push(if single { f64::from(value as f32) } else { value });
            }
            matrix.end_row();
        }
        if let (true, Values::F64(values)) = (single, &matrix.values) {
            matrix.values = Values::F32(values.iter().map(|&x| x as f32).collect());
        }
        matrix
    });
    matrix
        .prop_flat_map(|matrix| {
            let cuts = proptest::collection::btree_set(0..=matrix.n_cells(), 0..6);
            (Just(matrix), cuts)
        })
        .prop_flat_map(|(matrix, mut cuts)| {
            cuts.insert(0);
            cuts.insert(matrix.n_cells());
            let cuts: Vec<usize> = cuts.into_iter().collect();
            let parts: Vec<(usize, usize)> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
            (Just(matrix), Just(parts).prop_shuffle())
        })
        .prop_map(|(matrix, parts)| Divided { matrix, parts })
}

fn excluded(flags: Option<[bool; 12]>) -> Option<Arc<[bool]>> {
    flags.map(Into::into)
}

fn plan(kind: u8, n_cells: usize) -> MomentPlan {
    let arithmetic = match kind {
        0 => Arithmetic::Share,
        1 => Arithmetic::Log,
        2 => Arithmetic::Float32 { log: false, exponent: 50 },
        _ => Arithmetic::Float32 { log: true, exponent: 6 },
    };
    let scale = |cell: usize| match arithmetic {
        Arithmetic::Share => 2_f64.powi(52) / (cell as f64 + 1.5e12),
        Arithmetic::Log => 0.01 * cell as f64,
        Arithmetic::Float32 { .. } => f64::from(0.25_f32 + cell as f32),
    };
    MomentPlan { cell_scale: (0..n_cells).map(scale).collect(), arithmetic }
}

proptest! {
    #[test]
    fn counts_merge_to_the_same_bits(input in divided(), flags: Option<[bool; 12]>) {
        let mut whole = CountSummary::new(12, excluded(flags));
        whole.fold(input.matrix.view()).expect("a summary");
        let mut merged = CountSummary::new(12, excluded(flags));
        for chunk in input.chunks() {
            let mut part = CountSummary::new(12, excluded(flags));
            part.fold(chunk).expect("a summary");
            merged.merge(part).expect("other cells of the same genes");
        }
        prop_assert_eq!(merged.to_bytes(), whole.to_bytes());
        prop_assert_eq!(CountSummary::from_bytes(&whole.to_bytes()).expect("its own bytes"), whole);
    }

    #[test]
    fn moments_merge_to_the_same_bits(input in divided(), kind in 0_u8..4) {
        let plan = plan(kind, input.matrix.n_cells());
        let mut whole = MomentSummary::new(12);
        whole.fold(input.matrix.view(), &plan);
        let mut merged = MomentSummary::new(12);
        for chunk in input.chunks() {
            let mut part = MomentSummary::new(12);
            part.fold(chunk, &plan);
            merged.merge(&part).expect("the same genes");
        }
        prop_assert_eq!(merged.to_bytes(), whole.to_bytes());
        prop_assert_eq!(MomentSummary::from_bytes(&whole.to_bytes()).expect("its own bytes"), whole);
    }

    #[test]
    fn a_cell_is_never_summarised_twice(input in divided(), part: proptest::sample::Index) {
        let (from, to) = input.parts[part.index(input.parts.len())];
        let mut whole = CountSummary::new(12, None);
        whole.fold(input.matrix.view()).expect("a summary");
        let mut again = CountSummary::new(12, None);
        again.fold(input.matrix.view().rows(from..to)).expect("a summary");
        prop_assert!(whole.merge(again).is_err());
    }

    /// Bytes that were changed or cut are refused, or are a summary that can be written, read and merged.
    #[test]
    fn changed_bytes_never_panic(
        input in divided(),
        flags: Option<[bool; 12]>,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
        more in proptest::collection::vec(any::<u8>(), 0..3),
    ) {
        let change = |mut bytes: Vec<u8>| {
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            if let Some(cut) = &cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            bytes.extend(&more);
            bytes
        };
        let mut counts = CountSummary::new(12, excluded(flags));
        counts.fold(input.matrix.view()).expect("a summary");
        if let Ok(changed) = CountSummary::from_bytes(&change(counts.to_bytes())) {
            prop_assert_eq!(&CountSummary::from_bytes(&changed.to_bytes()).expect("its own bytes"), &changed);
            // Merging may be refused; it must not overflow.
            let _ = counts.merge(changed);
        }
        let mut moments = MomentSummary::new(12);
        moments.fold(input.matrix.view(), &plan(0, input.matrix.n_cells()));
        if let Ok(changed) = MomentSummary::from_bytes(&change(moments.to_bytes())) {
            prop_assert_eq!(&MomentSummary::from_bytes(&changed.to_bytes()).expect("its own bytes"), &changed);
            let _ = moments.merge(&changed);
        }
    }
}

#[test]
fn every_cut_is_refused() {
    let matrix = CsrBuffer {
        first_cell: 0,
        n_genes: 2,
        indptr: vec![0, 1, 2],
        indices: vec![0, 1],
        values: Values::F32(vec![1.0, 2.5]),
    };
    let mut counts = CountSummary::new(2, Some([true, false].into()));
    counts.fold(matrix.view()).expect("a summary");
    let mut moments = MomentSummary::new(2);
    moments.fold(matrix.view(), &plan(1, 2));
    for cut in 0..counts.to_bytes().len() {
        assert!(CountSummary::from_bytes(&counts.to_bytes()[..cut]).is_err(), "counts cut at {cut}");
    }
    for cut in 0..moments.to_bytes().len() {
        assert!(MomentSummary::from_bytes(&moments.to_bytes()[..cut]).is_err(), "moments cut at {cut}");
    }
    assert!(MomentSummary::from_bytes(&counts.to_bytes()).is_err(), "a summary of the other kind");
}

#[test]
fn sums_that_could_overflow_are_refused() {
    let matrix =
        CsrBuffer { first_cell: 0, n_genes: 1, indptr: vec![0, 1], indices: vec![0], values: Values::F32(vec![1.0]) };
    let mut moments = MomentSummary::new(1);
    moments.fold(matrix.view(), &plan(0, 1));
    let mut bytes = moments.to_bytes();
    let last = bytes.len() - 1;
    bytes[last] = 0xff;
    assert!(MomentSummary::from_bytes(&bytes).is_err(), "Σq² of 2^127 from one cell");

    let mut counts = CountSummary::new(1, None);
    let far = matrix.view().with_first_cell(zheng17_core::exact::MOST_CELLS);
    assert!(counts.fold(far).is_err(), "a cell beyond the most that the sums have room for");
}

#[test]
fn a_removed_gene_larger_than_its_cell_does_not_overflow() {
    // Excluded genes are in the matrix that scanpy's arithmetic sums, and may be far above the total of the others.
    let matrix = CsrBuffer {
        first_cell: 0,
        n_genes: 1,
        indptr: vec![0, 1, 2],
        indices: vec![0, 0],
        values: Values::F64(vec![0.4, 0.4]),
    };
    let plan =
        MomentPlan { cell_scale: vec![1e-12; 2].into(), arithmetic: Arithmetic::Float32 { log: false, exponent: 1 } };
    let mut moments = MomentSummary::new(1);
    moments.fold(matrix.view(), &plan);
    assert_eq!(moments.genes()[0].sum, 2 << 52);
}
