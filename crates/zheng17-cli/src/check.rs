//! `zheng17 plugins check`, and a look at one plugin for `plugins list`: both in a process of its own, which may crash, hang, or end
//! with success before it is done. What it says is read while it runs, and it ends when this process does.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zheng17_core::backend::Determinism;
use zheng17_core::recipe::{self, Outcome, Params, RecipeResult};
use zheng17_core::{AnyBackend, ChunkSource, Context, Error, ErrorKind, Result};
use zheng17_simulate::{Parameters, Simulation};

use crate::arguments::CheckArguments;
use crate::terminal::{complain, say};

/// Comes before what the process found, and shows that it came so far.
const DONE: &str = "\n--- done with the plugin; found:\n";

/// How much is kept of what a plugin prints: the end.
const MOST_KEPT: usize = 64 << 10;

/// How many lines of it are shown when something went wrong.
const MOST_SHOWN: usize = 5;

/// How long output may take to come once the process has ended; others that it started may hold it open for ever.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Checks a plugin.
///
/// # Errors
/// [`ErrorKind::Usage`] if it is none; [`ErrorKind::Internal`] if it is wrong, crashes, is not done in time or ends its process.
pub(crate) fn check(arguments: &CheckArguments) -> Result<()> {
    if arguments.in_this_process {
        return examine(&arguments.plugin, arguments.only_load);
    }
    let found = apart(&arguments.plugin, &[], Duration::from_secs(arguments.time_limit))?;
    say(&found)
}

/// Loads a plugin, and gives its name and its description.
///
/// # Errors
/// As [`check`].
pub(crate) fn look(plugin: &Path) -> Result<String> {
    const LIMIT: Duration = Duration::from_secs(10);
    Ok(apart(plugin, &["--only-load"], LIMIT)?.trim_end().to_owned())
}

/// Examines a plugin in a process of its own.
fn apart(plugin: &Path, options: &[&str], limit: Duration) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["plugins", "check", "--in-this-process"]).args(options).arg("--").arg(plugin);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn()?;
    let (found, complaints) = (Listener::new(child.stdout.take()), Listener::new(child.stderr.take()));
    let status = wait(&mut child, limit)?;
    let (found, complaints) = (found.all(), complaints.all());
    if status.is_some_and(|status| status.success())
        && let Some((_, found)) = found.split_once(DONE)
    {
        return Ok(found.to_owned());
    }
    let error = complaints.lines().rev().find_map(|line| line.strip_prefix("error: "));
    let others = complaints.lines().filter(|line| error.is_none_or(|error| !line.ends_with(error)));
    let others: Vec<&str> = found.lines().chain(others).filter(|line| !line.trim().is_empty()).collect();
    for line in &others[others.len().saturating_sub(MOST_SHOWN)..] {
        complain(format_args!("the plugin's process said: {}", line.escape_debug()));
    }
    let ended = |how: &str| Error::internal(format!("the plugin ended its process before it was examined{how}"));
    Err(match (status, error) {
        (None, _) => Error::internal(format!("the plugin was stopped: it was not done after {} s", limit.as_secs())),
        (Some(status), Some(error)) if status.code().is_some() => {
            let is_usage = status.code() == Some(i32::from(ErrorKind::Usage.exit_code()));
            return Err(Error::new(if is_usage { ErrorKind::Usage } else { ErrorKind::Internal }, error));
        }
        (Some(status), _) if status.success() => ended(""),
        (Some(status), _) => ended(&format!(": {status}")),
    }
    .at(plugin.display()))
}

/// Waits for the process to end; if that takes too long, ends it and all that it started, and gives nothing.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    const LOOK_AGAIN: Duration = Duration::from_millis(5);
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > limit {
            #[cfg(unix)]
            // A group that is gone already needs no ending.
            let _ = rustix::process::kill_process_group(
                rustix::process::Pid::from_child(child),
                rustix::process::Signal::KILL,
            );
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Reads what a process says while it runs, and keeps the end of it.
struct Listener {
    said: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Listener {
    fn new(from: Option<impl Read + Send + 'static>) -> Self {
        let said = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&said);
        let listen = move || {
            let mut buffer = [0; 4096];
            let Some(mut from) = from else { return };
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                let mut said = to.lock().unwrap_or_else(PoisonError::into_inner);
                said.extend_from_slice(&buffer[..n]);
                let too_much = said.len().saturating_sub(MOST_KEPT);
                said.drain(..too_much);
            }
        };
        Self { said, thread: std::thread::spawn(listen) }
    }

    /// The end of all that was said.
    fn all(self) -> String {
        let started = Instant::now();
        while !self.thread.is_finished() && started.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// Loads the plugin here; unless that is all, runs the recipe on simulated cells with it and with the reference.
fn examine(plugin: &Path, only_load: bool) -> Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(std::io::Error::from)?;
    let capabilities = zheng17::load_watched_plugin(plugin)?;
    let found = format!("{}: {}\n", capabilities.name, capabilities.description);
    if only_load {
        return say(&format!("{DONE}{found}"));
    }
    let registry = zheng17::registry()?;
    let source: Arc<dyn ChunkSource> = Arc::new(Simulation::new(Parameters { n_cells: 500, n_genes: 1500, seed: 17 })?);
    let params = Params { n_top_genes: 100, ..Params::default() };
    let run =
        |name: &str| recipe::run(Arc::new(registry.create(name)?), Arc::clone(&source), &params, &Context::default());
    let (outcome, reference) = (run(&capabilities.name)?, run("serial")?);
    let mut wrong = difference(&outcome.result, &reference.result);
    if wrong.is_none() {
        let n_genes = reference.result.selected.len();
        let (found, expected) = (scaled(&outcome)?, scaled(&reference)?);
        let close = |at: &usize| is_close(found[*at], expected[*at], capabilities.determinism);
        let at = (0..expected.len()).find(|at| found.len() != expected.len() || !close(at));
        wrong = at.map(|at| {
            let (cell, gene) = (at / n_genes, at % n_genes);
            format!("scaled values differ, first those of cell {cell} and selected gene {gene}")
        });
    }
    // Giving the context back is part of it.
    drop(outcome);
    if let Some(what) = wrong {
        let text = format!("{what}, from those of the reference; `cargo xtask conformance --plugin` says more");
        return Err(Error::internal(text).at(plugin.display()));
    }
    say(&format!(
        "{DONE}{found}On 500 simulated cells it agrees with the reference. The conformance suite says more.\n"
    ))
}

/// What differs first.
fn difference(found: &RecipeResult, expected: &RecipeResult) -> Option<String> {
    let numbers = [
        ("totals of cells", "cell", &found.cell_totals, &expected.cell_totals),
        ("totals of genes", "gene", &found.gene_totals, &expected.gene_totals),
        ("means", "kept gene", &found.means, &expected.means),
        ("variances", "kept gene", &found.variances, &expected.variances),
        ("scores", "kept gene", &found.scores, &expected.scores),
        ("totals over selected genes", "cell", &found.hvg_totals, &expected.hvg_totals),
        ("means of scaled genes", "selected gene", &found.scale_mean, &expected.scale_mean),
        ("deviations of scaled genes", "selected gene", &found.scale_deviation, &expected.scale_deviation),
    ];
    for (what, of, found, expected) in numbers {
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        if found.len() != expected.len() {
            return Some(format!("the number of {what} differs"));
        }
        if let Some(at) = found.iter().zip(expected).position(|pair| !same(pair)) {
            return Some(format!("{what} differ, first that of {of} {at}: {} instead of {}", found[at], expected[at]));
        }
    }
    if found.selected != expected.selected {
        return Some("selected genes differ".to_owned());
    }
    (found.digest != expected.digest).then(|| "totals and moments differ".to_owned())
}

fn scaled(outcome: &Outcome<AnyBackend>) -> Result<Vec<f32>> {
    let mut values = Vec::new();
    outcome.scaled(&Context::default(), &mut |_, rows| {
        values.extend_from_slice(rows);
        Ok(())
    })?;
    Ok(values)
}

fn is_close(found: f32, expected: f32, determinism: Determinism) -> bool {
    match determinism {
        Determinism::SameBits | Determinism::SameBitsButPca => found.to_bits() == expected.to_bits(),
        // What one unit in the last place of 64 bits can become when it is rounded to 32.
        Determinism::SameBitsUpToLog => (found - expected).abs() <= f32::EPSILON * expected.abs().max(1.0),
    }
}
