//! Devices: finding them, their memory within its limit, their streams and kernels. Knows no matrices.
//!
//! Streams are always our own: on the default stream cudarc doesn't wait for copies out of pinned memory. Memory is plain device
//! memory, never managed. Every allocation is counted against the device's limit before the driver is asked.
#![allow(unsafe_code, reason = "calls of the driver; each says why it is right")]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::{
    CudaContext, CudaModule, CudaSlice, CudaStream, DevicePtrMut as _, HostSlice, PinnedHostSlice, SyncOnDrop, sys,
};

use crate::bytes::{Plain, bytes_of, bytes_of_mut, numbers_of};
use crate::error::{Fault, OLDEST_DEVICE};
use crate::launch::Launch;
use crate::measure::{MemoryUse, Profile};
use crate::ptx::{self, PtxModule};

/// The version of the oldest driver, as the driver counts.
const OLDEST_DRIVER_VERSION: i32 = 12_000;

/// Of the memory that is free, this part is left to the driver and its kernels.
const LEFT_FREE: u64 = 20;

/// The driver's functions that this crate calls, itself or through cudarc, which panics where one is missing.
const FUNCTIONS: [&str; 42] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemAllocAsync",
    "cuDeviceGetDefaultMemPool",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventQuery",
    "cuEventElapsedTime",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
];

/// How many devices there are. Nothing else in this crate is called before this has said that there is a driver.
///
/// # Errors
/// [`Fault::NoDriver`], [`Fault::DriverTooOld`], [`Fault::NoDevice`].
pub fn probe() -> Result<usize, Fault> {
    // SAFETY: it opens a library by name, and closes none.
    if !unsafe { sys::is_culib_present() } {
        return Err(Fault::NoDriver);
    }
    let lacks = |name: &&&str| {
        // SAFETY: the library is there, and nothing is called.
        unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err()
    };
    if let Some(&lacks) = FUNCTIONS.iter().find(lacks) {
        return Err(Fault::BrokenDriver { lacks });
    }
    let mut version = 0;
    // SAFETY: the driver is there, every driver has this function, and it writes a number.
    let code = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    code.result().map_err(Fault::of_start)?;
    if version < OLDEST_DRIVER_VERSION {
        return Err(Fault::DriverTooOld);
    }
    match CudaContext::device_count().map_err(Fault::of_start)? {
        0 => Err(Fault::NoDevice),
        n => Ok(n as usize),
    }
}

/// What of a device's memory is in use, by this program.
struct Account {
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Account {
    fn take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.limit);
        let Ok(used) = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) else { return false };
        self.peak.fetch_max(used + bytes, Ordering::Relaxed);
        true
    }
}

/// One device.
pub(crate) struct Device {
    name: String,
    context: Arc<CudaContext>,
    modules: Vec<Arc<CudaModule>>,
    /// Two, so that copies to the device overlap with kernels.
    pub(crate) streams: [Arc<CudaStream>; 2],
    account: Arc<Account>,
    multiprocessors: u32,
    /// Pinned memory that nobody uses at the moment: to write for the device, and to read what comes from it.
    outbound: Mutex<Vec<PinnedHostSlice<u8>>>,
    inbound: Mutex<Vec<PinnedHostSlice<u8>>>,
    /// Where the times of launches go, if they are taken.
    profile: OnceLock<Arc<Profile>>,
}

/// Device memory.
pub(crate) struct DeviceBuffer {
    slice: CudaSlice<u8>,
    account: Arc<Account>,
    bytes: u64,
}

impl DeviceBuffer {
    /// What cudarc has of it.
    pub(crate) fn slice(&self) -> &CudaSlice<u8> {
        &self.slice
    }

    /// What cudarc has of it, to be written.
    pub(crate) fn slice_mut(&mut self) -> &mut CudaSlice<u8> {
        &mut self.slice
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Device {
    /// Opens a device and loads the kernels. `memory` is the most to use of it; all that is free if not given. A device that is
    /// opened `times` times gives each an equal part.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn open(ordinal: usize, times: u64, memory: Option<u64>) -> Result<Self, Fault> {
        let n_devices = probe()?;
        if ordinal >= n_devices {
            return Err(Fault::BadOrdinal { asked: ordinal, n_devices });
        }
        let context = CudaContext::new(ordinal).map_err(|error| Fault::of_device(ordinal, error))?;
        let name = format!("device {ordinal} ({})", context.name()?);
        let capability = context.compute_capability()?;
        if capability < OLDEST_DEVICE {
            return Err(Fault::DeviceTooOld { device: name, capability });
        }
        keep_freed_memory(&context)?;
        let load = |module: &PtxModule| context.load_module(cudarc::nvrtc::Ptx::from_src(module.text));
        let modules = ptx::MODULES.iter().map(load).collect::<Result<_, _>>()?;
        let streams = [context.new_stream()?, context.new_stream()?];
        let (free, _) = context.mem_get_info()?;
        let free = (free as u64 - free as u64 / LEFT_FREE) / times;
        let multiprocessors = context.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(Self {
            name,
            modules,
            streams,
            account: Arc::new(Account {
                limit: memory.unwrap_or(free).min(free),
                used: AtomicU64::new(0),
                peak: AtomicU64::new(0),
            }),
            multiprocessors: multiprocessors.max(1) as u32,
            outbound: Mutex::default(),
            inbound: Mutex::default(),
            profile: OnceLock::new(),
            context,
        })
    }

    /// From now on, takes the times of launches if there is somewhere to put them.
    pub(crate) fn take_times(&self, profile: Option<&Arc<Profile>>) {
        if let Some(profile) = profile {
            self.profile.get_or_init(|| Arc::clone(profile));
        }
    }

    /// What was used of the memory so far.
    pub(crate) fn memory_use(&self) -> MemoryUse {
        MemoryUse { limit: self.limit(), peak: self.account.peak.load(Ordering::Relaxed) }
    }

    /// Its number and name, for people.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Makes it the device that this thread calls.
    pub(crate) fn bind(&self) -> Result<(), Fault> {
        Ok(self.context.bind_to_thread()?)
    }

    /// The most memory to use.
    pub(crate) fn limit(&self) -> u64 {
        self.account.limit
    }

    /// Whether so many bytes of a source may stay on the device. Half of the memory is kept for what is made of it, and for work.
    pub(crate) fn may_keep(&self, bytes: u64) -> bool {
        self.account.used.load(Ordering::Relaxed) + bytes <= self.limit() / 2
    }

    /// Whether new cells may stay on the device, whose bytes are in use already. A third of the memory is kept for work.
    pub(crate) fn may_keep_new(&self) -> bool {
        self.account.used.load(Ordering::Relaxed) <= self.limit() / 3 * 2
    }

    /// Memory of at least one byte that nobody has written.
    pub(crate) fn alloc(&self, stream: &Arc<CudaStream>, bytes: usize) -> Result<DeviceBuffer, Fault> {
        let bytes = bytes.max(1);
        if !self.account.take(bytes as u64) {
            return Err(self.out_of_memory(bytes));
        }
        // SAFETY: whoever asks for memory writes it before a kernel reads it.
        match unsafe { stream.alloc::<u8>(bytes) } {
            Ok(mut slice) => {
                // The memory is there when the stream comes to it. Other streams wait for that as they wait for a write.
                drop(slice.device_ptr_mut(stream));
                Ok(DeviceBuffer { slice, account: Arc::clone(&self.account), bytes: bytes as u64 })
            }
            Err(error) => {
                self.account.used.fetch_sub(bytes as u64, Ordering::Relaxed);
                Err(if Fault::is_out_of_memory(error) { self.out_of_memory(bytes) } else { Fault::of(error) })
            }
        }
    }

    /// Memory of zeros.
    pub(crate) fn zeros(&self, stream: &Arc<CudaStream>, bytes: usize) -> Result<DeviceBuffer, Fault> {
        let mut buffer = self.alloc(stream, bytes)?;
        Self::clear(stream, &mut buffer)?;
        Ok(buffer)
    }

    /// Makes all bytes of a buffer zero.
    pub(crate) fn clear(stream: &Arc<CudaStream>, buffer: &mut DeviceBuffer) -> Result<(), Fault> {
        Ok(stream.memset_zeros(&mut buffer.slice)?)
    }

    /// Numbers on the device.
    pub(crate) fn upload<T: Plain>(&self, stream: &Arc<CudaStream>, numbers: &[T]) -> Result<DeviceBuffer, Fault> {
        let mut buffer = self.alloc(stream, size_of_val(numbers))?;
        if !numbers.is_empty() {
            stream.memcpy_htod(bytes_of(numbers), &mut buffer.slice)?;
        }
        Ok(buffer)
    }

    fn out_of_memory(&self, asked: usize) -> Fault {
        Fault::OutOfMemory {
            device: self.name.clone(),
            asked: asked as u64,
            used: self.account.used.load(Ordering::Relaxed),
            limit: self.limit(),
        }
    }

    /// Pinned host memory for copies to the device, of at least so many bytes. The processor writes it past its caches, which is
    /// fast, and would read it slowly.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<Pinned<'_>, Fault> {
        self.pinned_of(&self.outbound, bytes, sys::CU_MEMHOSTALLOC_WRITECOMBINED)
    }

    fn pinned_of<'d>(
        &self,
        home: &'d Mutex<Vec<PinnedHostSlice<u8>>>,
        bytes: usize,
        flags: u32,
    ) -> Result<Pinned<'d>, Fault> {
        let mut free = home.lock().unwrap_or_else(PoisonError::into_inner);
        let large_enough = free.iter().position(|memory| memory.len() >= bytes);
        // Memory that is too small makes room for what is large enough.
        let found = large_enough.or_else(|| free.len().checked_sub(1)).map(|at| free.swap_remove(at));
        drop(free);
        let memory = match found.filter(|memory| memory.len() >= bytes) {
            Some(memory) => memory,
            // SAFETY: it is written before it is read.
            None => unsafe { self.context.alloc_pinned_with_flags::<u8>(bytes.max(1), flags) }.map_err(|error| {
                if Fault::is_out_of_memory(error) {
                    Fault::NoPinnedMemory { asked: bytes as u64 }
                } else {
                    Fault::of(error)
                }
            })?,
        };
        Ok(Pinned { memory: Some(memory), home })
    }

    /// Copies the first numbers of a buffer to pinned memory on the host and waits for them.
    pub(crate) fn land<T: Plain>(
        &self,
        stream: &Arc<CudaStream>,
        buffer: &DeviceBuffer,
        n: usize,
    ) -> Result<Landed<'_, T>, Fault> {
        let bytes = n * size_of::<T>();
        let mut pinned = self.pinned_of(&self.inbound, bytes, 0)?;
        if let Some(memory) = pinned.memory.as_mut().filter(|_| bytes > 0) {
            stream.memcpy_dtoh(&buffer.slice.slice(..bytes), &mut BeginningMut(memory, bytes))?;
            stream.synchronize()?;
        }
        Ok(Landed { pinned, n, of: PhantomData })
    }

    /// Begins the launch of a kernel.
    pub(crate) fn launch<'a>(
        &self,
        stream: &'a CudaStream,
        module: PtxModule,
        kernel: &str,
    ) -> Result<Launch<'a>, Fault> {
        let at = ptx::MODULES.iter().position(|known| known.name == module.name).unwrap_or(0);
        let function = self.modules[at].load_function(kernel)?;
        let profile = self.profile.get().map(|profile| (Arc::clone(profile), kernel.to_owned()));
        Ok(Launch::new(stream, function, profile))
    }

    /// Blocks for work that comes in `n` pieces, of which a block does `each` at a time: enough to fill the device, and no more.
    pub(crate) fn blocks(&self, n: usize, each: usize) -> u32 {
        (n.div_ceil(each) as u32).clamp(1, self.multiprocessors.saturating_mul(8))
    }
}

/// Lets memory that is given back stay with this program, for what it asks for next. Else the driver gives it to the system each
/// time the host waits for a stream, and fetches it again.
fn keep_freed_memory(context: &CudaContext) -> Result<(), Fault> {
    if context.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
        return Ok(());
    }
    let mut pool = std::ptr::null_mut();
    let mut all = u64::MAX;
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: drivers from 11.2 on have these functions, and older ones were refused. The attribute is a number of 64 bits.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device()).result()?;
        sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut all).cast()).result()?;
    }
    Ok(())
}

impl Drop for Device {
    /// Gives the memory that the pool keeps to other programs and to other parts of this one. All buffers are gone by now.
    fn drop(&mut self) {
        let mut pool = std::ptr::null_mut();
        let mut none = 0_u64;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // What fails here is of no consequence: the driver frees the memory when the program ends.
        // SAFETY: the functions are there, as the device was opened with them.
        unsafe {
            let done = self.streams.iter().all(|stream| stream.synchronize().is_ok());
            if done && sys::cuDeviceGetDefaultMemPool(&raw mut pool, self.context.cu_device()).result().is_ok() {
                let _ = sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut none).cast()).result();
                let _ = sys::cuMemPoolTrimTo(pool, 0).result();
            }
        }
    }
}

/// Pinned memory, which goes back to where it came from.
pub(crate) struct Pinned<'d> {
    memory: Option<PinnedHostSlice<u8>>,
    home: &'d Mutex<Vec<PinnedHostSlice<u8>>>,
}

impl Pinned<'_> {
    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, PinnedHostSlice::len)
    }

    /// Copies words to a device through this memory: returns when they have been read, not when they have arrived.
    pub(crate) fn send(&mut self, stream: &Arc<CudaStream>, words: &[u64], to: &mut DeviceBuffer) -> Result<(), Fault> {
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let bytes = bytes_of(words);
        // Waits for the copy before.
        memory.as_mut_slice()?[..bytes.len()].copy_from_slice(bytes);
        Ok(stream.memcpy_htod(&Beginning(memory, bytes.len()), &mut to.slice)?)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.home.lock().unwrap_or_else(PoisonError::into_inner).extend(self.memory.take());
    }
}

/// The first bytes of pinned memory; cudarc copies all or nothing.
struct Beginning<'p>(&'p PinnedHostSlice<u8>, usize);

impl HostSlice<u8> for Beginning<'_> {
    fn len(&self) -> usize {
        self.1
    }

    // SAFETY: the memory's own events keep it until it has been read.
    unsafe fn stream_synced_slice<'a>(&'a self, stream: &'a CudaStream) -> (&'a [u8], SyncOnDrop<'a>) {
        // SAFETY: as above.
        let (all, sync) = unsafe { self.0.stream_synced_slice(stream) };
        (&all[..self.1], sync)
    }

    // SAFETY: it has no memory to write to.
    unsafe fn stream_synced_mut_slice<'a>(&'a mut self, _stream: &'a CudaStream) -> (&'a mut [u8], SyncOnDrop<'a>) {
        (&mut [], SyncOnDrop::Sync(None))
    }
}

/// The first bytes of pinned memory, to be written by a copy.
struct BeginningMut<'p>(&'p mut PinnedHostSlice<u8>, usize);

impl HostSlice<u8> for BeginningMut<'_> {
    fn len(&self) -> usize {
        self.1
    }

    // SAFETY: the memory's own events keep it until it has been read.
    unsafe fn stream_synced_slice<'a>(&'a self, stream: &'a CudaStream) -> (&'a [u8], SyncOnDrop<'a>) {
        // SAFETY: as above.
        let (all, sync) = unsafe { self.0.stream_synced_slice(stream) };
        (&all[..self.1], sync)
    }

    // SAFETY: the memory's own events keep it until it has been written.
    unsafe fn stream_synced_mut_slice<'a>(&'a mut self, stream: &'a CudaStream) -> (&'a mut [u8], SyncOnDrop<'a>) {
        // SAFETY: as above.
        let (all, sync) = unsafe { self.0.stream_synced_mut_slice(stream) };
        (&mut all[..self.1], sync)
    }
}

/// Numbers that have come from a device, in pinned memory, which goes back to where it came from.
pub(crate) struct Landed<'d, T> {
    pinned: Pinned<'d>,
    n: usize,
    of: PhantomData<T>,
}

impl<T: Plain> Landed<'_, T> {
    pub(crate) fn numbers(&self) -> Result<&[T], Fault> {
        let Some(memory) = &self.pinned.memory else { return Ok(&[]) };
        Ok(numbers_of(&memory.as_slice()?[..self.n * size_of::<T>()]))
    }
}

/// Copies numbers from a place of a buffer to the host and waits for them.
pub(crate) fn download<T: Plain>(
    stream: &Arc<CudaStream>,
    buffer: &DeviceBuffer,
    at: usize,
    n: usize,
) -> Result<Vec<T>, Fault> {
    let mut numbers = vec![T::default(); n];
    if n > 0 {
        let bytes = bytes_of_mut(&mut numbers);
        let from = buffer.slice.slice(at..at + bytes.len());
        stream.memcpy_dtoh(&from, bytes)?;
        stream.synchronize()?;
    }
    Ok(numbers)
}

/// Copies bytes within a device.
pub(crate) fn copy_within(
    stream: &Arc<CudaStream>,
    from: &DeviceBuffer,
    to: &mut DeviceBuffer,
    at: usize,
    bytes: usize,
) -> Result<(), Fault> {
    Ok(stream.memcpy_dtod(&from.slice.slice(..bytes), &mut to.slice.slice_mut(at..at + bytes))?)
}

/// The devices of a matrix.
pub(crate) type Devices = Arc<[Device]>;
