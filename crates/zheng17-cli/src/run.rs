//! `zheng17 run`: a file in, the recipe, a file out, and a summary for people.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use serde_json::{Value, json};
use zheng17::job::{Finished, Job};
use zheng17_core::context::{Pass, PassRecorder};
use zheng17_core::recipe::{Params, RecipeVersion};
use zheng17_core::{Context, Error, Result};

use crate::arguments::{RecipeArguments, ResourceArguments, RunArguments};
use crate::plugins;
use crate::terminal::{self, bytes, complain, count, peak_memory, say, seconds};

/// Runs the recipe on a file.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for options that make no sense or outputs that exist; those of
/// reading, of the recipe and of writing. No output is left then.
pub(crate) fn run(arguments: &RunArguments) -> Result<()> {
    let recipe = &arguments.recipe;
    let job = Job {
        input: &arguments.input,
        options: arguments.matrix.options(),
        params: params(recipe)?,
        backend: &recipe.resources.backend,
        output: &arguments.output,
        values: arguments.write_x.values(),
        gene_table: arguments.gene_table.as_deref(),
        force: arguments.force,
    };
    let mut ctx = context(&recipe.resources, arguments.quiet || arguments.json)?;
    let recorder = Arc::new(PassRecorder::new(ctx.progress));
    ctx.progress = Arc::clone(&recorder) as _;
    let finished = job.execute(&ctx)?;
    if arguments.json {
        return say(&format!("{:#}\n", as_json(&finished, &job, &recorder.passes(), arguments.explain)));
    }
    if !arguments.quiet {
        say(&as_text(&finished, &job, &recorder.passes(), arguments.explain))?;
    }
    // Quiet or not: a note may say that something of the input is not in the output.
    for note in &finished.notes {
        complain(format_args!("note: {note}"));
    }
    for warning in finished.warnings() {
        complain(format_args!("warning: {warning}"));
    }
    Ok(())
}

/// What the recipe should do.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for a version that there is not.
pub(crate) fn params(recipe: &RecipeArguments) -> Result<Params> {
    Ok(Params {
        version: RecipeVersion::from_name(&recipe.recipe_version)?,
        n_top_genes: recipe.top_genes,
        log: !recipe.no_log,
        max_value: recipe.max_value,
        components: recipe.pca,
    })
}

/// Plugins, threads, signals and progress of a run.
///
/// # Errors
/// Those of loading plugins; [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for a folder that there is not;
/// [`ErrorKind::System`](zheng17_core::ErrorKind::System) if the system refuses to tell of signals.
pub(crate) fn context(resources: &ResourceArguments, quiet: bool) -> Result<Context> {
    plugins::load(&resources.plugins, Some(&resources.backend))?;
    let spill_folder = resources.tmp.clone().unwrap_or_else(std::env::temp_dir);
    if !spill_folder.is_dir() {
        return Err(Error::usage("there is no such folder for temporary files").at(spill_folder.display()));
    }
    let mut ctx = Context {
        memory: resources.memory,
        spill_folder: Some(spill_folder),
        chunk_rows: resources.chunk_rows,
        devices: resources.devices.clone(),
        device_memory: resources.device_memory,
        cancel: terminal::stop_on_signals()?,
        progress: terminal::progress(quiet),
        ..Context::default()
    };
    let asked = resources.threads.and_then(|threads| NonZeroUsize::new(usize::try_from(threads).ok()?));
    if let Some(threads) = asked.or_else(|| available_parallelism().ok()) {
        ctx.threads = threads;
    }
    Ok(ctx)
}

/// What a user wants to know at the end.
pub(crate) fn as_text(finished: &Finished, job: &Job<'_>, passes: &[Pass], explain: bool) -> String {
    let result = &finished.outcome.result;
    let mut text = format!("{} ({})\n", finished.dataset.path.display(), finished.dataset.format);
    let mut line = |what: &str, value: String| {
        // Writing to a string can't fail.
        let _ = writeln!(text, "  {what:<14} {value}");
    };
    let dropped = result.shape.n_cells - result.cells.len();
    let kept = if dropped == 0 { String::new() } else { format!(", {} kept", count(result.cells.len())) };
    line("cells", format!("{}{kept}", count(result.shape.n_cells)));
    line(
        "genes",
        format!(
            "{}, {} kept (with counts), {} selected (most variable)",
            count(result.shape.n_genes),
            count(result.kept_genes.len()),
            count(result.selected.len())
        ),
    );
    line("target sum", format!("{} counts a cell (the median)", terminal::rounded(result.target_sum)));
    if let Some(pca) = &result.pca {
        let share = 100.0 * pca.variance_ratios.iter().sum::<f64>();
        line("components", format!("{}, with {share:.1} % of the variance", pca.n_components));
    }
    line("recipe", result.params.version.name.to_owned());
    let reason = finished.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    line("backend", format!("{}{reason}", finished.backend));
    line("time", seconds(finished.time));
    if let Some(peak) = peak_memory() {
        line("peak memory", bytes(peak));
    }
    line("output", job.output.display().to_string());
    if let Some(path) = job.gene_table {
        line("gene table", path.display().to_string());
    }
    if explain {
        text.push('\n');
        text.push_str(&explanation(finished, passes));
    }
    text
}

/// How the result came about: as the backend tells it, or else the passes over a matrix in memory.
fn explanation(finished: &Finished, passes: &[Pass]) -> String {
    finished.outcome.explain().unwrap_or_else(|| {
        let mut text = format!("{} holds the matrix in memory\n", finished.backend);
        for (at, pass) in passes.iter().enumerate() {
            // Writing to a string can't fail.
            let _ = writeln!(text, "pass {}: {}; {:.2} s", at + 1, pass.name, pass.time.as_secs_f64());
        }
        text
    })
}

fn as_json(finished: &Finished, job: &Job<'_>, passes: &[Pass], explain: bool) -> Value {
    let result = &finished.outcome.result;
    let pass = |pass: &Pass| json!({ "name": pass.name, "cells": pass.n_cells, "seconds": pass.time.as_secs_f64() });
    json!({
        "input": finished.dataset.path.display().to_string(),
        "format": finished.dataset.format.to_string(),
        "output": job.output.display().to_string(),
        "gene_table": job.gene_table.map(|path| path.display().to_string()),
        "recipe_version": result.params.version.name,
        "backend": finished.backend,
        "backend_reason": finished.reason,
        "n_cells": result.shape.n_cells,
        "n_kept_cells": result.cells.len(),
        "n_genes": result.shape.n_genes,
        "n_kept_genes": result.kept_genes.len(),
        "n_selected_genes": result.selected.len(),
        "target_sum": result.target_sum,
        "hvg_target_sum": result.hvg_target_sum,
        "n_components": result.pca.as_ref().map(|pca| pca.n_components),
        "summary_sha256": result.digest,
        "explanation": explain.then(|| explanation(finished, passes)),
        "seconds": finished.time.as_secs_f64(),
        "cpu_seconds": terminal::cpu_time().map(|time| time.as_secs_f64()),
        "passes": passes.iter().map(pass).collect::<Vec<_>>(),
        "peak_memory_bytes": peak_memory(),
        "warnings": finished.warnings(),
        "notes": finished.notes,
    })
}
