//! The device code of the CUDA backend: kernels for every operation on sparse matrices and for the fused steps of the recipe,
//! compiled ahead of time and shipped as PTX, which every driver from 525 on takes for GPUs of compute capability 7.5 and later.
//!
//! `kernels/README.md` lists the kernels with their arguments; this crate's README tells how they are tested without a GPU.

pub mod ptx;
