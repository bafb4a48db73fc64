//! `zheng17 plugins`, and where plugins are looked for: files that are named, folders that are named, a folder of the user.
//!
//! Looking for plugins runs their code, so nobody's folder is read by chance: never the current one, and the user's own only if
//! nobody else can have put something there.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use zheng17_core::backend::{BackendEntry, Determinism, Origin};
use zheng17_core::recipe::{self, Outcome, Params};
use zheng17_core::{AnyBackend, ChunkSource, Context, Error, ErrorKind, Result};
use zheng17_simulate::{Parameters, Simulation};

use crate::arguments::{CheckArguments, PluginsArguments, PluginsCommand};
use crate::terminal::{complain, say};

/// Folders to look for plugins in, separated as in `PATH`.
const PATH_VARIABLE: &str = "ZHENG17_PLUGIN_PATH";

/// Lists or checks plugins.
///
/// # Errors
/// Those of looking for plugins; for a check those of the plugin.
pub(crate) fn plugins(arguments: &PluginsArguments) -> Result<()> {
    match &arguments.command {
        PluginsCommand::List => list(),
        PluginsCommand::Check(arguments) if arguments.in_this_process => examine(&arguments.plugin),
        PluginsCommand::Check(arguments) => check(arguments),
    }
}

/// Loads the plugins that were named, and those that are found, unless a backend is asked for that is there without them.
///
/// # Errors
/// Those of [`zheng17::load_plugin`] for named ones, and of looking. Found ones that can't be loaded are warned of.
pub(crate) fn load(named: &[PathBuf], backend: Option<&str>) -> Result<()> {
    for plugin in named {
        zheng17::load_plugin(plugin)?;
    }
    if let Some(backend) = backend {
        let registry = zheng17::registry()?;
        // A linked backend gives way to one that is found.
        let is_there = |entry: &BackendEntry| !matches!(entry.origin, Origin::Linked(_));
        if backend == zheng17::AUTO || registry.find(backend).is_ok_and(is_there) {
            return Ok(());
        }
    }
    for plugin in find()? {
        if let Err(error) = zheng17::load_plugin(&plugin) {
            complain(format_args!("warning: {error}"));
        }
    }
    Ok(())
}

fn list() -> Result<()> {
    let mut text = String::new();
    for plugin in find()? {
        let what = match zheng17::load_plugin(&plugin) {
            Ok(backend) => format!("{}: {}", backend.name, backend.description),
            Err(error) => format!("error: {}", error.message()),
        };
        text.extend([plugin.display().to_string(), format!("\n    {what}\n")]);
    }
    if text.is_empty() {
        text = format!("no plugins were found; {PATH_VARIABLE} names folders that have some\n");
    }
    say(&text)
}

/// The shared libraries in the folders where plugins are looked for, in order.
fn find() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let folders = std::env::var_os(PATH_VARIABLE).filter(|folders| !folders.is_empty());
    for folder in folders.iter().flat_map(|folders| std::env::split_paths(folders)) {
        if !folder.is_absolute() {
            let text =
                format!("{PATH_VARIABLE} names \"{}\", but folders must be given from the root", folder.display());
            return Err(Error::usage(text));
        }
        found.append(&mut libraries(&folder)?);
    }
    if let Some(folder) = user_folder().filter(|folder| folder.is_dir()) {
        let libraries = libraries(&folder)?;
        for path in std::iter::once(&folder).chain(&libraries) {
            if !belongs_to_the_user_alone(path) {
                let text = "is not used: it must belong to you, and nobody else may write it";
                return Err(Error::usage(text).at(path.display()));
            }
        }
        found.extend(libraries);
    }
    Ok(found)
}

fn libraries(folder: &Path) -> Result<Vec<PathBuf>> {
    let refused = |error: std::io::Error| Error::usage("can't be read").with_source(error).at(folder.display());
    let mut libraries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(refused)? {
        let path = entry.map_err(refused)?.path();
        if path.extension() == Some(OsStr::new(std::env::consts::DLL_EXTENSION)) {
            libraries.push(path);
        }
    }
    libraries.sort();
    Ok(libraries)
}

/// `$XDG_DATA_HOME/zheng17/plugins`, or `~/.local/share/zheng17/plugins`. Only on Linux, where the system says whose process this is.
fn user_folder() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(data.join("zheng17/plugins"))
}

#[cfg(unix)]
fn belongs_to_the_user_alone(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    /// Others of the group, and everybody else, may write.
    const OTHERS_MAY_WRITE: u32 = 0o022;
    match (std::fs::metadata(path), std::fs::metadata("/proc/self")) {
        (Ok(file), Ok(process)) => file.uid() == process.uid() && file.mode() & OTHERS_MAY_WRITE == 0,
        _ => false,
    }
}

#[cfg(not(unix))]
fn belongs_to_the_user_alone(_path: &Path) -> bool {
    false
}

/// Checks a plugin in a process of its own, which may crash or never end.
fn check(arguments: &CheckArguments) -> Result<()> {
    let plugin = &arguments.plugin;
    let limit = Duration::from_secs(arguments.time_limit);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["plugins", "check", "--in-this-process"]).arg(plugin).stdin(Stdio::null()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            let text = format!("the plugin was stopped: it was not done after {} s", arguments.time_limit);
            return Err(Error::internal(text).at(plugin.display()));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_string(&mut said)?;
    }
    let line = said.lines().rev().find_map(|line| line.strip_prefix("error: "));
    Err(match (status.code(), line) {
        (Some(code), Some(line)) => {
            let kind =
                if code == i32::from(ErrorKind::Usage.exit_code()) { ErrorKind::Usage } else { ErrorKind::Internal };
            Error::new(kind, line)
        }
        _ => Error::internal(format!("the plugin ended its process: {status}")).at(plugin.display()),
    })
}

/// Runs the recipe on simulated cells with a plugin and with the reference.
fn examine(plugin: &Path) -> Result<()> {
    let capabilities = zheng17::load_plugin(plugin)?;
    let registry = zheng17::registry()?;
    let source: Arc<dyn ChunkSource> = Arc::new(Simulation::new(Parameters { n_cells: 500, n_genes: 1500, seed: 17 })?);
    let params = Params { n_top_genes: 100, ..Params::default() };
    let run =
        |name: &str| recipe::run(Arc::new(registry.create(name)?), Arc::clone(&source), &params, &Context::default());
    let (found, expected) = (run(&capabilities.name)?, run("serial")?);
    let same = |a: &[f64], b: &[f64]| a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()));
    let (result, reference) = (&found.result, &expected.result);
    let wrong = if result.digest != reference.digest {
        Some("totals and moments")
    } else if result.selected != reference.selected || !same(&result.scores, &reference.scores) {
        Some("selected genes")
    } else if !close(&scaled(&found)?, &scaled(&expected)?, capabilities.determinism) {
        Some("scaled values")
    } else {
        None
    };
    if let Some(what) = wrong {
        return Err(Error::internal(format!("{what} differ from those of the reference")).at(plugin.display()));
    }
    say(&format!(
        "{}: {}\nOn 500 simulated cells it agrees with the reference. The conformance suite says more.\n",
        capabilities.name, capabilities.description
    ))
}

fn scaled(outcome: &Outcome<AnyBackend>) -> Result<Vec<f32>> {
    let mut values = Vec::new();
    outcome.scaled(&Context::default(), &mut |_, rows| {
        values.extend_from_slice(rows);
        Ok(())
    })?;
    Ok(values)
}

fn close(found: &[f32], expected: &[f32], determinism: Determinism) -> bool {
    let close = |(a, b): (&f32, &f32)| match determinism {
        Determinism::SameBits => a.to_bits() == b.to_bits(),
        // What one unit in the last place of 64 bits can become when it is rounded to 32.
        Determinism::SameBitsUpToLog => (a - b).abs() <= f32::EPSILON * b.abs().max(1.0),
    };
    found.len() == expected.len() && found.iter().zip(expected).all(close)
}
