//! A plugin as [`ChunkKernels`]: calls it, checks what it gives back, and adds it to what the host has.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zheng17_core::exact::{
    Arithmetic, CountFacts, CountSummary, GeneCounts, GeneMoments, MOST_SQUARES, MOST_SUM, MOST_TOTAL, MomentPlan,
    MomentSummary,
};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{CsrBuffer, CsrView, GeneMap, ValueKind, Values};
use zheng17_core::source::LARGEST_COUNT;
use zheng17_core::{ChunkKernels, Error, Result, with_values};
use zheng17_kernels::FastKernels;
use zheng17_plugin_abi as abi;

use crate::calls::{call, chunk, number};

/// How many cells a plugin is given at a time where the caller has more: its results need room for all entries, and are best
/// looked at while they are in a cache.
const MOST_CELLS_A_CALL: usize = 1024;

/// The functions of a plugin with a context of its own.
pub struct PluginKernels {
    name: String,
    plugin: abi::Plugin,
    context: *mut c_void,
    /// What the plugin leaves to the host.
    own: FastKernels,
    /// Held during calls, unless the plugin says that they may be made at once.
    one_at_a_time: Option<Mutex<()>>,
    /// Room for results, kept between calls.
    rooms: Mutex<Vec<Room>>,
}

// SAFETY: by contract the context may be used from any thread, and calls are made one at a time unless the plugin allows more.
unsafe impl Send for PluginKernels {}
// SAFETY: as above.
unsafe impl Sync for PluginKernels {}

/// Fresh memory costs more than most calls do, so it is used again.
struct Room {
    counts: Vec<abi::GeneCounts>,
    checked_counts: Vec<GeneCounts>,
    moments: Vec<abi::GeneMoments>,
    checked_moments: Vec<GeneMoments>,
    genes: Vec<u32>,
    /// Zero before each call: what a plugin forgets to write is found to be no value.
    values: Values,
}

impl Room {
    fn new() -> Self {
        Self {
            counts: Vec::new(),
            checked_counts: Vec::new(),
            moments: Vec::new(),
            checked_moments: Vec::new(),
            genes: Vec::new(),
            values: Values::empty(ValueKind::F32),
        }
    }

    /// Makes room for selected entries, and says where values go.
    fn for_entries(&mut self, n: usize, kind: ValueKind) -> *mut c_void {
        if self.genes.len() < n {
            self.genes = vec![0; n];
        }
        if self.values.kind() != kind || self.values.len() < n {
            self.values = match kind {
                ValueKind::F32 => Values::F32(vec![0.0; n]),
                ValueKind::F64 => Values::F64(vec![0.0; n]),
            };
        }
        match &mut self.values {
            Values::F32(values) => values.as_mut_ptr().cast(),
            Values::F64(values) => values.as_mut_ptr().cast(),
        }
    }

    fn forget_values(&mut self, n: usize) {
        match &mut self.values {
            Values::F32(values) => values[..n].fill(0.0),
            Values::F64(values) => values[..n].fill(0.0),
        }
    }
}

impl PluginKernels {
    /// Makes the plugin's context.
    pub(crate) fn new(name: &str, plugin: abi::Plugin) -> Result<Self> {
        let mut context = std::ptr::null_mut();
        if let Some(create) = plugin.create {
            // SAFETY: both pointers are valid for the call.
            call(|message| unsafe { create(&raw mut context, message) }).map_err(|error| at(name, error))?;
        }
        let concurrent = plugin.flags & abi::FLAG_CONCURRENT != 0;
        let one_at_a_time = (!concurrent).then(Mutex::default);
        Ok(Self {
            name: name.to_owned(),
            plugin,
            context,
            own: FastKernels::default(),
            one_at_a_time,
            rooms: Mutex::default(),
        })
    }

    fn wait(&self) -> Option<MutexGuard<'_, ()>> {
        self.one_at_a_time.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does something with room for results; the room is kept if it went well, and left behind, filled with anything, if not.
    fn with_room(&self, f: impl FnOnce(&mut Room) -> Result<()>) -> Result<()> {
        let rooms = || self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let mut room = rooms().pop().unwrap_or_else(Room::new);
        f(&mut room).map_err(|error| at(&self.name, error))?;
        rooms().push(room);
        Ok(())
    }

    fn fold_counts_by(
        &self,
        f: impl Fn(*const abi::Chunk, *mut abi::Counts, *mut abi::Message) -> i32,
        into: &mut CountSummary,
        view: CsrView<'_>,
    ) -> Result<()> {
        self.with_room(|room| {
            room.counts.clear();
            room.counts.resize(view.n_genes(), abi::GeneCounts::default());
            let excluded: Option<Vec<u8>> =
                into.excluded().map(|flags| flags.iter().map(|&flag| u8::from(flag)).collect());
            let mut cell_totals = vec![f64::NAN; view.n_cells()];
            let mut counts = abi::Counts {
                excluded: excluded.as_ref().map_or(std::ptr::null(), Vec::as_ptr),
                genes: room.counts.as_mut_ptr(),
                cell_totals: cell_totals.as_mut_ptr(),
                n_entries: 0,
                n_fractional: 0,
                largest: 0.0,
            };
            let chunk = chunk(view);
            {
                let _waited = self.wait();
                // All pointers are valid for the call, and results have the room that the interface states.
                call(|message| f(&raw const chunk, &raw mut counts, message))?;
            }
            let facts =
                CountFacts { n_entries: counts.n_entries, n_fractional: counts.n_fractional, largest: counts.largest };
            check_facts(&facts, view)?;
            for (at, total) in cell_totals.iter().enumerate() {
                if !(0.0..=LARGEST_COUNT).contains(total) {
                    let cell = view.first_cell() + at;
                    return Err(wrong(format!("cell {cell} has a total of {total:e}")));
                }
            }
            let n_cells = view.n_cells() as u128;
            let genes = &mut room.checked_counts;
            genes.clear();
            genes.extend(room.counts.iter().map(|sums| GeneCounts {
                total: number(sums.total),
                sum: number(sums.sum),
                sum_of_squares: number(sums.sum_of_squares),
            }));
            check_sums(genes.iter().map(|sums| sums.total <= n_cells * MOST_TOTAL))?;
            check_sums(genes.iter().map(|sums| sums.sum <= n_cells * MOST_SUM))?;
            check_sums(genes.iter().map(|sums| sums.sum_of_squares <= n_cells * MOST_SQUARES))?;
            into.add(view.first_cell(), cell_totals, genes, &facts)
        })
    }

    fn fold_moments_by(
        &self,
        f: impl Fn(*const abi::Chunk, *mut abi::Moments, *mut abi::Message) -> i32,
        into: &mut MomentSummary,
        view: CsrView<'_>,
        plan: &MomentPlan,
    ) -> Result<()> {
        let (arithmetic, log, exponent) = match plan.arithmetic {
            Arithmetic::Share => (abi::ARITHMETIC_SHARE, false, 0),
            Arithmetic::Log => (abi::ARITHMETIC_LOG, true, 0),
            Arithmetic::Float32 { log, exponent } => (abi::ARITHMETIC_FLOAT32, log, exponent),
        };
        self.with_room(|room| {
            room.moments.clear();
            room.moments.resize(view.n_genes(), abi::GeneMoments::default());
            let mut moments = abi::Moments {
                cell_scale: scales(&plan.cell_scale, view)?.as_ptr(),
                genes: room.moments.as_mut_ptr(),
                arithmetic,
                log: u32::from(log),
                exponent,
                reserved: 0,
            };
            let chunk = chunk(view);
            {
                let _waited = self.wait();
                // All pointers are valid for the call, and results have the room that the interface states.
                call(|message| f(&raw const chunk, &raw mut moments, message))?;
            }
            let n_cells = view.n_cells() as u128;
            let genes = &mut room.checked_moments;
            genes.clear();
            genes.extend(
                room.moments
                    .iter()
                    .map(|sums| GeneMoments { sum: number(sums.sum), sum_of_squares: number(sums.sum_of_squares) }),
            );
            check_sums(genes.iter().map(|sums| sums.sum <= n_cells * MOST_SUM))?;
            check_sums(genes.iter().map(|sums| sums.sum_of_squares <= n_cells * MOST_SQUARES))?;
            into.add(view.n_cells() as u64, genes)
        })
    }

    fn select_by(
        &self,
        f: impl Fn(*const abi::Chunk, *mut abi::Selected, *mut abi::Message) -> i32,
        view: CsrView<'_>,
        genes: &GeneMap,
        out: &mut CsrBuffer,
    ) -> Result<()> {
        self.with_room(|room| {
            let mut row_lengths = vec![0_u64; view.n_cells()];
            let values = room.for_entries(view.n_entries(), view.values().kind());
            let mut selected = abi::Selected {
                new_index: genes.new_index().as_ptr(),
                n_selected: genes.n_selected() as u64,
                row_lengths: row_lengths.as_mut_ptr(),
                indices: room.genes.as_mut_ptr(),
                values,
            };
            let chunk = chunk(view);
            {
                let _waited = self.wait();
                // All pointers are valid for the call, and results have the room that the interface states.
                call(|message| f(&raw const chunk, &raw mut selected, message))?;
            }
            let kept = append_selected(view, genes, &row_lengths, room, out)?;
            room.forget_values(kept);
            Ok(())
        })
    }

    fn scale_by(
        &self,
        f: impl Fn(*const abi::Chunk, *mut abi::Scaling, *mut abi::Message) -> i32,
        view: CsrView<'_>,
        plan: &OutputPlan,
        out: &mut [f32],
    ) -> Result<()> {
        let n_genes = view.n_genes();
        if plan.n_genes() != n_genes || plan.inverse_deviation.len() != n_genes || out.len() != view.n_cells() * n_genes
        {
            return Err(Error::internal("the plan and the room for results do not fit the chunk"));
        }
        let mut scaling = abi::Scaling {
            cell_scale: scales(&plan.cell_scale, view)?.as_ptr(),
            mean: plan.mean.as_ptr(),
            inverse_deviation: plan.inverse_deviation.as_ptr(),
            out: out.as_mut_ptr(),
            max_value: plan.max_value.unwrap_or(f64::INFINITY),
            log: u32::from(plan.log),
            reserved: 0,
        };
        let chunk = chunk(view);
        {
            let _waited = self.wait();
            // All pointers are valid for the call, and results have the room that the interface states.
            call(|message| f(&raw const chunk, &raw mut scaling, message))?;
        }
        // Whether there is one is found faster than where it is.
        if !out.iter().fold(false, |found, value| found | value.is_nan()) {
            return Ok(());
        }
        let at = out.iter().position(|value| value.is_nan()).unwrap_or(0);
        Err(wrong(format!("cell {} has NaN for gene {}", view.first_cell() + at / n_genes, at % n_genes)))
    }
}

impl ChunkKernels for PluginKernels {
    fn fold_counts(&self, into: &mut CountSummary, view: CsrView<'_>) -> Result<()> {
        match self.plugin.fold_counts {
            Some(f) => self.fold_counts_by(
                // SAFETY: the caller gives arguments as the interface wants them.
                |chunk, counts, message| unsafe { f(self.context, chunk, counts, message) },
                into,
                view,
            ),
            None => self.own.fold_counts(into, view),
        }
    }

    fn fold_moments(&self, into: &mut MomentSummary, view: CsrView<'_>, plan: &MomentPlan) -> Result<()> {
        match self.plugin.fold_moments {
            Some(f) => self.fold_moments_by(
                // SAFETY: as above.
                |chunk, moments, message| unsafe { f(self.context, chunk, moments, message) },
                into,
                view,
                plan,
            ),
            None => self.own.fold_moments(into, view, plan),
        }
    }

    fn select_into(&self, view: CsrView<'_>, genes: &GeneMap, out: &mut CsrBuffer) -> Result<()> {
        let Some(f) = self.plugin.select else { return self.own.select_into(view, genes, out) };
        // SAFETY: as above.
        let f =
            |chunk: *const _, selected: *mut _, message: *mut _| unsafe { f(self.context, chunk, selected, message) };
        for start in (0..view.n_cells()).step_by(MOST_CELLS_A_CALL) {
            let rows = view.rows(start..(start + MOST_CELLS_A_CALL).min(view.n_cells()));
            self.select_by(f, rows, genes, out)?;
        }
        Ok(())
    }

    fn affine_into(&self, view: CsrView<'_>, plan: &OutputPlan, out: &mut [f32]) -> Result<()> {
        match self.plugin.scale {
            Some(f) => {
                // SAFETY: as above.
                let f = |chunk: *const _, scaling: *mut _, message: *mut _| unsafe {
                    f(self.context, chunk, scaling, message)
                };
                self.scale_by(f, view, plan, out).map_err(|error| at(&self.name, error))
            }
            None => self.own.affine_into(view, plan, out),
        }
    }
}

impl Drop for PluginKernels {
    fn drop(&mut self) {
        if let Some(destroy) = self.plugin.destroy {
            // SAFETY: the context is the plugin's own, and nothing uses it after this.
            unsafe { destroy(self.context) };
        }
    }
}

fn at(name: &str, error: Error) -> Error {
    error.at(format!("plugin {name}"))
}

fn wrong(what: impl std::fmt::Display) -> Error {
    Error::internal(format!("gave a wrong result: {what}"))
}

/// Checks what a plugin selected, appends it, and says how many entries that were.
#[allow(clippy::needless_bitwise_bool, reason = "without branches it becomes vector instructions")]
fn append_selected(
    view: CsrView<'_>,
    genes: &GeneMap,
    row_lengths: &[u64],
    room: &Room,
    out: &mut CsrBuffer,
) -> Result<usize> {
    let mut indptr = Vec::with_capacity(row_lengths.len() + 1);
    indptr.push(0);
    let mut start = 0;
    for (row, &length) in row_lengths.iter().enumerate() {
        let (cell, most) = (view.first_cell() + row, view.row_range(row).len());
        if length > most as u64 {
            return Err(wrong(format!("cell {cell} keeps {length} entries of {most}")));
        }
        let kept = &room.genes[start..start + length as usize];
        // Looking at all of them at once is faster than stopping at the first.
        if !kept.windows(2).fold(true, |sorted, pair| sorted & (pair[0] < pair[1])) {
            return Err(wrong(format!("genes of cell {cell} do not increase")));
        }
        start += length as usize;
        indptr.push(start as u64);
    }
    let values = room.values.as_ref().slice(0..start);
    let all_good = with_values!(values, |values| values.iter().fold(true, |all, &x| all & x.is_finite() & (x != 0.0)));
    if !all_good {
        let odd = (0..start).map(|at| values.get(at)).find(|value| !value.is_finite() || *value == 0.0);
        return Err(wrong(format!("a kept entry has the value {}", odd.unwrap_or_default())));
    }
    let chosen = CsrView::checked(view.first_cell(), genes.n_selected(), &indptr, &room.genes[..start], values)
        .map_err(|error| wrong("cells were selected wrongly").with_source(error))?;
    out.append(chosen);
    Ok(start)
}

/// The scales of the cells of a chunk.
fn scales<'a>(all: &'a [f64], view: CsrView<'_>) -> Result<&'a [f64]> {
    let cells = view.first_cell()..view.first_cell() + view.n_cells();
    all.get(cells).ok_or_else(|| Error::internal("the plan has fewer cells than the matrix"))
}

fn check_facts(facts: &CountFacts, view: CsrView<'_>) -> Result<()> {
    if facts.n_entries != view.n_entries() as u64 {
        return Err(wrong(format!("{} entries of {}", facts.n_entries, view.n_entries())));
    }
    if facts.n_fractional > facts.n_entries {
        return Err(wrong(format!("{} fractions of {} entries", facts.n_fractional, facts.n_entries)));
    }
    if !(0.0..=LARGEST_COUNT).contains(&facts.largest) {
        return Err(wrong(format!("the largest value is {:e}", facts.largest)));
    }
    Ok(())
}

/// `can_be` says of each gene whether its sum is no larger than it can be.
fn check_sums(mut can_be: impl Iterator<Item = bool>) -> Result<()> {
    match can_be.position(|can_be| !can_be) {
        Some(gene) => Err(wrong(format!("a sum of gene {gene} is larger than it can be"))),
        None => Ok(()),
    }
}
