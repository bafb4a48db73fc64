//! The functions behind [`export_plugin!`](crate::export_plugin): from the C interface to [`ChunkKernels`] and back.
//!
//! Written for the macro; authors need nothing of it.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::{Mutex, PoisonError};

use zheng17_core::exact::{Arithmetic, CountSummary, MomentPlan, MomentSummary};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{CsrBuffer, CsrView, GeneMap, ValueKind, Values, ValuesRef};
use zheng17_core::{ChunkKernels, Error, ErrorKind, Result};
use zheng17_plugin_abi as abi;

/// Which methods of [`ChunkKernels`] a plugin exports.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "a yes or no for each method")]
pub struct Functions {
    /// Whether `fold_counts` is.
    pub fold_counts: bool,
    /// Whether `fold_moments` is.
    pub fold_moments: bool,
    /// Whether `select_into` is.
    pub select_into: bool,
    /// Whether `affine_into` is.
    pub affine_into: bool,
}

impl Functions {
    /// All of them.
    pub const ALL: Self = Self { fold_counts: true, fold_moments: true, select_into: true, affine_into: true };
    /// None.
    pub const NONE: Self = Self { fold_counts: false, fold_moments: false, select_into: false, affine_into: false };
}

/// The description of a plugin with these kernels. Both texts end with a 0.
///
/// # Panics
/// If a text does not, or if it is no [name](abi::is_name) of a plugin; in a constant that is an error of the compiler.
pub const fn plugin<K: ChunkKernels + 'static>(
    name: &'static str,
    description: &'static str,
    flags: u32,
    functions: Functions,
    create: abi::Create,
) -> abi::Plugin {
    let ([called @ .., 0], [.., 0]) = (name.as_bytes(), description.as_bytes()) else {
        panic!("the texts end with a 0");
    };
    assert!(
        abi::is_name(called),
        "the name of a plugin is small letters, digits, - and _, a letter first, at most 64, and not auto or cuda"
    );
    abi::Plugin {
        struct_size: size_of::<abi::Plugin>() as u32,
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        flags,
        name: name.as_ptr().cast(),
        description: description.as_ptr().cast(),
        create,
        destroy: Some(destroy::<K>),
        fold_counts: if functions.fold_counts { Some(fold_counts::<K>) } else { None },
        fold_moments: if functions.fold_moments { Some(fold_moments::<K>) } else { None },
        select: if functions.select_into { Some(select::<K>) } else { None },
        scale: if functions.affine_into { Some(scale::<K>) } else { None },
    }
}

/// What is behind the context.
struct Exported<K> {
    kernels: K,
    /// Room for selected entries, used again: fresh memory costs more than copying does.
    rooms: Mutex<Vec<CsrBuffer>>,
}

/// Makes kernels and puts them behind the context.
///
/// # Safety
/// As the interface says of `create`.
pub unsafe fn create<K: ChunkKernels>(
    create: fn() -> Result<K>,
    context: *mut *mut c_void,
    message: *mut abi::Message,
) -> i32 {
    let made = || {
        let exported = Box::new(Exported { kernels: create()?, rooms: Mutex::default() });
        // SAFETY: the host gives a place for the context.
        unsafe { *context = Box::into_raw(exported).cast() };
        Ok(())
    };
    // SAFETY: the host gives room for a message.
    unsafe { guarded(message, made) }
}

unsafe extern "C" fn destroy<K: ChunkKernels>(context: *mut c_void) {
    // SAFETY: the context is the box that `create` made, and no call follows.
    let exported = unsafe { Box::from_raw(context.cast::<Exported<K>>()) };
    // There is nobody left to tell of a panic.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(exported)));
}

unsafe extern "C" fn fold_counts<K: ChunkKernels>(
    context: *mut c_void,
    chunk: *const abi::Chunk,
    counts: *mut abi::Counts,
    message: *mut abi::Message,
) -> i32 {
    let work = || {
        // SAFETY: the host's arguments are valid for the call and of the lengths that the interface states.
        let (kernels, chunk, counts) =
            unsafe { (&(*context.cast::<Exported<K>>()).kernels, view(&*chunk, true)?, &mut *counts) };
        let excluded = (!counts.excluded.is_null()).then(|| {
            // SAFETY: as above.
            let flags = unsafe { from_raw_parts(counts.excluded, chunk.n_genes()) };
            flags.iter().map(|&flag| flag != 0).collect()
        });
        let mut summary = CountSummary::new(chunk.n_genes(), excluded);
        kernels.fold_counts(&mut summary, chunk)?;
        // SAFETY: as above.
        let genes = unsafe { slice_mut(counts.genes, chunk.n_genes()) };
        for (to, from) in genes.iter_mut().zip(summary.genes()) {
            *to = abi::GeneCounts {
                total: wide(from.total),
                sum: wide(from.sum),
                sum_of_squares: wide(from.sum_of_squares),
            };
        }
        // SAFETY: as above.
        let totals = unsafe { slice_mut(counts.cell_totals, chunk.n_cells()) };
        summary.copy_cell_totals(chunk.first_cell(), totals)?;
        let facts = summary.facts();
        (counts.n_entries, counts.n_fractional, counts.largest) = (facts.n_entries, facts.n_fractional, facts.largest);
        Ok(())
    };
    // SAFETY: the host gives room for a message.
    unsafe { guarded(message, work) }
}

unsafe extern "C" fn fold_moments<K: ChunkKernels>(
    context: *mut c_void,
    chunk: *const abi::Chunk,
    moments: *mut abi::Moments,
    message: *mut abi::Message,
) -> i32 {
    let work = || {
        // SAFETY: the host's arguments are valid for the call and of the lengths that the interface states.
        let (kernels, chunk, moments) =
            unsafe { (&(*context.cast::<Exported<K>>()).kernels, view(&*chunk, false)?, &*moments) };
        let arithmetic = match moments.arithmetic {
            abi::ARITHMETIC_SHARE => Arithmetic::Share,
            abi::ARITHMETIC_LOG => Arithmetic::Log,
            abi::ARITHMETIC_FLOAT32 => Arithmetic::Float32 { log: moments.log != 0, exponent: moments.exponent },
            other => return Err(Error::unsupported(format!("arithmetic {other} is unknown to this plugin"))),
        };
        // SAFETY: as above.
        let cell_scale = unsafe { slice(moments.cell_scale, chunk.n_cells()) }.into();
        let mut summary = MomentSummary::new(chunk.n_genes());
        kernels.fold_moments(&mut summary, chunk, &MomentPlan { cell_scale, arithmetic })?;
        if summary.n_cells() != chunk.n_cells() as u64 {
            return Err(Error::internal(format!("moments of {} cells of {}", summary.n_cells(), chunk.n_cells())));
        }
        // SAFETY: as above.
        let genes = unsafe { slice_mut(moments.genes, chunk.n_genes()) };
        for (to, from) in genes.iter_mut().zip(summary.genes()) {
            *to = abi::GeneMoments { sum: wide(from.sum), sum_of_squares: wide(from.sum_of_squares) };
        }
        Ok(())
    };
    // SAFETY: the host gives room for a message.
    unsafe { guarded(message, work) }
}

unsafe extern "C" fn select<K: ChunkKernels>(
    context: *mut c_void,
    chunk: *const abi::Chunk,
    selected: *mut abi::Selected,
    message: *mut abi::Message,
) -> i32 {
    let work = || {
        // SAFETY: the host's arguments are valid for the call and of the lengths that the interface states.
        let (exported, chunk, selected) =
            unsafe { (&*context.cast::<Exported<K>>(), view(&*chunk, true)?, &*selected) };
        // SAFETY: as above.
        let genes = GeneMap::from_new_index(unsafe { slice(selected.new_index, chunk.n_genes()) }.to_vec());
        let rooms = || exported.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = rooms().pop().unwrap_or_else(|| CsrBuffer::new(0, ValueKind::F32));
        out.reset(0, genes.n_selected(), chunk.values().kind());
        exported.kernels.select_into(chunk, &genes, &mut out)?;
        if out.n_cells() != chunk.n_cells() || out.indices.len() > chunk.n_entries() {
            return Err(Error::internal("select_into gave other cells, or more entries, than there are"));
        }
        // SAFETY: as above.
        let lengths = unsafe { slice_mut(selected.row_lengths, chunk.n_cells()) };
        for (length, ends) in lengths.iter_mut().zip(out.indptr.windows(2)) {
            *length = ends[1] - ends[0];
        }
        let n_kept = out.indices.len();
        // SAFETY: as above; there is room for all entries of the chunk, which are not fewer.
        unsafe { slice_mut(selected.indices, n_kept) }.copy_from_slice(&out.indices);
        match (&out.values, chunk.values().kind()) {
            (Values::F32(kept), ValueKind::F32) => {
                // SAFETY: as above; the room has the chunk's kind.
                unsafe { slice_mut(selected.values.cast(), n_kept) }.copy_from_slice(kept);
            }
            (Values::F64(kept), ValueKind::F64) => {
                // SAFETY: as above.
                unsafe { slice_mut(selected.values.cast(), n_kept) }.copy_from_slice(kept);
            }
            _ => return Err(Error::internal("select_into gave another kind of values")),
        }
        rooms().push(out);
        Ok(())
    };
    // SAFETY: the host gives room for a message.
    unsafe { guarded(message, work) }
}

unsafe extern "C" fn scale<K: ChunkKernels>(
    context: *mut c_void,
    chunk: *const abi::Chunk,
    scaling: *mut abi::Scaling,
    message: *mut abi::Message,
) -> i32 {
    let work = || {
        // SAFETY: the host's arguments are valid for the call and of the lengths that the interface states.
        let (kernels, chunk, scaling) =
            unsafe { (&(*context.cast::<Exported<K>>()).kernels, view(&*chunk, false)?, &*scaling) };
        // SAFETY: as above.
        let (cell_scale, mean, inverse_deviation) = unsafe {
            (
                slice(scaling.cell_scale, chunk.n_cells()),
                slice(scaling.mean, chunk.n_genes()),
                slice(scaling.inverse_deviation, chunk.n_genes()),
            )
        };
        let plan = OutputPlan {
            cell_scale: cell_scale.into(),
            log: scaling.log != 0,
            mean: mean.to_vec(),
            inverse_deviation: inverse_deviation.to_vec(),
            max_value: scaling.max_value.is_finite().then_some(scaling.max_value),
        };
        // SAFETY: as above.
        let out = unsafe { slice_mut(scaling.out, chunk.n_cells() * chunk.n_genes()) };
        kernels.affine_into(chunk, &plan, out)
    };
    // SAFETY: the host gives room for a message.
    unsafe { guarded(message, work) }
}

/// The chunk; its cells have their place in the whole matrix, or are numbered from 0.
///
/// # Safety
/// The parts of the chunk must be of the lengths that it states.
unsafe fn view(chunk: &abi::Chunk, in_place: bool) -> Result<CsrView<'_>> {
    let n_entries = chunk.n_entries as usize;
    // SAFETY: passed on.
    let (indptr, indices) =
        unsafe { (slice(chunk.indptr, chunk.n_cells as usize + 1), slice(chunk.indices, n_entries)) };
    let values = match chunk.value_kind {
        // SAFETY: passed on; the kind says what is there.
        abi::VALUES_F32 => ValuesRef::F32(unsafe { slice(chunk.values.cast(), n_entries) }),
        // SAFETY: as above.
        abi::VALUES_F64 => ValuesRef::F64(unsafe { slice(chunk.values.cast(), n_entries) }),
        other => return Err(Error::unsupported(format!("values of kind {other} are unknown to this plugin"))),
    };
    let first_cell = if in_place { chunk.first_cell as usize } else { 0 };
    Ok(CsrView::trusted(first_cell, chunk.n_genes as usize, indptr, indices, values))
}

/// A slice that may be empty and then have any pointer, as C has it.
///
/// # Safety
/// As [`from_raw_parts`], unless it is empty.
unsafe fn slice<'a, T>(from: *const T, len: usize) -> &'a [T] {
    // SAFETY: passed on.
    if len == 0 { &[] } else { unsafe { from_raw_parts(from, len) } }
}

/// As [`slice`], to be written.
///
/// # Safety
/// As [`from_raw_parts_mut`], unless it is empty.
unsafe fn slice_mut<'a, T>(from: *mut T, len: usize) -> &'a mut [T] {
    // SAFETY: passed on.
    if len == 0 { &mut [] } else { unsafe { from_raw_parts_mut(from, len) } }
}

fn wide(number: u128) -> abi::Wide {
    abi::Wide { low: number as u64, high: (number >> 64) as u64 }
}

/// Does the work of one call: panics and errors become a message and a status.
///
/// # Safety
/// `message` must be null or have the room that it states.
unsafe fn guarded(message: *mut abi::Message, work: impl FnOnce() -> Result<()>) -> i32 {
    let (text, status) = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return abi::STATUS_OK,
        Ok(Err(error)) => (error.to_string(), status_of(error.kind())),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
            (format!("panicked: {said}"), abi::STATUS_INTERNAL)
        }
    };
    // SAFETY: passed on.
    if let Some(message) = unsafe { message.as_ref() }
        && message.capacity > 0
    {
        let mut len = text.len().min(message.capacity as usize - 1);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        // SAFETY: there is room for `capacity` bytes, and the text with its final 0 has no more.
        let room = unsafe { from_raw_parts_mut(message.text.cast::<u8>(), len + 1) };
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        room[len] = 0;
    }
    status
}

fn status_of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::Input => abi::STATUS_INPUT,
        ErrorKind::Unsupported => abi::STATUS_UNSUPPORTED,
        ErrorKind::System => abi::STATUS_SYSTEM,
        _ => abi::STATUS_INTERNAL,
    }
}
