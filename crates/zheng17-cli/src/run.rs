//! `zheng17 run`: a file in, the recipe, a file out, and a summary for people.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use zheng17::Choice;
use zheng17_core::context::{Pass, PassRecorder};
use zheng17_core::recipe::{self, Outcome, Params, RecipeVersion};
use zheng17_core::{AnyBackend, Context, Error, Result, SparseBackend};
use zheng17_io::dataset::{Dataset, OpenOptions};
use zheng17_io::write::{self, Compression, CreateOptions, TemporaryFile};

use crate::arguments::{RecipeArguments, ResourceArguments, RunArguments, WriteX};
use crate::terminal::{self, bytes, complain, count, peak_memory, say, seconds};
use crate::{gene_table, plugins, result_file};

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
        explain: arguments.explain,
        write_x: arguments.write_x,
        gene_table: arguments.gene_table.as_deref(),
        force: arguments.force,
    };
    let mut ctx = context(&recipe.resources, arguments.quiet || arguments.json)?;
    let recorder = Arc::new(PassRecorder::new(ctx.progress));
    ctx.progress = Arc::clone(&recorder) as _;
    let finished = job.execute(&ctx)?;
    if arguments.json {
        return say(&format!("{:#}\n", finished.as_json(&job, &recorder.passes())));
    }
    if !arguments.quiet {
        say(&finished.as_text(&job, &recorder.passes()))?;
    }
    // Quiet or not: a note may say that something of the input is not in the output.
    for note in &finished.notes {
        complain(format_args!("note: {note}"));
    }
    for warning in result_file::warnings(&finished.dataset, &finished.outcome.result) {
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

/// Opens a file for a backend, which may not be there.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for a backend that there is not; those of opening.
pub(crate) fn open(path: &Path, options: OpenOptions, backend: &str, ctx: &Context) -> Result<Dataset> {
    // Before anything is read.
    if backend != zheng17::AUTO {
        zheng17::registry()?.find(backend)?;
    }
    let memory = ctx.memory.map(|memory| memory / SHARE_OF_READERS);
    zheng17_io::open(path, &OpenOptions { memory, ..options })
}

/// One part of the memory in so many may be taken by readers of matrices that are stored by genes.
const SHARE_OF_READERS: u64 = 4;

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

/// What is to be done, from file to file.
pub(crate) struct Job<'a> {
    pub(crate) input: &'a Path,
    pub(crate) options: OpenOptions,
    pub(crate) params: Params,
    pub(crate) backend: &'a str,
    pub(crate) output: &'a Path,
    /// Whether to say how the matrix of the result came about.
    pub(crate) explain: bool,
    pub(crate) write_x: WriteX,
    pub(crate) gene_table: Option<&'a Path>,
    pub(crate) force: bool,
}

impl Job<'_> {
    /// Does it.
    ///
    /// # Errors
    /// As [`run`].
    pub(crate) fn execute(&self, ctx: &Context) -> Result<Finished> {
        let started = Instant::now();
        let inputs = [self.input.to_owned()];
        self.params.check()?;
        self.check_outputs(&inputs)?;
        let before = Stamp::of(self.input);
        let dataset = open(self.input, self.options.clone(), self.backend, ctx)?;
        let Choice { backend, reason } = zheng17::choose(self.backend, &dataset.source, &self.params, ctx)?;
        let backend_name = backend.capabilities().name.clone();
        let outcome = recipe::run(Arc::new(backend), Arc::clone(&dataset.source), &self.params, ctx)?;

        let table = match self.gene_table {
            None => None,
            Some(path) => {
                let mut file = TemporaryFile::create(path, &inputs, self.force)?;
                gene_table::write(&mut file, &dataset.var.index, &outcome.result)?;
                Some(file)
            }
        };
        let options = CreateOptions { force: self.force, inputs: &inputs, compression: Compression::None };
        let mut notes = dataset.notes.clone();
        let written = result_file::write(self.output, &options, &dataset, &outcome, self.write_x, &backend_name, ctx)?;
        notes.extend(written.notes);
        notes.extend(outcome.notes());
        // Most files are read twice: what was read first and what was read last must belong together.
        if Stamp::of(self.input) != before {
            return Err(Error::input("the file was changed while it was read").at(self.input.display()));
        }
        // Both files are complete; what follows only gives them their names.
        notes.extend(written.writer.finish()?);
        if let Some(file) = table {
            file.finish()?;
        }
        Ok(Finished { dataset, outcome, backend: backend_name, reason, notes, time: started.elapsed() })
    }

    /// Before any work: whether the outputs could be written at all.
    fn check_outputs(&self, inputs: &[PathBuf]) -> Result<()> {
        write::check_output(self.output, inputs, self.force)?;
        if let Some(path) = self.gene_table {
            write::check_output(path, inputs, self.force)?;
            if resolved(path)? == resolved(self.output)? {
                return Err(Error::usage("the gene table and the output are the same file").at(path.display()));
            }
        }
        Ok(())
    }
}

/// What changes when a file is written to: its size, its time, and which file it is.
#[derive(Debug, PartialEq, Eq)]
struct Stamp(Option<(u64, Option<SystemTime>, u64)>);

impl Stamp {
    /// Of a file or folder; of none, if nobody may ask, which the reader will complain of.
    fn of(path: &Path) -> Self {
        Self(std::fs::metadata(path).ok().map(|data| (data.len(), data.modified().ok(), identity(&data))))
    }
}

/// Which file it is, where the system numbers them.
#[cfg(unix)]
fn identity(data: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(data)
}

#[cfg(not(unix))]
fn identity(_data: &std::fs::Metadata) -> u64 {
    0
}

/// One name for a file, however it was spelled: for outputs that may not exist yet.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    std::fs::canonicalize(path).or_else(|_| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(std::fs::canonicalize(folder)?.join(path.file_name().unwrap_or_default()))
    })
}

/// A run that succeeded.
pub(crate) struct Finished {
    pub(crate) dataset: Dataset,
    pub(crate) outcome: Outcome<AnyBackend>,
    backend: String,
    /// Why it is this backend, if nobody asked for it.
    reason: Option<String>,
    notes: Vec<String>,
    time: Duration,
}

impl Finished {
    /// What a user wants to know at the end.
    pub(crate) fn as_text(&self, job: &Job<'_>, passes: &[Pass]) -> String {
        let result = &self.outcome.result;
        let mut text = format!("{} ({})\n", self.dataset.path.display(), self.dataset.format);
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
        let reason = self.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
        line("backend", format!("{}{reason}", self.backend));
        line("time", seconds(self.time));
        if let Some(peak) = peak_memory() {
            line("peak memory", bytes(peak));
        }
        line("output", job.output.display().to_string());
        if let Some(path) = job.gene_table {
            line("gene table", path.display().to_string());
        }
        if job.explain {
            text.push('\n');
            text.push_str(&self.explanation(passes));
        }
        text
    }

    /// How the result came about: as the backend tells it, or else the passes over a matrix in memory.
    fn explanation(&self, passes: &[Pass]) -> String {
        self.outcome.explain().unwrap_or_else(|| {
            let mut text = format!("{} holds the matrix in memory\n", self.backend);
            for (at, pass) in passes.iter().enumerate() {
                // Writing to a string can't fail.
                let _ = writeln!(text, "pass {}: {}; {:.2} s", at + 1, pass.name, pass.time.as_secs_f64());
            }
            text
        })
    }

    fn as_json(&self, job: &Job<'_>, passes: &[Pass]) -> Value {
        let result = &self.outcome.result;
        let pass =
            |pass: &Pass| json!({ "name": pass.name, "cells": pass.n_cells, "seconds": pass.time.as_secs_f64() });
        json!({
            "input": self.dataset.path.display().to_string(),
            "format": self.dataset.format.to_string(),
            "output": job.output.display().to_string(),
            "gene_table": job.gene_table.map(|path| path.display().to_string()),
            "recipe_version": result.params.version.name,
            "backend": self.backend,
            "backend_reason": self.reason,
            "n_cells": result.shape.n_cells,
            "n_kept_cells": result.cells.len(),
            "n_genes": result.shape.n_genes,
            "n_kept_genes": result.kept_genes.len(),
            "n_selected_genes": result.selected.len(),
            "target_sum": result.target_sum,
            "hvg_target_sum": result.hvg_target_sum,
            "n_components": result.pca.as_ref().map(|pca| pca.n_components),
            "summary_sha256": result.digest,
            "explanation": job.explain.then(|| self.explanation(passes)),
            "seconds": self.time.as_secs_f64(),
            "cpu_seconds": terminal::cpu_time().map(|time| time.as_secs_f64()),
            "passes": passes.iter().map(pass).collect::<Vec<_>>(),
            "peak_memory_bytes": peak_memory(),
            "warnings": result_file::warnings(&self.dataset, result),
            "notes": self.notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_to_has_another_stamp() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "counts").expect("a file");
        let before = Stamp::of(&path);
        assert_eq!(Stamp::of(&path), before);
        std::fs::write(&path, "counts and more").expect("a file");
        assert_ne!(Stamp::of(&path), before);
        std::fs::remove_file(&path).expect("gone");
        assert_ne!(Stamp::of(&path), before);
    }
}
