//! A plugin as [`ChunkKernels`]: calls it, checks what it gives back, and adds it to what the host has.

use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use zheng17_core::exact::{
    Arithmetic, CountFacts, CountSummary, GeneCounts, GeneMoments, MOST_SQUARES, MOST_SUM, MOST_TOTAL, MomentPlan,
    MomentSummary, fixed_total, total_from_fixed,
};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{CsrBuffer, CsrView, GeneMap, ValueKind, ValuesRef};
use zheng17_core::source::LARGEST_COUNT;
use zheng17_core::{ChunkKernels, Error, Result, with_values};
use zheng17_kernels::FastKernels;
use zheng17_plugin_abi as abi;

use crate::calls::{call, chunk, number};
use crate::ending::running;
use crate::room::Room;

/// How many cells a plugin is given at a time where the caller has more: its results need room for all entries, and are best
/// looked at while they are in a cache.
const MOST_CELLS_A_CALL: usize = 1024;

/// The functions of a plugin with a context of its own.
pub struct PluginKernels {
    name: String,
    plugin: abi::Plugin,
    context: *mut c_void,
    /// Whether the plugin is watched more closely than is cheap: see [`LoadedPlugin::watched`](crate::LoadedPlugin::watched).
    watched: bool,
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

impl PluginKernels {
    /// Makes the plugin's context.
    pub(crate) fn new(name: &str, plugin: abi::Plugin, watched: bool) -> Result<Self> {
        let mut context = std::ptr::null_mut();
        if let Some(create) = plugin.create {
            // SAFETY: both pointers are valid for the call.
            let create = |message: *mut _| unsafe { create(&raw mut context, message) };
            call(&whose(name), "in create", create).map_err(|error| at(name, error))?;
        }
        let concurrent = plugin.flags & abi::FLAG_CONCURRENT != 0;
        let one_at_a_time = (!concurrent).then(Mutex::default);
        Ok(Self {
            name: name.to_owned(),
            plugin,
            context,
            watched,
            own: FastKernels::default(),
            one_at_a_time,
            rooms: Mutex::default(),
        })
    }

    fn wait(&self) -> Option<MutexGuard<'_, ()>> {
        self.one_at_a_time.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes one call. Of a watched plugin what it was given is compared with what was there before.
    fn call(
        &self,
        what: &'static str,
        given: &dyn Fn(&mut DefaultHasher),
        f: impl FnOnce(*mut abi::Message) -> i32,
    ) -> Result<()> {
        let digest = || {
            let mut hasher = DefaultHasher::new();
            given(&mut hasher);
            hasher.finish()
        };
        let before = self.watched.then(digest);
        {
            let _waited = self.wait();
            call(&whose(&self.name), what, f)?;
        }
        if before.is_some_and(|before| before != digest()) {
            return Err(Error::internal(format!("changed what it was given to read {what}")));
        }
        Ok(())
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
            let excluded: Option<Vec<u8>> =
                into.excluded().map(|flags| flags.iter().map(|&flag| u8::from(flag)).collect());
            let mut counts = abi::Counts {
                excluded: excluded.as_ref().map_or(std::ptr::null(), Vec::as_ptr),
                genes: room.counts.fresh(view.n_genes()),
                cell_totals: room.cell_totals.fresh(view.n_cells()),
                n_entries: 0,
                n_fractional: 0,
                largest: 0.0,
            };
            let chunk = chunk(view);
            let given = |hasher: &mut DefaultHasher| {
                hash_chunk(view, hasher);
                excluded.hash(hasher);
            };
            // All pointers are valid for the call, and results have the room that the interface states.
            self.call("in fold_counts", &given, |message| f(&raw const chunk, &raw mut counts, message))?;
            room.counts.check("fold_counts", "sums of genes")?;
            room.cell_totals.check("fold_counts", "totals of cells")?;
            let facts =
                CountFacts { n_entries: counts.n_entries, n_fractional: counts.n_fractional, largest: counts.largest };
            check_facts(&facts, view)?;
            let cell_totals = room.cell_totals.items().to_vec();
            for (at, total) in cell_totals.iter().enumerate() {
                if !(0.0..=LARGEST_COUNT).contains(total) {
                    let cell = view.first_cell() + at;
                    return Err(wrong(format!("cell {cell} has a total of {total:e}")));
                }
            }
            let n_cells = view.n_cells() as u128;
            let genes = &mut room.checked_counts;
            genes.clear();
            genes.extend(room.counts.items().iter().map(|sums| GeneCounts {
                total: number(sums.total),
                sum: number(sums.sum),
                sum_of_squares: number(sums.sum_of_squares),
            }));
            check_sums(genes.iter().map(|sums| sums.total <= n_cells * MOST_TOTAL))?;
            check_sums(genes.iter().map(|sums| sums.sum <= n_cells * MOST_SUM))?;
            check_sums(genes.iter().map(|sums| sums.sum_of_squares <= n_cells * MOST_SQUARES))?;
            check_totals(&cell_totals, genes, into.excluded())?;
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
            let cell_scale = scales(&plan.cell_scale, view)?;
            let mut moments = abi::Moments {
                cell_scale: cell_scale.as_ptr(),
                genes: room.moments.fresh(view.n_genes()),
                arithmetic,
                log: u32::from(log),
                exponent,
                reserved: 0,
            };
            let chunk = chunk(view);
            let given = |hasher: &mut DefaultHasher| {
                hash_chunk(view, hasher);
                hash_numbers(cell_scale, hasher);
            };
            // All pointers are valid for the call, and results have the room that the interface states.
            self.call("in fold_moments", &given, |message| f(&raw const chunk, &raw mut moments, message))?;
            room.moments.check("fold_moments", "moments of genes")?;
            let n_cells = view.n_cells() as u128;
            let genes = &mut room.checked_moments;
            genes.clear();
            genes.extend(
                room.moments
                    .items()
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
            let n_entries = view.n_entries();
            let kind = view.values().kind();
            let values = match kind {
                ValueKind::F32 => room.values_32.again(n_entries).cast(),
                ValueKind::F64 => room.values_64.again(n_entries).cast(),
            };
            let mut selected = abi::Selected {
                new_index: genes.new_index().as_ptr(),
                n_selected: genes.n_selected() as u64,
                row_lengths: room.row_lengths.fresh(view.n_cells()),
                indices: room.genes.again(n_entries),
                values,
            };
            let chunk = chunk(view);
            let given = |hasher: &mut DefaultHasher| {
                hash_chunk(view, hasher);
                genes.new_index().hash(hasher);
            };
            // All pointers are valid for the call, and results have the room that the interface states.
            self.call("in select", &given, |message| f(&raw const chunk, &raw mut selected, message))?;
            room.row_lengths.check("select", "lengths of rows")?;
            room.genes.check("select", "genes of entries")?;
            match kind {
                ValueKind::F32 => room.values_32.check("select", "values of entries")?,
                ValueKind::F64 => room.values_64.check("select", "values of entries")?,
            }
            let kept = append_selected(view, genes, room, out)?;
            room.genes.forget(0);
            match kind {
                ValueKind::F32 => room.values_32.forget(kept),
                ValueKind::F64 => room.values_64.forget(kept),
            }
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
        if self.watched {
            return self.with_room(|room| {
                let at = room.scaled.fresh(out.len());
                self.scale_to(&f, view, plan, at)?;
                room.scaled.check("scale", "scaled values")?;
                out.copy_from_slice(room.scaled.items());
                check_scaled(view, out)
            });
        }
        self.scale_to(&f, view, plan, out.as_mut_ptr())
            .and_then(|()| check_scaled(view, out))
            .map_err(|error| at(&self.name, error))
    }

    /// Calls `scale` with room for its results.
    fn scale_to(
        &self,
        f: impl Fn(*const abi::Chunk, *mut abi::Scaling, *mut abi::Message) -> i32,
        view: CsrView<'_>,
        plan: &OutputPlan,
        out: *mut f32,
    ) -> Result<()> {
        let cell_scale = scales(&plan.cell_scale, view)?;
        let mut scaling = abi::Scaling {
            cell_scale: cell_scale.as_ptr(),
            mean: plan.mean.as_ptr(),
            inverse_deviation: plan.inverse_deviation.as_ptr(),
            out,
            max_value: plan.max_value.unwrap_or(f64::INFINITY),
            log: u32::from(plan.log),
            reserved: 0,
        };
        let chunk = chunk(view);
        let given = |hasher: &mut DefaultHasher| {
            hash_chunk(view, hasher);
            for numbers in [cell_scale, &plan.mean, &plan.inverse_deviation] {
                hash_numbers(numbers, hasher);
            }
        };
        // All pointers are valid for the call, and results have the room that the interface states.
        self.call("in scale", &given, |message| f(&raw const chunk, &raw mut scaling, message))
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
                self.scale_by(f, view, plan, out)
            }
            None => self.own.affine_into(view, plan, out),
        }
    }
}

impl Drop for PluginKernels {
    fn drop(&mut self) {
        if let Some(destroy) = self.plugin.destroy {
            // SAFETY: the context is the plugin's own, and nothing uses it after this.
            running(&whose(&self.name), "in destroy", || unsafe { destroy(self.context) });
        }
    }
}

fn whose(name: &str) -> String {
    format!("plugin {name}")
}

fn at(name: &str, error: Error) -> Error {
    error.at(whose(name))
}

fn wrong(what: impl std::fmt::Display) -> Error {
    Error::internal(format!("gave a wrong result: {what}"))
}

/// Checks what a plugin selected, appends it, and says how many entries that were.
#[allow(clippy::needless_bitwise_bool, reason = "without branches it becomes vector instructions")]
fn append_selected(view: CsrView<'_>, genes: &GeneMap, room: &Room, out: &mut CsrBuffer) -> Result<usize> {
    let row_lengths = room.row_lengths.items();
    let mut indptr = Vec::with_capacity(row_lengths.len() + 1);
    indptr.push(0);
    let mut start = 0;
    for (row, &length) in row_lengths.iter().enumerate() {
        let (cell, most) = (view.first_cell() + row, view.row_range(row).len());
        if length > most as u64 {
            return Err(wrong(format!("cell {cell} keeps {length} entries of {most}")));
        }
        let kept = &room.genes.items()[start..start + length as usize];
        // Looking at all of them at once is faster than stopping at the first.
        if !kept.windows(2).fold(true, |sorted, pair| sorted & (pair[0] < pair[1])) {
            return Err(wrong(format!("genes of cell {cell} do not increase")));
        }
        start += length as usize;
        indptr.push(start as u64);
    }
    let values = room.values(view.values().kind()).slice(0..start);
    let all_good = with_values!(values, |values| values.iter().fold(true, |all, &x| all & x.is_finite() & (x != 0.0)));
    if !all_good {
        let odd = (0..start).map(|at| values.get(at)).find(|value| !value.is_finite() || *value == 0.0);
        return Err(wrong(format!("a kept entry has the value {}", odd.unwrap_or_default())));
    }
    let chosen = CsrView::checked(view.first_cell(), genes.n_selected(), &indptr, &room.genes.items()[..start], values)
        .map_err(|error| wrong("cells were selected wrongly").with_source(error))?;
    out.append(chosen);
    Ok(start)
}

fn check_scaled(view: CsrView<'_>, out: &[f32]) -> Result<()> {
    // Whether there is one is found faster than where it is.
    if !out.iter().fold(false, |found, value| found | value.is_nan()) {
        return Ok(());
    }
    let at = out.iter().position(|value| value.is_nan()).unwrap_or(0);
    let n_genes = view.n_genes();
    Err(wrong(format!("cell {} has NaN for gene {}", view.first_cell() + at / n_genes, at % n_genes)))
}

fn hash_chunk(view: CsrView<'_>, hasher: &mut DefaultHasher) {
    view.indptr().hash(hasher);
    view.indices().hash(hasher);
    match view.values() {
        ValuesRef::F32(values) => {
            for value in values {
                hasher.write_u32(value.to_bits());
            }
        }
        ValuesRef::F64(values) => hash_numbers(values, hasher),
    }
}

fn hash_numbers(numbers: &[f64], hasher: &mut DefaultHasher) {
    for number in numbers {
        hasher.write_u64(number.to_bits());
    }
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

/// Totals of cells and of genes are sums of the same numbers. That of a cell was rounded to 64 bits, which moves it by half of its
/// last place at most, and not at all below 2^53 units; every other difference is a mistake.
fn check_totals(cell_totals: &[f64], genes: &[GeneCounts], excluded: Option<&[bool]>) -> Result<()> {
    let (mut of_cells, mut rounding) = (0_u128, 0_u128);
    for &total in cell_totals {
        let units = fixed_total(total);
        of_cells += units;
        rounding += units >> f64::MANTISSA_DIGITS;
    }
    let of_genes: u128 = match excluded {
        None => genes.iter().map(|sums| sums.total).sum(),
        Some(flags) => genes.iter().zip(flags).filter(|(_, excluded)| !**excluded).map(|(sums, _)| sums.total).sum(),
    };
    let difference = of_cells.abs_diff(of_genes);
    if difference <= rounding {
        return Ok(());
    }
    let [of_cells, of_genes, difference] = [of_cells, of_genes, difference].map(total_from_fixed);
    Err(wrong(format!(
        "the totals of cells come to {of_cells}, those of genes to {of_genes}, which differ by {difference:e}"
    )))
}
