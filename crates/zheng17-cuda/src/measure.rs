//! Measurements, for whoever asks for them: which devices there are, how long each kernel took by the driver's events, how much
//! memory was used, and how fast copies are. Knows no matrices and no recipe.
//!
//! The software driver of the tests has no clock. What it would have timed is `None`, so an emulated time can't be mistaken for a
//! measured one.
#![allow(unsafe_code, reason = "memory without contents, for copies")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, sys};

use crate::Cuda;
use crate::device::{Device, probe};
use crate::error::Fault;

/// What the software driver calls its devices.
const EMULATION: &str = "not a GPU";

/// The number by which a driver says that it can't do something: only one without a clock says so of a time.
const NOT_SUPPORTED: u32 = 801;

/// Times of which the median is taken, after one that is not counted.
const REPETITIONS: usize = 5;

/// A device of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// What the driver calls it.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory that nobody uses.
    pub free: u64,
    /// Its compute capability, major and minor.
    pub compute_capability: (i32, i32),
    /// How many multiprocessors it has.
    pub multiprocessors: i32,
}

impl DeviceFacts {
    /// Whether it is the software driver's, which has no times.
    pub fn is_emulated(&self) -> bool {
        self.name.contains(EMULATION)
    }
}

/// The devices of this machine.
///
/// # Errors
/// Those of [`probe`], and of the driver.
pub fn devices() -> Result<Vec<DeviceFacts>, Fault> {
    (0..probe()?)
        .map(|ordinal| {
            let context = CudaContext::new(ordinal)?;
            let (free, total) = context.mem_get_info()?;
            Ok(DeviceFacts {
                name: context.name()?,
                memory: total as u64,
                free: free as u64,
                compute_capability: context.compute_capability()?,
                multiprocessors: context
                    .attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            })
        })
        .collect()
}

/// The newest version of CUDA that the driver has, such as 12.0.
///
/// # Errors
/// Those of [`probe`], and of the driver.
pub fn driver_version() -> Result<String, Fault> {
    probe()?;
    let mut version = 0;
    // SAFETY: the driver is there, and it writes a number.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result()?;
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}

/// The launches of one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// Its name.
    pub kernel: String,
    /// How often it was launched.
    pub launches: u64,
    /// The heights of the grids of all launches, in blocks: groups of rows for kernels that sum them.
    pub grid_rows: u64,
    /// How long all launches took; `None` where the driver has no clock.
    pub milliseconds: Option<f64>,
}

/// The launches of all kernels since somebody asked last.
#[derive(Debug, Default)]
pub struct Profile(Mutex<BTreeMap<String, KernelTime>>);

impl Profile {
    /// The launches since this was asked last, by kernel.
    pub fn take(&self) -> Vec<KernelTime> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_values().collect()
    }

    /// Adds a launch between two events. Waits for its end, so that no other launch of its device overlaps with it.
    pub(crate) fn add(&self, kernel: &str, grid_rows: u32, (begin, end): &Events) -> Result<(), Fault> {
        let time = elapsed(begin, end)?;
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = times.entry(kernel.to_owned()).or_insert_with(|| KernelTime {
            kernel: kernel.to_owned(),
            launches: 0,
            grid_rows: 0,
            milliseconds: Some(0.0),
        });
        entry.launches += 1;
        entry.grid_rows += u64::from(grid_rows);
        entry.milliseconds = entry.milliseconds.zip(time).map(|(sum, time)| sum + time);
        Ok(())
    }
}

/// The events before and after a launch.
pub(crate) type Events = (CudaEvent, CudaEvent);

/// Events with times.
pub(crate) const TIMED: sys::CUevent_flags = sys::CUevent_flags::CU_EVENT_DEFAULT;

/// Milliseconds from one event to the other.
fn elapsed(begin: &CudaEvent, end: &CudaEvent) -> Result<Option<f64>, Fault> {
    match begin.elapsed_ms(end) {
        Ok(time) => Ok(Some(f64::from(time))),
        Err(DriverError(code)) if code as u32 == NOT_SUPPORTED => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The memory of a device that a backend used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that it might use.
    pub limit: u64,
    /// The most bytes that it used at a time.
    pub peak: u64,
}

impl Cuda {
    /// A backend that takes the time of each launch, and waits for each, so it is slower as a whole.
    pub fn with_profile(profile: Arc<Profile>) -> Self {
        Self { profile: Some(profile), ..Self::default() }
    }

    /// The memory of each device that was opened last.
    pub fn memory_use(&self) -> Vec<MemoryUse> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.iter().flat_map(|(_, devices)| devices.iter().map(Device::memory_use)).collect()
    }
}

/// How fast a device copies.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyTime {
    /// From where to where.
    pub what: &'static str,
    /// Bytes that move in a copy; within a device, those that are read and those that are written.
    pub bytes: u64,
    /// The median of several copies; `None` where the driver has no clock.
    pub milliseconds: Option<f64>,
}

/// Copies `bytes` from pinned memory to a device, back, and within the device, each several times.
///
/// # Errors
/// Those of the driver.
pub fn copies(ordinal: usize, bytes: usize) -> Result<[CopyTime; 3], Fault> {
    probe()?;
    let context = CudaContext::new(ordinal)?;
    let stream = context.new_stream()?;
    // SAFETY: it is filled before it is read.
    let mut host = unsafe { context.alloc_pinned::<u8>(bytes) }?;
    host.as_mut_slice()?.fill(1);
    let mut first = stream.alloc_zeros::<u8>(bytes)?;
    let mut second = stream.alloc_zeros::<u8>(bytes)?;
    let n = bytes as u64;
    Ok([
        CopyTime {
            what: "pinned memory to device",
            bytes: n,
            milliseconds: median(&stream, &mut || stream.memcpy_htod(&host, &mut first))?,
        },
        CopyTime {
            what: "device to pinned memory",
            bytes: n,
            milliseconds: median(&stream, &mut || stream.memcpy_dtoh(&first, &mut host))?,
        },
        CopyTime {
            what: "within the device",
            bytes: 2 * n,
            milliseconds: median(&stream, &mut || stream.memcpy_dtod(&first, &mut second))?,
        },
    ])
}

/// The median time of something on a stream, after one that is not counted.
fn median(stream: &Arc<CudaStream>, work: &mut dyn FnMut() -> Result<(), DriverError>) -> Result<Option<f64>, Fault> {
    work()?;
    stream.synchronize()?;
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        let begin = stream.record_event(Some(TIMED))?;
        work()?;
        let end = stream.record_event(Some(TIMED))?;
        times.push(elapsed(&begin, &end)?);
    }
    let mut times: Vec<f64> = times.into_iter().flatten().collect();
    times.sort_by(f64::total_cmp);
    Ok(times.get(REPETITIONS / 2).copied())
}
