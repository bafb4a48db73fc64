//! `zheng17 plan`: what a run would do and take, without running it.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use zheng17::RunPlan;
use zheng17::job;
use zheng17_core::{Result, Shape};
use zheng17_io::dataset::Dataset;

use crate::arguments::PlanArguments;
use crate::run;
use crate::terminal::{bytes, count, grouped, say};

/// Shows what a run would do and take.
///
/// # Errors
/// Those of opening the file and reading a few of its cells, and those that the run would have for its options.
pub(crate) fn plan(arguments: &PlanArguments) -> Result<()> {
    let ctx = run::context(&arguments.recipe.resources, true)?;
    let params = run::params(&arguments.recipe)?;
    params.check()?;
    let dataset = job::open(&arguments.input, arguments.matrix.options(), &arguments.recipe.resources.backend, &ctx)?;
    let values = arguments.write_x.values();
    let plan = zheng17::plan(&arguments.recipe.resources.backend, &dataset.source, &params, values, &ctx)?;
    let size = size_of_input(&arguments.input);
    if arguments.json {
        return say(&format!("{:#}\n", as_json(&dataset, &plan, size)));
    }
    say(&as_text(&dataset, &plan, size))
}

/// Bytes of a file, or of all files in a folder; what can't be asked counts as nothing.
fn size_of_input(path: &Path) -> u64 {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| length(&entry.path())).sum(),
        Err(_) => length(path),
    }
}

/// Bytes of the input that all passes read together.
fn bytes_read(plan: &RunPlan, size: u64) -> u64 {
    plan.passes.iter().map(|(_, share)| (share * size as f64) as u64).sum()
}

fn as_text(dataset: &Dataset, plan: &RunPlan, size: u64) -> String {
    let Shape { n_cells, n_genes } = dataset.source.shape();
    let mut text = format!("{} ({})\n", dataset.path.display(), dataset.format);
    let mut line = |what: &str, value: String| {
        // Writing to a string can't fail.
        let _ = writeln!(text, "  {what:<14} {value}");
    };
    let about = |n: u64| if n == 0 { "nothing".to_owned() } else { format!("about {}", bytes(n)) };
    line("cells x genes", format!("{} x {}, {} entries", count(n_cells), count(n_genes), grouped(plan.n_entries)));
    let reason = plan.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    line("backend", format!("{}{reason}", plan.backend));
    line("threads", count(plan.threads));
    line("chunks", format!("of {} cells", count(plan.chunk_rows)));
    for (at, (what, share)) in plan.passes.iter().enumerate() {
        let reads = match (share * 100.0).round() {
            0.0 => String::new(),
            percent => format!("; reads {percent} % of the file"),
        };
        line(&format!("pass {}", at + 1), format!("{what}{reads}"));
    }
    line("read", about(bytes_read(plan, size)));
    if plan.on_devices > 0 {
        line("kept on GPUs", format!("{}, if they have room", about(plan.on_devices)));
    }
    line("kept in memory", about(plan.matrix));
    line("spilled", about(plan.spilled));
    line("peak memory", about(plan.peak));
    line("output", about(plan.output));
    text
}

fn as_json(dataset: &Dataset, plan: &RunPlan, size: u64) -> Value {
    let Shape { n_cells, n_genes } = dataset.source.shape();
    json!({
        "input": dataset.path.display().to_string(),
        "format": dataset.format.to_string(),
        "n_cells": n_cells,
        "n_genes": n_genes,
        "n_entries": plan.n_entries,
        "backend": plan.backend,
        "backend_reason": plan.reason,
        "threads": plan.threads,
        "chunk_rows": plan.chunk_rows,
        "passes": plan.passes.iter().map(|(what, share)| json!({"what": what, "share_of_input_read": share}))
            .collect::<Vec<_>>(),
        "bytes_read": bytes_read(plan, size),
        "bytes_kept_in_memory": plan.matrix,
        "bytes_kept_on_devices": plan.on_devices,
        "bytes_spilled": plan.spilled,
        "peak_memory_bytes": plan.peak,
        "output_bytes": plan.output,
    })
}
