//! Bytes: what crosses to the devices and back, exactly, and which memory is never asked for.

use std::path::Path;

use zheng17_core::SparseBackend as _;
use zheng17_core::exact::{Arithmetic, MomentPlan};
use zheng17_cuda::Cuda;

use crate::driver::{Setup, driver};
use crate::run::{context, counts, source};

/// Bytes of a chunk in the narrow form, from the README of the kernels: each array padded to eight bytes.
fn narrow_bytes(rows: zheng17_core::CsrView<'_>) -> u64 {
    let padded = |bytes: usize| bytes.next_multiple_of(8) as u64;
    let large = (0..rows.n_entries()).filter(|&at| rows.values().get(at) >= 255.0).count();
    2 * padded(8 * (rows.n_cells() + 1))
        + 2 * padded(4 * large)
        + padded(rows.n_entries())
        + padded(2 * rows.n_entries())
}

#[test]
fn each_entry_crosses_once_if_it_can_stay_and_once_a_pass_if_not() {
    let Some(driver) = driver("each_entry_crosses_once_if_it_can_stay_and_once_a_pass_if_not") else { return };
    let (n_cells, n_genes, step) = (2560, 90, 8);
    let input = counts(n_cells, n_genes);
    for (n_devices, memory) in [(1, 1 << 20), (1, 120_000), (2, 72_000), (4, 48_000), (8, 1 << 20)] {
        driver.set_up(Setup { n_devices, ..Setup::default() });
        let ctx = context(Some(memory), step);
        let backend = Cuda::default();
        let matrix = backend.open(source(&input), &ctx).expect("a matrix");
        // The chunks of each device, dealt in turn, and what of them stays: as long as half of its memory holds it.
        let share = n_cells / n_devices as usize;
        let stride = step * n_devices as usize;
        let mut waiting = vec![0; n_devices as usize];
        for device in 0..n_devices {
            let (mut staying, mut all) = (0, 0);
            for start in (device as usize * step..n_cells).step_by(stride) {
                let bytes = narrow_bytes(input.view().rows(start..start + step));
                all += bytes;
                if staying + bytes <= memory / 2 {
                    staying += bytes;
                } else {
                    waiting[device as usize] += bytes;
                }
            }
            let found = driver.counts(device);
            assert_eq!((found.to_device, found.used), (staying, staying), "device {device} of {n_devices}");
            assert_eq!(staying + waiting[device as usize], all);
            assert_eq!(found.to_host, 0, "nothing comes back");
        }
        assert_eq!(memory < 1 << 20, waiting.iter().all(|&bytes| bytes > 0), "some cases stream, some don't");
        driver.reset_counts();
        backend.count_summary(&matrix, None, &ctx).expect("sums");
        for device in 0..n_devices {
            let found = driver.counts(device);
            assert_eq!(found.to_device, waiting[device as usize], "what waits crosses once");
            // A total for each cell, three sums of 16 bytes for each gene, two facts.
            assert_eq!(found.to_host, (8 * share + 3 * 16 * n_genes + 16) as u64, "sums leave, and nothing else");
            assert!(found.peak <= memory && found.between == 0 && found.within == 0, "device {device}");
        }
        driver.reset_counts();
        let plan = MomentPlan { cell_scale: vec![0.5; n_cells].into(), arithmetic: Arithmetic::Log };
        backend.moment_summary(&matrix, &plan, &ctx).expect("sums");
        for device in 0..n_devices {
            let found = driver.counts(device);
            assert_eq!(found.to_device, waiting[device as usize] + 8 * share as u64, "and a scale for each cell");
            assert_eq!(found.to_host, (2 * 16 * n_genes) as u64);
        }
    }
}

#[test]
fn managed_memory_and_default_streams_are_never_named() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in std::fs::read_dir(folder).expect("the sources").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("a source");
        for word in ["malloc_managed", "UnifiedSlice", "alloc_unified", "default_stream()", "memcpy_peer"] {
            assert!(!text.contains(word), "{} has {word}", entry.path().display());
        }
    }
}
