//! The CUDA backend: one or several GPUs. Each holds a range of the cells, or has them pass by if its memory is short; what leaves it
//! are sums, and results that somebody asked for.
//!
//! The driver is opened while the program runs, and only when this backend is asked for: one program serves machines with and
//! without CUDA. The kernels are compiled ahead of time and shipped as PTX, which every driver from 525 on takes for GPUs of compute
//! capability 7.5 and later. `kernels/README.md` lists them with their arguments.
//!
//! Results have the bits of the other backends, whatever the number of devices and their memory.

mod blas;
mod bytes;
mod chunk;
mod device;
mod error;
mod launch;
mod matrix;
pub mod measure;
mod outputs;
mod pass;
mod products;
pub mod ptx;
mod steps;
mod sums;

use std::sync::{Arc, Mutex, PoisonError};

pub use device::probe;
pub use error::Fault;
pub use matrix::CudaMatrix;
use zheng17_core::backend::{
    AnyBackend, BackendEntry, ChunkSink, Determinism, Gram, Origin, Projection, Reduction, Registry, RowSink, Transform,
};
use zheng17_core::exact::{CountSummary, MomentPlan, MomentSummary};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::{Capabilities, ChunkSource, Context, Result, Selection, Shape, SparseBackend};

use crate::device::Devices;

/// Which devices, and how much memory of each.
type DeviceChoice = (Option<Vec<usize>>, Option<u64>);

/// The backend. Making it asks for no driver; opening a matrix does.
pub struct Cuda {
    capabilities: Capabilities,
    /// The devices that were opened last: loading the kernels takes a while.
    opened: Mutex<Option<(DeviceChoice, Devices)>>,
    /// The devices to use where a context doesn't say; `None`: all of them.
    usual_devices: Option<Vec<usize>>,
    /// Whether cuBLAS sums the products of PCA.
    cublas: bool,
    /// Where times go, if they are taken.
    profile: Option<Arc<measure::Profile>>,
}

impl Default for Cuda {
    fn default() -> Self {
        Self {
            capabilities: Capabilities {
                name: "cuda".to_owned(),
                description: "one or several NVIDIA GPUs, each with a part of the cells".to_owned(),
                determinism: Determinism::SameBits,
                ordered_fold: false,
                out_of_core: false,
                threads: true,
                devices: true,
            },
            opened: Mutex::default(),
            usual_devices: None,
            cublas: false,
            profile: None,
        }
    }
}

/// Adds this backend to a registry, and again as one that uses cuBLAS. Whether there is a GPU, and whether there is cuBLAS, shows
/// when they are asked for.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if a name is taken.
pub fn register(registry: &mut Registry) -> Result<()> {
    registry.register(BackendEntry {
        capabilities: Cuda::default().capabilities,
        origin: Origin::Explicit(env!("CARGO_PKG_NAME")),
        create: Arc::new(|| {
            probe()?;
            Ok(AnyBackend::new(Cuda::default()))
        }),
    })?;
    registry.register(BackendEntry {
        capabilities: Cuda::with_cublas().capabilities,
        origin: Origin::Explicit(env!("CARGO_PKG_NAME")),
        create: Arc::new(|| {
            probe()?;
            blas::probe()?;
            Ok(AnyBackend::new(Cuda::with_cublas()))
        }),
    })
}

impl Cuda {
    /// A backend that uses these devices where a context doesn't say. A device that is named twice is used as if it were two.
    pub fn on_devices(ordinals: Vec<usize>) -> Self {
        Self { usual_devices: Some(ordinals), ..Self::default() }
    }

    /// The backend `cuda-cublas`: cuBLAS sums the products of PCA, whose last digits are others then. On each device the first block
    /// of cells is summed by our kernel too, and the two must agree.
    pub fn with_cublas() -> Self {
        let usual = Self::default();
        let capabilities = Capabilities {
            name: "cuda-cublas".to_owned(),
            description: "as cuda, with cuBLAS for the products of PCA".to_owned(),
            determinism: Determinism::SameBitsButPca,
            ..usual.capabilities
        };
        Self { capabilities, cublas: true, ..usual }
    }

    fn devices(&self, ctx: &Context) -> Result<Devices> {
        let choice = (ctx.devices.clone().or_else(|| self.usual_devices.clone()), ctx.device_memory);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, devices)) = &*opened
            && *known == choice
        {
            return Ok(Arc::clone(devices));
        }
        let devices = matrix::open_devices(choice.0.as_deref(), choice.1)?;
        devices.iter().for_each(|device| device.take_times(self.profile.as_ref()));
        *opened = Some((choice, Arc::clone(&devices)));
        Ok(devices)
    }
}

impl SparseBackend for Cuda {
    type Matrix = CudaMatrix;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<CudaMatrix> {
        CudaMatrix::read(source.as_ref(), self.devices(ctx)?, ctx)
    }

    fn explain(&self, matrix: &CudaMatrix) -> Option<String> {
        Some(matrix.explain())
    }

    fn shape(&self, matrix: &CudaMatrix) -> Shape {
        matrix.shape()
    }

    fn select(&self, matrix: &CudaMatrix, cells: &Selection, genes: &Selection) -> Result<CudaMatrix> {
        steps::select(matrix, cells, genes)
    }

    fn transform(&self, matrix: &CudaMatrix, transform: &Transform) -> Result<CudaMatrix> {
        steps::transform(matrix, transform)
    }

    fn multiply(&self, a: &CudaMatrix, b: &CudaMatrix) -> Result<CudaMatrix> {
        steps::multiply(a, b)
    }

    fn reduce(&self, matrix: &CudaMatrix, wanted: &[Reduction], ctx: &Context) -> Result<Vec<Vec<f64>>> {
        sums::reduce(matrix, wanted, ctx)
    }

    fn visit(&self, matrix: &CudaMatrix, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
        outputs::visit(matrix, ctx, f)
    }

    fn concat(&self, parts: &[&CudaMatrix]) -> Result<CudaMatrix> {
        steps::concat(parts)
    }

    fn count_summary(
        &self,
        matrix: &CudaMatrix,
        excluded: Option<&Arc<[bool]>>,
        ctx: &Context,
    ) -> Result<CountSummary> {
        sums::count_summary(matrix, excluded, ctx)
    }

    fn moment_summary(&self, matrix: &CudaMatrix, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary> {
        sums::moment_summary(matrix, plan, ctx)
    }

    fn gram(&self, matrix: &CudaMatrix, plan: &OutputPlan, ctx: &Context) -> Result<Gram> {
        products::gram(matrix, plan, self.cublas, ctx)
    }

    fn project(
        &self,
        matrix: &CudaMatrix,
        plan: &OutputPlan,
        projection: &Projection,
        ctx: &Context,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        outputs::project(matrix, plan, projection, ctx, sink)
    }

    fn scaled(&self, matrix: &CudaMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        outputs::scaled(matrix, plan, ctx, sink)
    }

    fn normalised(
        &self,
        matrix: &CudaMatrix,
        plan: &OutputPlan,
        ctx: &Context,
        sink: &mut ChunkSink<'_>,
    ) -> Result<()> {
        outputs::normalised(matrix, plan, ctx, sink)
    }
}
