//! Damaged files: an error or, where no checksum guards the bytes, other values; never a panic. A file that was cut is always
//! an error.

mod common;

use std::path::{Path, PathBuf};

use zheng17_io::{FeatureTypes, OpenOptions, open};

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut paths: Vec<PathBuf> = ["layouts", "odd"]
        .iter()
        .flat_map(|name| std::fs::read_dir(folder.join(name)).expect("fixtures"))
        .map(|entry| entry.expect("a fixture").path())
        .filter(|path| path.extension().is_some_and(|end| end == "h5ad" || end == "h5"))
        .collect();
    paths.sort();
    assert!(paths.len() > 60, "the fixtures are there");
    paths
}

/// Opens and reads everything, ignoring what comes out.
fn try_all(path: &Path) {
    for feature_types in [FeatureTypes::GeneExpression, FeatureTypes::All] {
        let options = OpenOptions { feature_types, ..OpenOptions::default() };
        if let Ok((dataset, _)) = common::open_and_read(path, &options) {
            for layer in &dataset.choices.layers {
                let _ =
                    common::open_and_read(path, &OpenOptions { layer: Some(layer.clone()), ..OpenOptions::default() });
            }
        }
    }
}

/// A small generator of numbers; the same ones each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end.max(1) as u64) as usize
    }
}

#[test]
fn damage_never_panics() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let damaged = folder.path().join("damaged.h5ad");
    let mut numbers = Numbers(17);
    for path in fixtures() {
        let whole = std::fs::read(&path).expect("a fixture");
        for round in 0..24 {
            let mut bytes = whole.clone();
            match round % 4 {
                // Headers come first, so damage is aimed at them half of the time.
                0 | 1 => {
                    let end = if round % 4 == 0 { bytes.len().min(4096) } else { bytes.len() };
                    for _ in 0..=numbers.below(4) {
                        bytes[numbers.below(end)] = numbers.below(256) as u8;
                    }
                }
                2 => {
                    let start = numbers.below(bytes.len());
                    let end = (start + 1 + numbers.below(64)).min(bytes.len());
                    bytes[start..end].fill([0, 0xff][numbers.below(2)]);
                }
                _ => {
                    let at = numbers.below(bytes.len().saturating_sub(8));
                    let value = [0, 1, 1 << 20, 1 << 31, 1 << 40, u64::MAX][numbers.below(6)];
                    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
            }
            std::fs::write(&damaged, bytes).expect("a damaged file");
            try_all(&damaged);
        }
    }
}

#[test]
fn cut_files_are_refused_with_their_length() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cut = folder.path().join("cut.h5ad");
    for path in fixtures() {
        let whole = std::fs::read(&path).expect("a fixture");
        let n = whole.len();
        let lengths = [n - 1, n * 9 / 10, n * 6 / 10, n / 2, 1024, 100, 9];
        for length in lengths.into_iter().filter(|&length| length < n) {
            std::fs::write(&cut, &whole[..length]).expect("a cut file");
            let Err(error) = open(&cut, &OpenOptions::default()) else {
                panic!("{} cut to {length} bytes was opened", path.display());
            };
            if length > 1024 {
                let expected = format!("{}: truncated: {length} of {} bytes", cut.display(), whole.len());
                assert_eq!(error.to_string(), expected, "{}", path.display());
            }
        }
    }
}

#[test]
fn a_damaged_chunk_is_named() {
    let name = "tests/fixtures/layouts/store_gzip9shuffle_csr.h5ad";
    let mut bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("a fixture");
    // The first stream that gzip started at level 9; the file holds several.
    let start = bytes.windows(2).position(|pair| pair == [0x78, 0xda]).expect("a compressed chunk");
    bytes[start + 5..start + 25].fill(0xff);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("damaged.h5ad");
    std::fs::write(&path, bytes).expect("a damaged file");
    let Err(error) = common::open_and_read(&path, &OpenOptions::default()) else { panic!("damage went unnoticed") };
    let text = error.to_string();
    assert!(
        text.contains(": X/") && text.contains(": chunk ") && text.contains(" is damaged: bad gzip data"),
        "{text}"
    );
    let (_, cause) = text.split_once("bad gzip data: ").expect("a cause");
    assert!(!cause.contains(": "), "the cause stands there once: {text}");
}

#[test]
fn counts_under_checksums_never_change_silently() {
    // Metadata of this file and the chunks of its matrix have checksums; the names of cells and genes have none. Files of the
    // older layout, and single bits of the marks for filters that were left out, are not guarded so well.
    let name = "tests/fixtures/layouts/chunks_latest_4_fixed_all.h5ad";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let whole = std::fs::read(&path).expect("a fixture");
    let (_, expected) = common::open_and_read(&path, &OpenOptions::default()).expect("a sound file");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let damaged = folder.path().join("damaged.h5ad");
    let mut n_errors = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&damaged, bytes).expect("a damaged file");
        match common::open_and_read(&damaged, &OpenOptions::default()) {
            Ok((_, found)) => assert!(found == expected, "byte {at} changed the counts"),
            Err(_) => n_errors += 1,
        }
    }
    assert!(n_errors > 2000, "only {n_errors} of {} damaged bytes were noticed", whole.len());
}
