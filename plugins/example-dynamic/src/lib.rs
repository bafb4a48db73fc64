//! An example of a plugin in Rust: the vectorised kernels of this project behind the C interface.
//!
//! Yours would have kernels of its own in `impl ChunkKernels`; each method that it leaves out is the specification itself.

use zheng17_kernels::FastKernels;
use zheng17_plugin_sdk::{FLAG_CONCURRENT, export_plugin};

export_plugin! {
    name: "example-dynamic",
    description: "an example of a plugin in Rust",
    flags: FLAG_CONCURRENT,
    kernels: FastKernels,
    create: || Ok(FastKernels::default()),
}
