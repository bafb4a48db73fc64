//! What is measured: launches by kernel, memory, copies. Never a time, as the software driver has no clock.

use std::sync::Arc;

use zheng17_core::{Context, SparseBackend as _};
use zheng17_cuda::Cuda;
use zheng17_cuda::measure::{Profile, copies, devices};

use crate::driver::{Setup, driver};
use crate::run::{context, counts, results, source};

#[test]
fn a_profile_counts_every_launch_and_has_no_time() {
    let Some(driver) = driver("a_profile_counts_every_launch_and_has_no_time") else { return };
    driver.set_up(Setup { n_devices: 2, ..Setup::default() });
    let input = counts(400, 60);
    let times = Arc::new(Profile::default());
    let timed = results(&Cuda::with_profile(Arc::clone(&times)), &input, &context(None, 100)).expect("results");
    let profile = times.take();
    let launches: u64 = profile.iter().map(|kernel| kernel.launches).sum();
    assert_eq!(launches, driver.counts(0).launches + driver.counts(1).launches);
    assert!(profile.iter().all(|kernel| kernel.milliseconds.is_none() && kernel.grid_rows >= kernel.launches));
    assert!(profile.iter().any(|kernel| kernel.kernel == "fold_counts_narrow"));
    let plain = results(&Cuda::default(), &input, &context(None, 100)).expect("results");
    assert!(plain == timed, "times change no result");
    assert_eq!(times.take(), [], "each launch is told once");
}

#[test]
fn the_memory_that_was_used_is_known() {
    let Some(driver) = driver("the_memory_that_was_used_is_known") else { return };
    driver.set_up(Setup { n_devices: 2, ..Setup::default() });
    let backend = Cuda::default();
    assert_eq!(backend.memory_use(), []);
    results(&backend, &counts(400, 60), &context(Some(500_000), 100)).expect("results");
    for (device, found) in backend.memory_use().into_iter().enumerate() {
        assert_eq!((found.limit, found.peak), (500_000, driver.counts(device as u32).peak), "device {device}");
    }
}

#[test]
fn copies_move_what_they_say() {
    let Some(driver) = driver("copies_move_what_they_say") else { return };
    driver.set_up(Setup::default());
    let found = copies(0, 10_000).expect("copies");
    assert_eq!(found.clone().map(|copy| copy.bytes), [10_000, 10_000, 20_000]);
    assert!(found.iter().all(|copy| copy.milliseconds.is_none()), "no emulated time");
    let counts = driver.counts(0);
    assert_eq!((counts.to_device, counts.to_host, counts.within), (60_000, 60_000, 60_000), "one and five times each");
    assert_eq!((counts.used, counts.pinned), (0, 0));
    let facts = devices().expect("devices");
    assert_eq!((facts.len(), facts[0].is_emulated(), facts[0].compute_capability), (1, true, (7, 5)));
}

#[test]
fn one_device_can_be_two() {
    let Some(driver) = driver("one_device_can_be_two") else { return };
    driver.set_up(Setup::default());
    let backend = Cuda::on_devices(vec![0, 0]);
    let matrix = backend.open(source(&counts(100, 30)), &Context::default()).expect("a matrix");
    assert_eq!(backend.memory_use().len(), 2);
    assert_eq!(backend.shape(&matrix).n_cells, 100);
}
