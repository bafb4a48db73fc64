//! The software driver: compiled once, opened before anybody looks for a CUDA driver, set up anew by each test.
#![allow(unsafe_code, reason = "calls of functions that emulator/driver.h declares")]
#![allow(dead_code, reason = "each test program uses a part")]

use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use libloading::Library;
use zheng17_test_support::skip;

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

/// The driver, for one test at a time.
pub(crate) struct Driver {
    library: Library,
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
        let path = compile(&[])?;
        // SAFETY: it does nothing when it is opened.
        let library = unsafe { Library::new(path) }.expect("a library that was just compiled");
        Some(Mutex::new(Driver { library }))
    });
    if driver.is_none() {
        skip(test, "needs g++ on Linux on x86-64");
    }
    driver.as_ref().map(|driver| driver.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The software driver compiled from the kernels in a folder, or ours.
pub(crate) fn compile(faults: &[(&str, &str, &str)]) -> Option<PathBuf> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return None;
    }
    Command::new("g++").arg("--version").output().ok().filter(|output| output.status.success())?;
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("software-driver");
    let newest = ["kernels", "emulator"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(package.join(folder)).expect("a folder of sources"))
        .filter_map(|entry| entry.ok()?.metadata().ok()?.modified().ok())
        .max();
    let library = target.join("libcuda.so");
    let made = |path: &Path| path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    if faults.is_empty() && newest.is_some_and(|newest| made(&library) > newest) {
        return Some(library);
    }
    // A folder of this run alone: another one may be compiling at the same time.
    std::fs::create_dir_all(&target).expect("a writable folder");
    let work = tempfile::tempdir_in(&target).expect("a writable folder");
    for folder in ["kernels", "emulator"] {
        for entry in std::fs::read_dir(package.join(folder)).expect("a folder of sources").flatten() {
            std::fs::copy(entry.path(), work.path().join(entry.file_name())).expect("a writable folder");
        }
    }
    for (file, from, to) in faults {
        let file = work.path().join(file);
        let text = std::fs::read_to_string(&file).expect("a source");
        assert!(text.contains(from), "{} no longer has the text {from}", file.display());
        std::fs::write(&file, text.replacen(from, to, 1)).expect("a writable folder");
    }
    let names = ["summaries.cu", "select.cu", "transform.cu", "reduce.cu", "output.cu", "runtime.cpp", "driver.cpp"];
    let mut objects = Vec::new();
    let mut running = Vec::new();
    for name in names {
        let object = work.path().join(name).with_extension("o");
        let mut command = Command::new("g++");
        command.args([
            "-std=c++17",
            "-O2",
            "-g",
            "-ffp-contract=off",
            "-fPIC",
            "-fvisibility=hidden",
            "-pthread",
            "-c",
        ]);
        command.arg("-I").arg(work.path()).args(["-x", "c++"]).arg(work.path().join(name)).arg("-o").arg(&object);
        running.push(command.spawn().expect("g++ was there before"));
        objects.push(object);
    }
    for mut command in running {
        assert!(command.wait().is_ok_and(|status| status.success()), "the software driver doesn't compile");
    }
    let linked = work.path().join("libcuda.so");
    let mut command = Command::new("g++");
    command
        .args(["-shared", "-pthread", "-Wl,-soname,libcuda.so", "-Wl,-z,defs"])
        .args(&objects)
        .arg("-o")
        .arg(&linked);
    assert!(command.status().is_ok_and(|status| status.success()), "the software driver doesn't link");
    let library = if faults.is_empty() { library } else { target.join(format!("faulty-{}.so", std::process::id())) };
    std::fs::rename(&linked, &library).expect("a writable folder");
    Some(library)
}
