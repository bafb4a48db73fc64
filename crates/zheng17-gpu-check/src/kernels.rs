//! Each kernel alone, on generated cells that stay on the device: how long it takes, and how that compares with what copies within
//! the device reach.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use zheng17::recipe;
use zheng17::{Context, Params, Result};
use zheng17_core::backend::{Axis, Projection, Reduction, Statistic, Transform, ZeroPreserving};
use zheng17_core::exact::{Arithmetic, MomentPlan, share_weight};
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::ValueKind;
use zheng17_core::{Selection, SparseBackend as _};
use zheng17_cuda::measure::{KernelTime, Profile};
use zheng17_cuda::{Cuda, CudaMatrix};

use crate::cells::{RepeatedCells, Size};
use crate::conformance::shipped;
use crate::copies::measured;
use crate::output::{Output, gigabytes_a_second, number, say};
use crate::traffic::{Matrix, Traffic, Work, traffic};

/// What `kernels` takes.
#[derive(clap::Args)]
pub(crate) struct KernelsArguments {
    #[command(flatten)]
    size: Size,
    /// Genes to select.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    selected: usize,
    /// Components to project on.
    #[arg(long, value_name = "N", default_value_t = 50)]
    components: usize,
}

/// How often an operation is measured, after once that is not counted.
const REPETITIONS: usize = 3;

/// Wide forms take three to four times the bytes of narrow ones, so they get this part of the cells.
const PART_OF_WIDE: usize = 4;

/// Bytes of the copies that kernels are compared with.
const COPY_BYTES: u64 = 1 << 30;

/// Kernels should reach this part of what copies within the device reach.
pub(crate) const GOAL: f64 = 0.6;

/// Values of 32-bit arithmetic are below this power of two here.
const EXPONENT: i32 = 20;

/// What measures operations.
struct Bench<'a> {
    backend: &'a Cuda,
    profile: &'a Profile,
    ctx: Context,
    output: &'a Output,
    /// What the cells are.
    cells: String,
    /// What copies within the device reach, in GB/s.
    ceiling: Option<f64>,
    /// The kernels that were measured, and those of them whose bytes are not known.
    measured: BTreeSet<String>,
    unknown: BTreeSet<String>,
}

/// A matrix of all genes and one of the selected ones, in one form.
struct Subjects<'a> {
    form: &'static str,
    all: &'a CudaMatrix,
    few: &'a CudaMatrix,
    size_of_all: Matrix,
    size_of_few: Matrix,
    genes: Selection,
    plan: OutputPlan,
    /// The totals of the cells.
    totals: &'a [f64],
    n_components: usize,
}

impl Bench<'_> {
    /// Measures an operation.
    fn measure(&mut self, operation: &str, work: Work, run: &dyn Fn(&Cuda, &Context) -> Result<()>) -> Result<()> {
        run(self.backend, &self.ctx)?;
        self.profile.take();
        let mut runs = Vec::new();
        for _ in 0..REPETITIONS {
            run(self.backend, &self.ctx)?;
            runs.push(self.profile.take());
        }
        let Some(first) = runs.first() else { return Ok(()) };
        for time in first {
            let of_kernel = |run: &Vec<KernelTime>| run.iter().find(|other| other.kernel == time.kernel)?.milliseconds;
            let mut times: Vec<f64> = runs.iter().filter_map(of_kernel).collect();
            times.sort_by(f64::total_cmp);
            let time = KernelTime { milliseconds: times.get(times.len() / 2).copied(), ..time.clone() };
            self.tell(operation, &time, traffic(&time, &work))?;
        }
        Ok(())
    }

    /// Says how a kernel did in an operation.
    fn tell(&mut self, operation: &str, time: &KernelTime, traffic: Option<Traffic>) -> Result<()> {
        let rate = |amount: fn(&Traffic) -> f64| {
            let (amount, time) = (amount(traffic.as_ref()?), time.milliseconds.filter(|&time| time > 0.0)?);
            Some(amount / time / 1e6).filter(|&rate| rate > 0.0)
        };
        let gb_s = rate(|traffic| traffic.bytes);
        let fraction = gb_s.zip(self.ceiling).map(|(rate, ceiling)| rate / ceiling);
        say(&format!(
            "{operation}: {}: {} launches, {} ms, {} GB/s, {} of a copy",
            time.kernel,
            time.launches,
            number(time.milliseconds, 3),
            number(gb_s, 1),
            number(fraction, 2)
        ));
        self.output.record(json!({
            "what": "kernel",
            "cells": self.cells,
            "operation": operation,
            "kernel": time.kernel,
            "launches": time.launches,
            "milliseconds": time.milliseconds,
            "bytes": traffic.map(|traffic| traffic.bytes),
            "gb_s": gb_s,
            "fraction": fraction,
            "additions": traffic.map(|traffic| traffic.additions),
            "additions_g_s": rate(|traffic| traffic.additions),
            "operations": traffic.map(|traffic| traffic.operations),
            "tflop_s": rate(|traffic| traffic.operations).map(|rate| rate / 1e3),
        }))?;
        self.measured.insert(time.kernel.clone());
        if traffic.is_none() {
            self.unknown.insert(time.kernel.clone());
        }
        Ok(())
    }

    /// Says which kernels were left out; whether the bytes of the others are known.
    fn finish(self) -> Result<bool> {
        let Self { output, ceiling, measured, unknown, .. } = self;
        let missing: Vec<&str> = shipped().filter(|kernel| !measured.contains(*kernel)).collect();
        if !missing.is_empty() {
            say(&format!("not measured, as no step launches them: {}", missing.join(", ")));
        }
        if !unknown.is_empty() {
            say(&format!("their bytes are not known: {}", unknown.iter().cloned().collect::<Vec<_>>().join(", ")));
        }
        let is_good = unknown.is_empty();
        output.record(
            json!({ "what": "coverage", "not_measured": missing, "unknown_bytes": unknown, "copy_gb_s": ceiling }),
        )?;
        Ok(is_good)
    }

    /// Measures every operation of a run, and those of users, on matrices in one form.
    fn measure_all(&mut self, of: &Subjects<'_>) -> Result<()> {
        let (input, few) = (of.size_of_all, of.size_of_few);
        let sums = Work { input, ..Work::default() };
        let name = |what: &str| format!("{what}, {}", of.form);
        self.measure(&name("totals and moments"), sums, &|backend, ctx| {
            backend.count_summary(of.all, None, ctx).map(drop)
        })?;
        let largest = of.totals.iter().copied().fold(1.0, f64::max);
        for (what, arithmetic, scale) in [
            ("moments of shares", Arithmetic::Share, of.totals.iter().map(|&total| share_weight(total)).collect()),
            ("moments of logs", Arithmetic::Log, of.totals.iter().map(|&total| 1000.0 / total.max(1.0)).collect()),
            (
                "moments in 32 bits",
                Arithmetic::Float32 { log: true, exponent: EXPONENT },
                of.totals.iter().map(|&total| total.max(1.0) / largest).collect::<Arc<[f64]>>(),
            ),
        ] {
            let plan = MomentPlan { cell_scale: scale, arithmetic };
            self.measure(&name(what), sums, &|backend, ctx| backend.moment_summary(of.all, &plan, ctx).map(drop))?;
        }
        let chosen = Work { input, output: few, scans: if of.form == "narrow" { 2 } else { 1 }, components: 0 };
        self.measure(&name("selected genes"), chosen, &|backend, _| {
            backend.select(of.all, &Selection::All, &of.genes).map(drop)
        })?;
        let reductions = [Axis::Cells, Axis::Genes].map(|axis| Reduction { axis, statistic: Statistic::Variance });
        self.measure(&name("means and variances"), sums, &|backend, ctx| {
            backend.reduce(of.all, &reductions, ctx).map(drop)
        })?;
        // What is changed has as many entries, in a wide form.
        let changed = Work { input, output: Matrix { large: 0, ..input }, scans: 1, components: 0 };
        let log = Transform::Map(ZeroPreserving::Log1p);
        self.measure(&name("log1p"), changed, &|backend, _| backend.transform(of.all, &log).map(drop))?;
        let cast = Transform::Cast(if of.form == "f64" { ValueKind::F32 } else { ValueKind::F64 });
        self.measure(&name("cast"), changed, &|backend, _| backend.transform(of.all, &cast).map(drop))?;
        if of.form != "narrow" {
            let logs = self.backend.transform(of.all, &log)?;
            self.measure(&name("products of entries"), changed, &|backend, _| {
                backend.multiply(of.all, &logs).map(drop)
            })?;
        }
        self.measure_outputs(of, Work { input: few, ..Work::default() })
    }

    fn measure_outputs(&mut self, of: &Subjects<'_>, work: Work) -> Result<()> {
        let name = |what: &str| format!("{what}, {}", of.form);
        self.measure(&name("products of gene pairs"), work, &|backend, ctx| {
            backend.gram(of.few, &of.plan, ctx).map(drop)
        })?;
        let (n_genes, n_components) = (of.plan.n_genes(), of.n_components);
        let projection = Projection {
            n_components,
            weights: (0..n_genes * n_components).map(|at| (at % 13) as f64 / 13.0).collect(),
            offset: vec![0.5; n_components],
        };
        let scores = Work { components: n_components as u64, ..work };
        self.measure(&name("scores"), scores, &|backend, ctx| {
            backend.project(of.few, &of.plan, &projection, ctx, &mut |_, _| Ok(()))
        })?;
        self.measure(&name("scaled values"), work, &|backend, ctx| {
            backend.scaled(of.few, &of.plan, ctx, &mut |_, _| Ok(()))
        })?;
        self.measure(&name("normalised values"), work, &|backend, ctx| {
            backend.normalised(of.few, &of.plan, ctx, &mut |_| Ok(()))
        })
    }
}

/// Measures all kernels on the first device.
pub(crate) fn run(arguments: &KernelsArguments, output: &Output) -> Result<bool> {
    let cells = RepeatedCells::generate(arguments.size)?;
    say(&cells.describe());
    let ceiling = measured(output, COPY_BYTES)?.into_iter().next_back();
    let ceiling = ceiling.and_then(|copy| gigabytes_a_second(copy.bytes, copy.milliseconds));
    say(&format!("copies within the device: {} GB/s", number(ceiling, 1)));
    let profile = Arc::new(Profile::default());
    let backend = Arc::new(Cuda::with_profile(Arc::clone(&profile)));
    let ctx = Context { devices: Some(vec![0]), threads: crate::machine::threads(), ..Context::default() };
    let params = Params { n_top_genes: arguments.selected, ..Params::default() };
    let outcome = recipe::run(Arc::clone(&backend), Arc::clone(&cells) as _, &params, &ctx)?;
    let all = backend.open(Arc::clone(&cells) as _, &ctx)?;
    let selected = &outcome.result.selected;
    let size = |n_cells: usize, genes: Option<&[usize]>| {
        let (entries, large) = cells.entries(n_cells, genes);
        let n_genes = genes.map_or(arguments.size.genes, <[usize]>::len);
        Matrix { cells: n_cells as u64, genes: n_genes as u64, entries, large }
    };
    let genes = Selection::Indices(selected.clone());
    let mut bench = Bench {
        backend: &backend,
        profile: &profile,
        ctx,
        output,
        cells: cells.describe(),
        ceiling,
        measured: BTreeSet::new(),
        unknown: BTreeSet::new(),
    };
    let n_cells = arguments.size.cells;
    bench.measure_all(&Subjects {
        form: "narrow",
        all: &all,
        few: &outcome.matrix,
        size_of_all: size(n_cells, None),
        size_of_few: size(n_cells, Some(selected)),
        genes: genes.clone(),
        plan: outcome.output.clone(),
        totals: &outcome.result.cell_totals,
        n_components: arguments.components,
    })?;
    let n_part = (n_cells / PART_OF_WIDE).max(2);
    let part = backend.select(&all, &Selection::Range(0..n_part), &Selection::All)?;
    drop(all);
    let plan = OutputPlan { cell_scale: outcome.output.cell_scale[..n_part].into(), ..outcome.output.clone() };
    for (form, to_form) in
        [("f32", Transform::Map(ZeroPreserving::Times(1.0))), ("f64", Transform::Cast(ValueKind::F64))]
    {
        let wide = backend.transform(&part, &to_form)?;
        let few = backend.select(&wide, &Selection::All, &genes)?;
        let of_wide = |size: Matrix| Matrix { large: 0, ..size };
        bench.measure_all(&Subjects {
            form,
            all: &wide,
            few: &few,
            size_of_all: of_wide(size(n_part, None)),
            size_of_few: of_wide(size(n_part, Some(selected))),
            genes: genes.clone(),
            plan: plan.clone(),
            totals: &outcome.result.cell_totals[..n_part],
            n_components: arguments.components,
        })?;
    }
    bench.finish()
}
