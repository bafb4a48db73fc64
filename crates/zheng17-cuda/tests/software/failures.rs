//! What fails says so in one line, and leaves nothing behind.

use zheng17_core::{Context, ErrorKind, SparseBackend as _};
use zheng17_cuda::{Cuda, probe};

use crate::driver::{Setup, driver};
use crate::run::{context, counts, results, source};

#[test]
fn an_allocation_that_fails_is_a_clear_error_and_leaves_no_leak() {
    let Some(driver) = driver("an_allocation_that_fails_is_a_clear_error_and_leaves_no_leak") else { return };
    let input = counts(40, 12);
    for n_devices in [1, 2] {
        let mut n_failed = 0;
        for failing_allocation in 1.. {
            driver.set_up(Setup { n_devices, failing_allocation, ..Setup::default() });
            let outcome = results(&Cuda::default(), &input, &context(Some(20_000), 9));
            for device in 0..n_devices {
                let found = driver.counts(device);
                assert_eq!((found.used, found.pinned), (0, 0), "allocation {failing_allocation}, device {device}");
            }
            let Err(error) = outcome else { break };
            let said = error.to_string();
            assert!(said.contains("has no room for"), "allocation {failing_allocation}: {said}");
            assert_eq!((error.kind(), said.lines().count()), (ErrorKind::System, 1));
            n_failed += 1;
        }
        assert!(n_failed > 100, "only {n_failed} allocations");
    }
}

#[test]
fn a_limit_that_is_too_small_is_a_clear_error() {
    let Some(driver) = driver("a_limit_that_is_too_small_is_a_clear_error") else { return };
    driver.set_up(Setup::default());
    let error = results(&Cuda::default(), &counts(40, 12), &context(Some(2_000), 9)).expect_err("too little");
    let said = error.to_string();
    assert!(said.starts_with("device 0 (software emulation (not a GPU)) has no room for "), "{said}");
    assert_eq!(driver.counts(0).used, 0);
}

#[test]
fn devices_that_are_not_there_and_drivers_that_are_too_old() {
    let Some(driver) = driver("devices_that_are_not_there_and_drivers_that_are_too_old") else { return };
    let input = source(&counts(10, 5));
    let open = |ctx: &Context| Cuda::default().open(input.clone(), ctx).err().expect("a failure");
    driver.set_up(Setup { n_devices: 2, ..Setup::default() });
    assert_eq!(probe(), Ok(2));
    let error = open(&Context { devices: Some(vec![0, 3]), ..Context::default() });
    assert_eq!(error.to_string(), "there is no device 3; the driver has 2, counted from 0");
    assert_eq!(error.kind(), ErrorKind::Usage);

    let too_old = "the CUDA driver is too old; drivers from 525 (CUDA 12.0) on will do, and the CPU backends";
    for setup in [Setup { driver_version: 11_080, ..Setup::default() }, Setup { newest_ptx: 78, ..Setup::default() }] {
        driver.set_up(setup);
        let error = open(&Context::default());
        assert_eq!((error.to_string().as_str(), error.kind().exit_code()), (too_old, 2));
    }

    driver.set_up(Setup { compute_capability: 70, ..Setup::default() });
    let error = open(&Context::default());
    let said = "device 0 (software emulation (not a GPU)) has compute capability 7.0, but the kernels need 7.5; --devices chooses \
                others, and the CPU backends need none";
    assert_eq!((error.to_string().as_str(), error.kind().exit_code()), (said, 2));

    driver.set_up(Setup { n_devices: 0, ..Setup::default() });
    let error = open(&Context::default());
    assert_eq!(error.to_string(), "the CUDA driver finds no device; --backend auto computes on the CPU");
    assert_eq!(error.kind().exit_code(), 2);
}

#[test]
fn a_cancelled_run_ends_and_leaves_no_leak() {
    let Some(driver) = driver("a_cancelled_run_ends_and_leaves_no_leak") else { return };
    driver.set_up(Setup { n_devices: 2, ..Setup::default() });
    let ctx = context(None, 4);
    let backend = Cuda::default();
    let matrix = backend.open(source(&counts(40, 12)), &ctx).expect("a matrix");
    let mut n_seen = 0;
    let outcome = backend.visit(&matrix, &ctx, &mut |chunk| {
        n_seen += chunk.n_cells();
        ctx.cancel.cancel();
        Ok(())
    });
    assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::Cancelled));
    assert_eq!(n_seen, 4);
    assert!(backend.count_summary(&matrix, None, &ctx).is_err());
    drop((matrix, backend));
    assert_eq!((driver.counts(0).used, driver.counts(1).used), (0, 0));
}

#[test]
fn host_memory_for_what_devices_have_no_room_for_is_limited() {
    let Some(driver) = driver("host_memory_for_what_devices_have_no_room_for_is_limited") else { return };
    let input = counts(1200, 45);
    driver.set_up(Setup { memory: 50_000, ..Setup::default() });
    let ctx = Context { memory: Some(10_000_000), ..context(None, 30) };
    let backend = Cuda::default();
    backend.open(source(&input), &ctx).expect("memory for all that waits");
    let ctx = Context { memory: Some(5_000), ..ctx };
    let error = backend.open(source(&input), &ctx).err().expect("too little memory");
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("more than half of the 5 kB of memory that may be used"), "{error}");
}

#[test]
fn a_kernel_that_fails_is_one_line() {
    let Some(driver) = driver("a_kernel_that_fails_is_one_line") else { return };
    let input = counts(40, 12);
    for n_devices in [1, 2] {
        let mut n_failed = 0;
        for failing_launch in (1..).step_by(7) {
            driver.set_up(Setup { n_devices, failing_launch, ..Setup::default() });
            let outcome = results(&Cuda::default(), &input, &context(Some(20_000), 9));
            let Err(error) = outcome else { break };
            let said = error.to_string();
            assert_eq!(said, "the CUDA driver reports CUDA_ERROR_LAUNCH_FAILED (719); nvidia-smi may show more");
            assert_eq!(error.kind(), ErrorKind::System);
            n_failed += 1;
        }
        assert!(n_failed > 10, "only {n_failed} launches");
    }
}

#[test]
fn memory_that_the_driver_did_not_have_is_not_counted() {
    let Some(driver) = driver("memory_that_the_driver_did_not_have_is_not_counted") else { return };
    let (input, ctx) = (source(&counts(40, 12)), context(Some(20_000), 9));
    let staying = |backend: &Cuda| {
        let _matrix = backend.open(input.clone(), &ctx).expect("a matrix");
        driver.counts(0).used
    };
    let backend = Cuda::default();
    for _ in 0..100 {
        driver.set_up(Setup { failing_allocation: 1, ..Setup::default() });
        assert!(backend.open(input.clone(), &ctx).is_err(), "there was no memory");
    }
    driver.set_up(Setup::default());
    let as_much_as_ever = staying(&Cuda::default());
    assert_eq!(staying(&backend), as_much_as_ever);
}

#[test]
fn drivers_and_devices_that_do_not_start_are_named_with_what_to_do() {
    let Some(driver) = driver("drivers_and_devices_that_do_not_start_are_named_with_what_to_do") else { return };
    let input = source(&counts(10, 5));
    let said = |setup: Setup| {
        driver.set_up(setup);
        let error = Cuda::default().open(input.clone(), &Context::default()).err().expect("a failure");
        assert_eq!((error.kind(), error.kind().exit_code()), (ErrorKind::Unsupported, 2));
        error.to_string()
    };
    assert_eq!(
        said(Setup { start: 803, ..Setup::default() }),
        "the CUDA driver does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803); the driver was updated: restart the machine, \
         or load its new kernel module; --backend auto computes on the CPU"
    );
    let of_device = said(Setup { device_start: 46, ..Setup::default() });
    let expected =
        "device 0 does not start: CUDA_ERROR_DEVICE_UNAVAILABLE (46); another program may have it for itself;";
    assert!(of_device.starts_with(expected), "{of_device}");
}
