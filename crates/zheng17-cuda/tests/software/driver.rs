//! The software driver: compiled once, opened before anybody looks for a CUDA driver, set up anew by each test.
#![allow(unsafe_code, reason = "calls of functions that emulator/driver.h declares")]
#![allow(dead_code, reason = "each test program uses a part")]

use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;
use zheng17_test_support::{skip, software_driver};

/// `DriverSetup` of driver.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) n_devices: u32,
    pub(crate) delay_microseconds: u32,
    pub(crate) memory: u64,
    pub(crate) seed: u64,
    pub(crate) driver_version: i32,
    pub(crate) newest_ptx: u32,
    pub(crate) failing_allocation: u64,
    pub(crate) compute_capability: u64,
    pub(crate) failing_launch: u64,
    pub(crate) start: i32,
    pub(crate) device_start: i32,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            n_devices: 1,
            delay_microseconds: 0,
            memory: 1 << 30,
            seed: 0,
            driver_version: 12_000,
            newest_ptx: 80,
            failing_allocation: 0,
            compute_capability: 75,
            failing_launch: 0,
            start: 0,
            device_start: 0,
        }
    }
}

/// `DriverCounts` of driver.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) used: u64,
    pub(crate) peak: u64,
    pub(crate) to_device: u64,
    pub(crate) to_host: u64,
    pub(crate) within: u64,
    pub(crate) between: u64,
    pub(crate) launches: u64,
    pub(crate) allocations: u64,
    pub(crate) pinned: u64,
    pub(crate) managed: u64,
}

/// cuBLAS in software.
pub(crate) struct Cublas(Library);

/// Faults of it, as cublas.cpp has them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CublasFault {
    None,
    NoHandle,
    OtherTriangle,
    OtherLeadingDimension,
}

impl Cublas {
    pub(crate) fn set_up(&self, fault: CublasFault) {
        // SAFETY: as cublas.cpp defines it.
        unsafe {
            self.0.get::<unsafe extern "C" fn(i32)>(b"software_cublas_setup").expect("in cublas.cpp")(fault as i32);
        }
    }

    /// How often products were asked for since then, and handles that are there.
    pub(crate) fn counts(&self) -> [i32; 2] {
        ["software_cublas_products", "software_cublas_handles"].map(|name| {
            // SAFETY: as cublas.cpp defines it.
            unsafe { self.0.get::<unsafe extern "C" fn() -> i32>(name.as_bytes()).expect("in cublas.cpp")() }
        })
    }
}

/// The driver, for one test at a time.
pub(crate) struct Driver {
    library: Library,
    path: PathBuf,
}

impl Driver {
    pub(crate) fn set_up(&self, setup: Setup) {
        // SAFETY: as driver.h declares it.
        unsafe {
            let set_up =
                self.library.get::<unsafe extern "C" fn(*const Setup)>(b"software_driver_setup").expect("in driver.h");
            set_up(&raw const setup);
        }
        self.reset_counts();
    }

    pub(crate) fn reset_counts(&self) {
        // SAFETY: as driver.h declares it.
        unsafe {
            self.library.get::<unsafe extern "C" fn()>(b"software_driver_reset_counts").expect("in driver.h")();
        }
    }

    pub(crate) fn counts(&self, device: u32) -> Counts {
        let mut counts = Counts::default();
        // SAFETY: as driver.h declares it.
        unsafe {
            let get = self
                .library
                .get::<unsafe extern "C" fn(u32, *mut Counts)>(b"software_driver_counts")
                .expect("in driver.h");
            get(device, &raw mut counts);
        }
        counts
    }

    /// cuBLAS in software, over this driver; whoever looks for cuBLAS finds it from now on.
    pub(crate) fn cublas(&self) -> Cublas {
        // SAFETY: it does nothing when it is opened.
        Cublas(unsafe { Library::new(self.path.with_file_name("libcublas.so")) }.expect("compiled with the driver"))
    }

    /// What the driver refused last.
    pub(crate) fn said(&self) -> String {
        // SAFETY: as driver.h declares it; the text stays until something else is refused.
        unsafe {
            let said = self
                .library
                .get::<unsafe extern "C" fn() -> *const c_char>(b"software_driver_said")
                .expect("in driver.h");
            CStr::from_ptr(said()).to_string_lossy().into_owned()
        }
    }
}

/// The driver, or `None` after recording that a test is skipped.
pub(crate) fn driver(test: &str) -> Option<MutexGuard<'static, Driver>> {
    static DRIVER: OnceLock<Option<Mutex<Driver>>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("software-driver");
        let path = software_driver(Path::new(env!("CARGO_MANIFEST_DIR")), &target)?;
        // SAFETY: it does nothing when it is opened.
        let library = unsafe { Library::new(&path) }.expect("a library that was just compiled");
        Some(Mutex::new(Driver { library, path }))
    });
    if driver.is_none() {
        skip(test, "needs g++ on Linux on x86-64");
    }
    driver.as_ref().map(|driver| driver.lock().unwrap_or_else(PoisonError::into_inner))
}
