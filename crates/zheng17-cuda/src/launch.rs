//! Launches: a kernel with its arguments, put on a stream. Knows buffers and streams, and no matrices.
#![allow(unsafe_code, reason = "the launch itself")]

use std::sync::Arc;

use cudarc::driver::{
    CudaFunction, CudaStream, DevicePtr as _, DevicePtrMut as _, LaunchConfig, PushKernelArg as _, SyncOnDrop,
};

use crate::device::DeviceBuffer;
use crate::error::Fault;
use crate::measure::{Profile, TIMED};
use crate::ptx;

/// An argument of a kernel.
enum Argument {
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
}

/// A launch that is being put together: arguments in the order of the kernel's. Buffers are waited for, and marked as read or
/// written when the launch is on its stream.
pub(crate) struct Launch<'a> {
    stream: &'a CudaStream,
    function: CudaFunction,
    arguments: Vec<Argument>,
    held: Vec<SyncOnDrop<'a>>,
    /// Where its time goes, and under which name.
    profile: Option<(Arc<Profile>, String)>,
}

impl<'a> Launch<'a> {
    /// A launch without arguments, whose time goes to a profile, under a name, if there is one.
    pub(crate) fn new(stream: &'a CudaStream, function: CudaFunction, profile: Option<(Arc<Profile>, String)>) -> Self {
        Self { stream, function, arguments: Vec::new(), held: Vec::new(), profile }
    }

    pub(crate) fn u32(&mut self, x: usize) -> &mut Self {
        self.arguments.push(Argument::U32(x as u32));
        self
    }

    pub(crate) fn f32(&mut self, x: f32) -> &mut Self {
        self.arguments.push(Argument::F32(x));
        self
    }

    pub(crate) fn f64(&mut self, x: f64) -> &mut Self {
        self.arguments.push(Argument::F64(x));
        self
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        self.arguments.push(Argument::U64(0));
        self
    }

    /// A buffer to read.
    pub(crate) fn read(&mut self, buffer: &'a DeviceBuffer) -> &mut Self {
        self.read_at(buffer, &[0])
    }

    /// Places of a buffer to read, an argument for each.
    pub(crate) fn read_at(&mut self, buffer: &'a DeviceBuffer, places: &[usize]) -> &mut Self {
        let (address, held) = buffer.slice().device_ptr(self.stream);
        self.arguments.extend(places.iter().map(|&place| Argument::U64(address + place as u64)));
        self.held.push(held);
        self
    }

    /// A buffer to read, or none.
    pub(crate) fn read_or_null(&mut self, buffer: Option<&'a DeviceBuffer>) -> &mut Self {
        match buffer {
            Some(buffer) => self.read(buffer),
            None => self.null(),
        }
    }

    /// A buffer to write.
    pub(crate) fn write(&mut self, buffer: &'a mut DeviceBuffer) -> &mut Self {
        self.write_at(buffer, &[0])
    }

    /// Places of a buffer to write, an argument for each.
    pub(crate) fn write_at(&mut self, buffer: &'a mut DeviceBuffer, places: &[usize]) -> &mut Self {
        let (address, held) = buffer.slice_mut().device_ptr_mut(self.stream);
        self.arguments.extend(places.iter().map(|&place| Argument::U64(address + place as u64)));
        self.held.push(held);
        self
    }

    /// Launches on so many blocks of the usual threads.
    pub(crate) fn run(&mut self, blocks: u32) -> Result<(), Fault> {
        self.run_on((blocks, 1))
    }

    /// Launches on a grid of blocks of the usual threads.
    pub(crate) fn run_on(&mut self, (x, y): (u32, u32)) -> Result<(), Fault> {
        let mut builder = self.stream.launch_builder(&self.function);
        for argument in &self.arguments {
            match argument {
                Argument::U32(x) => builder.arg(x),
                Argument::U64(x) => builder.arg(x),
                Argument::F32(x) => builder.arg(x),
                Argument::F64(x) => builder.arg(x),
            };
        }
        let grid = LaunchConfig { grid_dim: (x, y, 1), block_dim: (ptx::BLOCK_THREADS, 1, 1), shared_mem_bytes: 0 };
        if self.profile.is_some() {
            builder.record_kernel_launch(TIMED);
        }
        // SAFETY: arguments stand as the table of kernels has them, and their buffers are as large as it says; the tests compare
        // numbers and sizes of arguments with the compiled kernels, and every access with the buffers.
        let events = unsafe { builder.launch(grid) }?;
        self.held.clear();
        if let (Some((profile, kernel)), Some(events)) = (&self.profile, events) {
            profile.add(kernel, y, &events)?;
        }
        Ok(())
    }
}
