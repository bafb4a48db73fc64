//! cuBLAS, for who asks for it: the products of PCA's blocks by its symmetric rank-k update, and the check that it agrees with our
//! kernel. The library is opened while the program runs, and only then.
#![allow(unsafe_code, reason = "calls of cuBLAS; each says why it is right")]

use std::sync::Arc;

use cudarc::cublas::{result, sys};
use cudarc::driver::{CudaStream, DevicePtr as _, DevicePtrMut as _};

use crate::device::{Device, DeviceBuffer};
use crate::error::Fault;

/// How far a product may be from our kernel's, relative to those of its genes with themselves. Sums of some thousand products
/// differ by a few units in the last place of the largest sums that can be met, 1e-13 or less.
const AGREEMENT: f64 = 1e-12;

/// Whether there is cuBLAS. Nothing else of this module is called before this has said so.
///
/// # Errors
/// [`Fault::NoCublas`].
pub(crate) fn probe() -> Result<(), Fault> {
    // SAFETY: it opens a library by name.
    if unsafe { sys::is_culib_present() } { Ok(()) } else { Err(Fault::NoCublas) }
}

/// cuBLAS on a device.
pub(crate) struct Blas {
    handle: sys::cublasHandle_t,
}

// SAFETY: cuBLAS's handles may be used by any thread, by one at a time.
unsafe impl Send for Blas {}

impl Blas {
    /// # Errors
    /// [`Fault::NoCublas`], [`Fault::UnusableCublas`].
    pub(crate) fn new(device: &Device) -> Result<Self, Fault> {
        probe()?;
        device.bind()?;
        let handle = result::create_handle().map_err(|error| Fault::UnusableCublas(error.0 as u32))?;
        Ok(Self { handle })
    }

    /// Adds Σ dₐ·d_b over the rows of a tile for b ≤ a at `a * n_genes + b`.
    pub(crate) fn add_products(
        &self,
        stream: &Arc<CudaStream>,
        tile: &DeviceBuffer,
        n_rows: usize,
        n_genes: usize,
        products: &mut DeviceBuffer,
    ) -> Result<(), Fault> {
        let size = |n: usize| {
            i32::try_from(n).map_err(|_| Fault::Cublas(sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE as u32))
        };
        let (n, k) = (size(n_genes)?, size(n_rows)?);
        let one = 1.0;
        let (tile, _reads) = tile.slice().device_ptr(stream);
        let (products, _writes) = products.slice_mut().device_ptr_mut(stream);
        // SAFETY: cuBLAS has columns where we have rows. So the tile's rows are its n x k columns, and what is up to our diagonal is
        // from its diagonal up. Both buffers are as large as that, and the stream waits for them and is waited for.
        unsafe {
            result::set_stream(self.handle, stream.cu_stream().cast()).map_err(fault)?;
            sys::cublasDsyrk_v2(
                self.handle,
                sys::cublasFillMode_t::CUBLAS_FILL_MODE_UPPER,
                sys::cublasOperation_t::CUBLAS_OP_N,
                n,
                k,
                &raw const one,
                tile as *const f64,
                n,
                &raw const one,
                products as *mut f64,
                n,
            )
            .result()
            .map_err(fault)
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: it was created, and nobody uses it any more. An error comes from work that failed, which has been reported.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

fn fault(error: result::CublasError) -> Fault {
    Fault::Cublas(error.0 as u32)
}

/// Compares products up to the diagonal with those of our kernel.
///
/// # Errors
/// [`Fault::CublasDiffers`] with the pair of genes that differs most.
pub(crate) fn compare(device: &Device, n_genes: usize, found: &[f64], own: &[f64]) -> Result<(), Fault> {
    let mut worst = (AGREEMENT, None);
    for a in 0..n_genes {
        for b in 0..=a {
            let at = a * n_genes + b;
            let size = (own[a * n_genes + a] * own[b * n_genes + b]).sqrt();
            let apart = (found[at] - own[at]).abs();
            let relative = if apart == 0.0 { 0.0 } else { apart / size };
            // What is no number is as far away as can be.
            if relative > worst.0 || (relative.is_nan() && worst.0.is_finite()) {
                worst = (if relative.is_nan() { f64::INFINITY } else { relative }, Some((a, b)));
            }
        }
    }
    match worst.1 {
        None => Ok(()),
        Some((a, b)) => Err(Fault::CublasDiffers {
            device: device.name().to_owned(),
            genes: (a, b),
            products: (found[a * n_genes + b], own[a * n_genes + b]),
        }),
    }
}
