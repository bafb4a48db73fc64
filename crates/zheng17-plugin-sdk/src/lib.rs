//! For authors of plugins in Rust: write [`ChunkKernels`], export it with one macro, build a `cdylib`.
//!
//! ```
//! use zheng17_plugin_sdk::{ChunkKernels, export_plugin};
//!
//! struct Mine;
//!
//! /// Every method that is not written is the specification itself.
//! impl ChunkKernels for Mine {}
//!
//! export_plugin! {
//!     name: "mine",
//!     description: "what it is, in one line",
//!     flags: zheng17_plugin_sdk::FLAG_CONCURRENT,
//!     kernels: Mine,
//!     create: || Ok(Mine),
//! }
//! ```
//!
//! With `functions: [fold_counts]` before `kernels` only the methods in the list are exported, and the host does the others with its
//! own, which are as right and faster than the specification.
//!
//! A panic is caught and becomes an error of the host. In `fold_moments` and `affine_into` the cells of a chunk are numbered from
//! 0, and the plan has the cells of this chunk alone; in the other two they have their place in the whole matrix.

#![allow(unsafe_code, reason = "implements a C interface; each block says why it is sound")]

pub mod exported;

pub use zheng17_core::exact::{
    Arithmetic, CountFacts, CountSummary, GeneCounts, GeneMoments, MomentPlan, MomentSummary, fixed_total, share,
    share_weight, total_from_fixed,
};
pub use zheng17_core::kernels::{OutputPlan, ScalarKernels};
pub use zheng17_core::log1p::log1p;
pub use zheng17_core::matrix::{CsrBuffer, CsrView, GeneMap, ValueKind, Values, ValuesRef};
pub use zheng17_core::{ChunkKernels, Error, ErrorKind, Result};
pub use zheng17_plugin_abi::{self as abi, FLAG_CONCURRENT, FLAG_SAME_BITS_UP_TO_LOG};

/// Exports chunk kernels as the plugin of this library. Once in a library.
///
/// `name` is what users choose the backend by; `flags` are `FLAG_*`, added, or 0; `create` makes the `kernels`: a
/// function, or a closure that captures nothing, that gives `Result<Kernels>`. `functions` lists the methods to export; without it all
/// are.
#[macro_export]
macro_rules! export_plugin {
    (
        name: $name:literal,
        description: $description:literal,
        flags: $flags:expr,
        $(functions: [$($function:ident),+ $(,)?],)?
        kernels: $kernels:ty,
        create: $create:expr $(,)?
    ) => {
        /// What the host asks for: the plugin's description of itself.
        #[allow(
            unsafe_code,
            reason = "the name is the interface's, so no other library of the process clashes with it"
        )]
        #[unsafe(no_mangle)]
        pub extern "C" fn zheng17_plugin_v1() -> *const $crate::abi::Plugin {
            unsafe extern "C" fn create_behind_the_interface(
                context: *mut *mut ::std::ffi::c_void,
                message: *mut $crate::abi::Message,
            ) -> i32 {
                let make: fn() -> $crate::Result<$kernels> = $create;
                // SAFETY: passed on from the host.
                unsafe { $crate::exported::create(make, context, message) }
            }
            static PLUGIN: $crate::abi::Plugin = $crate::exported::plugin::<$kernels>(
                concat!($name, "\0"),
                concat!($description, "\0"),
                $flags,
                $crate::export_plugin!(@functions $($($function)+)?),
                Some(create_behind_the_interface),
            );
            &raw const PLUGIN
        }
    };
    (@functions) => {
        $crate::exported::Functions::ALL
    };
    (@functions $($function:ident)+) => {{
        // All of them may be there, and then nothing is left of the others.
        let mut functions = $crate::exported::Functions::NONE;
        $(functions.$function = true;)+
        functions
    }};
}
