//! Any matrix comes back as it was written, however it was written; any damage is an error or a matrix, never a panic.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use zheng17_core::matrix::{GeneMap, ValueKind};
use zheng17_core::{CsrBuffer, Values};

use super::parse::{MtxFile, Orientation};

#[derive(Debug, Clone)]
struct Written {
    n_cells: usize,
    n_genes: usize,
    /// Cell, gene and value of each entry, in file order. Duplicates are entries of their own.
    entries: Vec<(usize, usize, f64)>,
    line_end: &'static str,
    blank: &'static str,
    gzip: bool,
}

fn written() -> impl Strategy<Value = Written> {
    (1_usize..12, 1_usize..12).prop_flat_map(|(n_cells, n_genes)| {
        let value = prop_oneof![
            (1_u32..500).prop_map(f64::from),
            (1_u64..1 << 53).prop_map(|value| value as f64),
            any::<f32>().prop_filter("finite", |value| value.is_finite()).prop_map(f64::from),
            any::<f64>().prop_filter("finite", |value| value.is_finite()),
        ];
        let entry = (0..n_cells, 0..n_genes, value);
        let style = (prop::sample::select(&["\n", "\r\n", "\n\n", " \n"]), prop::sample::select(&[" ", "\t", "   "]));
        let sorted = prop::sample::select(&[true, false]);
        (prop::collection::vec(entry, 0..60), style, sorted, any::<bool>()).prop_map(
            move |(mut entries, (line_end, blank), sorted, gzip)| {
                if sorted {
                    entries.sort_by_key(|entry| entry.0);
                }
                Written { n_cells, n_genes, entries, line_end, blank, gzip }
            },
        )
    })
}

impl Written {
    fn text(&self) -> String {
        let Self { line_end, blank, .. } = self;
        let mut text = format!("%%MatrixMarket matrix coordinate real general{line_end}% a comment{line_end}");
        let sizes = [self.n_genes, self.n_cells, self.entries.len()].map(|size| size.to_string());
        text += &sizes.join(blank);
        for (cell, gene, value) in &self.entries {
            write!(text, "{line_end}{}{blank}{}{blank}{value:?}", gene + 1, cell + 1).expect("writing to a string");
        }
        text
    }

    fn bytes(&self) -> Vec<u8> {
        if !self.gzip {
            return self.text().into_bytes();
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(self.text().as_bytes()).expect("writing to memory");
        encoder.finish().expect("writing to memory")
    }

    /// Entries by cell, otherwise in file order.
    fn matrix(&self) -> CsrBuffer {
        let mut matrix = CsrBuffer::new(self.n_genes, ValueKind::F64);
        for cell in 0..self.n_cells {
            for (_, gene, value) in self.entries.iter().filter(|entry| entry.0 == cell) {
                matrix.indices.push(*gene as u32);
                matrix.values.push(*value);
            }
            matrix.end_row();
        }
        matrix
    }
}

fn read(bytes: &[u8]) -> zheng17_core::Result<CsrBuffer> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("writing a file");
    let file = MtxFile::open(file.path())?;
    let n_genes = file.header.shape(Orientation::GenesByCells)?.n_genes;
    let all: Vec<usize> = (0..n_genes).collect();
    file.read(Orientation::GenesByCells, &GeneMap::new(n_genes, &all))
}

proptest! {
    #[test]
    fn what_is_written_comes_back(written in written()) {
        let mut found = read(&written.bytes()).expect("a sound file");
        let narrow = matches!(found.values, Values::F32(_));
        prop_assert_eq!(narrow, written.entries.iter().all(|entry| f64::from(entry.2 as f32) == entry.2));
        found.values.widen();
        prop_assert_eq!(found, written.matrix());
    }

    #[test]
    fn damage_never_panics(written in written(), at in any::<prop::sample::Index>(), byte: u8, cut: bool) {
        let mut bytes = written.bytes();
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] = byte;
        }
        if let Ok(found) = read(&bytes) {
            prop_assert_eq!(found.indptr.len(), found.n_cells() + 1);
            prop_assert!(found.indices.iter().all(|&gene| (gene as usize) < found.n_genes));
        }
    }
}
