//! The C interface between zheng17 and a plugin: layouts, constants, and what a name may be. No dependencies, no other code.
//!
//! A plugin is a shared library that exports one function, [`ENTRY_SYMBOL`] of type [`Entry`]. It returns a pointer to a
//! [`Plugin`] that lives as long as the process. The functions in it are `zheng17_core`'s `ChunkKernels`, one chunk of cells
//! at a time.
//!
//! # Versions
//!
//! [`Plugin`] only ever grows at its end within a major version; everything else stays as it is. The host copies as many bytes as
//! both sides know, so plugins with an older or newer minor version work. A null function means that the host uses its own.
//!
//! # Memory
//!
//! All pointers in arguments belong to the host and are valid for the call. Results go into memory of the host whose size is
//! stated. A plugin that needs memory of its own keeps it behind its context.
//!
//! # Values
//!
//! Chunks hold finite values above 0, at most 2^53, and no gene twice in a cell; genes may be unsorted within a cell.

#![allow(unsafe_code, reason = "types of functions that C code has, and data of C that threads share")]

use std::ffi::{c_char, c_void};

/// The major version: another one is another interface.
pub const ABI_MAJOR: u32 = 1;

/// The minor version: a larger one has more at the end of `Plugin`, or more flags.
pub const ABI_MINOR: u32 = 0;

/// The name of the one exported function, an [`Entry`]; it has the major version in it.
pub const ENTRY_SYMBOL: &str = "zheng17_plugin_v1";

/// What comes before the major version in the name of the exported function.
pub const ENTRY_PREFIX: &str = "zheng17_plugin_v";

/// The longest name of a plugin, in bytes.
pub const LONGEST_NAME: usize = 64;

/// Whether a plugin may be called so: small letters, digits, `-` and `_`, a letter first, at most [`LONGEST_NAME`] of them, and not
/// `auto`, which leaves the choice to zheng17, nor `cuda` or `cuda-cublas`, which are kept for backends of their own.
pub const fn is_name(name: &[u8]) -> bool {
    if matches!(name, b"auto" | b"cuda" | b"cuda-cublas") || name.is_empty() || name.len() > LONGEST_NAME {
        return false;
    }
    let mut at = 0;
    while at < name.len() {
        let fits = match name[at] {
            b'a'..=b'z' => true,
            b'0'..=b'9' | b'-' | b'_' => at > 0,
            _ => false,
        };
        if !fits {
            return false;
        }
        at += 1;
    }
    true
}

/// Flag: functions may be called from several threads at once. Without it the host makes one call at a time.
pub const FLAG_CONCURRENT: u32 = 1;

/// Flag: `scale` is within one unit in the last place before rounding to 32 bits. Without it all results have the host's own bits.
pub const FLAG_SAME_BITS_UP_TO_LOG: u32 = 2;

/// Status: all went well. With any other one the results are not looked at, and the message says what is the matter.
pub const STATUS_OK: i32 = 0;
/// Status: a fault of the plugin.
pub const STATUS_INTERNAL: i32 = 1;
/// Status: the data are not what they should be, as with a cell whose total is above 2^53.
pub const STATUS_INPUT: i32 = 2;
/// Status: the plugin can't do this.
pub const STATUS_UNSUPPORTED: i32 = 3;
/// Status: the system refused, memory for example.
pub const STATUS_SYSTEM: i32 = 4;

/// Kind of values: 32-bit floats.
pub const VALUES_F32: u32 = 0;
/// Kind of values: 64-bit floats.
pub const VALUES_F64: u32 = 1;

/// Arithmetic of moments: q = rint(min(x · scale, 2^52)).
pub const ARITHMETIC_SHARE: u32 = 0;
/// Arithmetic of moments: q = rint(log1p(x · scale) · 2^46), with the log1p of `zheng17_core`.
pub const ARITHMETIC_LOG: u32 = 1;
/// Arithmetic of moments: values and squares in 32 bits, as scanpy has them; see `zheng17_core::exact`.
pub const ARITHMETIC_FLOAT32: u32 = 2;

/// Place of a gene that is not selected.
pub const NOT_SELECTED: u32 = u32::MAX;

/// Consecutive cells as compressed rows: cell i has the entries from `indptr[i] - indptr[0]` to `indptr[i + 1] - indptr[0]`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Chunk {
    /// Position of the first cell in the whole matrix.
    pub first_cell: u64,
    /// Number of cells.
    pub n_cells: u64,
    /// Number of genes.
    pub n_genes: u64,
    /// Number of entries.
    pub n_entries: u64,
    /// Row pointers, `n_cells` + 1 of them; the first need not be 0.
    pub indptr: *const u64,
    /// The gene of each entry.
    pub indices: *const u32,
    /// The value of each entry: `float` or `double`, as `value_kind` says.
    pub values: *const c_void,
    /// `VALUES_F32` or `VALUES_F64`.
    pub value_kind: u32,
    /// 0.
    pub reserved: u32,
}

/// An unsigned integer of 128 bits.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wide {
    /// The lower 64 bits.
    pub low: u64,
    /// The upper 64 bits.
    pub high: u64,
}

/// Sums of one gene over the cells of a chunk.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GeneCounts {
    /// Sum of rint(x · 2^40).
    pub total: Wide,
    /// Sum of q = rint(min(x · (2^52 / t), 2^52)), t being the total of the cell; 0 for excluded genes.
    pub sum: Wide,
    /// Sum of q².
    pub sum_of_squares: Wide,
}

/// What `fold_counts` is given, and where it puts its results.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// One byte for each gene, 1 for genes that totals of cells leave out and that have no moments; or null.
    pub excluded: *const u8,
    /// Result: sums of each gene. All 0 before the call.
    pub genes: *mut GeneCounts,
    /// Result: the total of each cell, the sum of rint(x · 2^40) converted to `double` and divided by 2^40. Above 2^53 the
    /// status is `STATUS_INPUT`, and the message names the cell by its number in the whole matrix, `first_cell` + its place in the chunk:
    /// "cell 7: its total of 1e16 is above 2^53".
    pub cell_totals: *mut f64,
    /// Result: number of entries.
    pub n_entries: u64,
    /// Result: number of entries that are not integers.
    pub n_fractional: u64,
    /// Result: the largest value, 0 if there is none.
    pub largest: f64,
}

/// Moments of one gene over the cells of a chunk.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GeneMoments {
    /// Sum of q.
    pub sum: Wide,
    /// Sum of q², or of the squares that the arithmetic has instead.
    pub sum_of_squares: Wide,
}

/// What `fold_moments` is given, and where it puts its results.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// The scale of each cell of the chunk.
    pub cell_scale: *const f64,
    /// Result: moments of each gene. All 0 before the call.
    pub genes: *mut GeneMoments,
    /// One of `ARITHMETIC_*`.
    pub arithmetic: u32,
    /// For `ARITHMETIC_FLOAT32`: 1 if values are logarithmised.
    pub log: u32,
    /// For `ARITHMETIC_FLOAT32`: values are at most 2^exponent.
    pub exponent: i32,
    /// 0.
    pub reserved: u32,
}

/// What `select` is given, and where it puts its results.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Selected {
    /// For each gene its place among the selected ones, or `NOT_SELECTED`.
    pub new_index: *const u32,
    /// Number of selected genes.
    pub n_selected: u64,
    /// Result: how many entries each cell of the chunk keeps.
    pub row_lengths: *mut u64,
    /// Result: genes of the kept entries, as places among the selected ones, increasing within a cell. Room for all entries.
    pub indices: *mut u32,
    /// Result: values of the kept entries, of the chunk's kind. Room for all entries.
    pub values: *mut c_void,
}

/// What `scale` is given, and where it puts its results: with y = x · `cell_scale`, or log1p of that,
/// (y - mean) · `inverse_deviation` + 0.0, within ± `max_value`, rounded to 32 bits. Where nothing is stored, y is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Scaling {
    /// The factor of each cell of the chunk.
    pub cell_scale: *const f64,
    /// The mean of each gene.
    pub mean: *const f64,
    /// One over the standard deviation of each gene, or 0.
    pub inverse_deviation: *const f64,
    /// Result: `n_cells` × `n_genes` values, cell by cell.
    pub out: *mut f32,
    /// Results are within ± this; infinity if there is no limit.
    pub max_value: f64,
    /// 1 if y is log1p of the product.
    pub log: u32,
    /// 0.
    pub reserved: u32,
}

/// Room for the text of an error, in UTF-8, ended by a 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// Where the text goes.
    pub text: *mut c_char,
    /// Number of bytes there is room for, the final 0 included.
    pub capacity: u64,
}

/// Makes a context, which all other functions are given.
pub type Create = Option<unsafe extern "C" fn(context: *mut *mut c_void, message: *mut Message) -> i32>;
/// Takes a context back. No other call is running or follows.
pub type Destroy = Option<unsafe extern "C" fn(context: *mut c_void)>;
/// Totals and exact moments of a chunk. Values are at most 2^53, and so are totals of cells; no sum then has more than 128 bits.
pub type FoldCounts = Option<
    unsafe extern "C" fn(context: *mut c_void, chunk: *const Chunk, counts: *mut Counts, message: *mut Message) -> i32,
>;
/// Exact moments of a chunk after its cells were scaled.
pub type FoldMoments = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        chunk: *const Chunk,
        moments: *mut Moments,
        message: *mut Message,
    ) -> i32,
>;
/// The cells of a chunk with only the selected genes.
pub type Select = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        chunk: *const Chunk,
        selected: *mut Selected,
        message: *mut Message,
    ) -> i32,
>;
/// The scaled values of a chunk of selected genes.
pub type Scale = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        chunk: *const Chunk,
        scaling: *mut Scaling,
        message: *mut Message,
    ) -> i32,
>;

/// What a plugin is. Lives as long as the process and never changes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Plugin {
    /// The size of this structure as the plugin knows it.
    pub struct_size: u32,
    /// `ABI_MAJOR` as the plugin knows it.
    pub abi_major: u32,
    /// `ABI_MINOR` as the plugin knows it.
    pub abi_minor: u32,
    /// `FLAG_*`, added.
    pub flags: u32,
    /// The name that users choose the backend by: small letters, digits, `-` and `_`, a letter first, at most 64 of them.
    pub name: *const c_char,
    /// One line on what it is.
    pub description: *const c_char,
    /// Null: there is no context, and functions are given null.
    pub create: Create,
    /// Null: nothing to give back.
    pub destroy: Destroy,
    /// Null: the host's own.
    pub fold_counts: FoldCounts,
    /// Null: the host's own.
    pub fold_moments: FoldMoments,
    /// Null: the host's own.
    pub select: Select,
    /// Null: the host's own.
    pub scale: Scale,
}

// SAFETY: by contract a descriptor and what it points to never change, so threads may read them at once.
unsafe impl Sync for Plugin {}
// SAFETY: as above.
unsafe impl Send for Plugin {}

/// The exported function.
pub type Entry = unsafe extern "C" fn() -> *const Plugin;

// The layout is fixed: a change that moves anything does not compile.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::{align_of, offset_of, size_of};
    assert!(size_of::<Chunk>() == 64 && align_of::<Chunk>() == 8);
    assert!(offset_of!(Chunk, indptr) == 32 && offset_of!(Chunk, values) == 48 && offset_of!(Chunk, value_kind) == 56);
    assert!(size_of::<Wide>() == 16 && align_of::<Wide>() == 8 && offset_of!(Wide, high) == 8);
    assert!(size_of::<GeneCounts>() == 48 && offset_of!(GeneCounts, sum_of_squares) == 32);
    assert!(size_of::<Counts>() == 48 && offset_of!(Counts, cell_totals) == 16 && offset_of!(Counts, largest) == 40);
    assert!(size_of::<GeneMoments>() == 32 && offset_of!(GeneMoments, sum_of_squares) == 16);
    assert!(size_of::<Moments>() == 32 && offset_of!(Moments, arithmetic) == 16 && offset_of!(Moments, exponent) == 24);
    assert!(
        size_of::<Selected>() == 40 && offset_of!(Selected, row_lengths) == 16 && offset_of!(Selected, values) == 32
    );
    assert!(size_of::<Scaling>() == 48 && offset_of!(Scaling, out) == 24 && offset_of!(Scaling, log) == 40);
    assert!(size_of::<Message>() == 16 && offset_of!(Message, capacity) == 8);
    assert!(size_of::<Plugin>() == 80 && offset_of!(Plugin, name) == 16 && offset_of!(Plugin, create) == 32);
    assert!(offset_of!(Plugin, fold_counts) == 48 && offset_of!(Plugin, scale) == 72);
};
