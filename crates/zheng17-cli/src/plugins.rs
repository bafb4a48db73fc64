//! `zheng17 plugins`, and where plugins are looked for: files that are named, folders that are named, a folder of the user.
//!
//! Looking for plugins runs their code, so nobody's folder is read by chance: never the current one, and the user's own only if
//! nobody else can have put something there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use zheng17_core::backend::{BackendEntry, Origin};
use zheng17_core::{Error, Result};

use crate::arguments::{PluginsArguments, PluginsCommand};
use crate::check::{check, look};
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
        PluginsCommand::Check(arguments) => check(arguments),
    }
}

/// Loads the plugins that were named, and those that are found, unless a backend is asked for that is there without them.
///
/// # Errors
/// Those of [`zheng17::load_plugin`] for named ones, and of looking; [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if nobody
/// has the backend. Found ones that can't be used are warned of.
pub(crate) fn load(named: &[PathBuf], backend: Option<&str>) -> Result<()> {
    for plugin in named {
        let name = zheng17::load_plugin(plugin)?.name;
        if backend.is_some_and(|backend| backend != name) {
            complain(format_args!("note: {name} was loaded but not used; --backend {name} chooses it"));
        }
    }
    if let Some(backend) = backend {
        let registry = zheng17::registry()?;
        // A linked backend gives way to one that is found.
        let is_there = |entry: &BackendEntry| !matches!(entry.origin, Origin::Linked(_));
        if backend == zheng17::AUTO || registry.find(backend).is_ok_and(is_there) {
            return Ok(());
        }
    }
    for found in find()? {
        if let Err(error) = found.and_then(|plugin| zheng17::load_plugin(&plugin)) {
            complain(format_args!("warning: {error}"));
        }
    }
    let Some(backend) = backend else { return Ok(()) };
    let registry = zheng17::registry()?;
    let looked_in: Vec<String> =
        path_folders().chain(user_folder()).map(|folder| folder.display().to_string()).collect();
    registry.find(backend).map(drop).map_err(|error| {
        let places = if looked_in.is_empty() { "no folder".to_owned() } else { looked_in.join(", ") };
        Error::usage(format!("{}; plugins were looked for in {places}", error.message()))
    })
}

fn list() -> Result<()> {
    let mut text = String::new();
    let mut names: BTreeMap<String, PathBuf> = BTreeMap::new();
    for found in find()? {
        let (what, plugin) = match found {
            Ok(plugin) => (look(&plugin), plugin),
            Err(error) => {
                text.extend([error.to_string(), "\n".to_owned()]);
                continue;
            }
        };
        let what = match what {
            Ok(what) => {
                let name = what.split(':').next().unwrap_or_default().to_owned();
                match names.get(&name) {
                    None => {
                        names.insert(name, plugin.clone());
                        what
                    }
                    Some(first) => format!("error: {} is called {name} too", first.display()),
                }
            }
            Err(error) => format!("error: {}", without_place(&error, &plugin)),
        };
        text.extend([plugin.display().to_string(), format!("\n    {what}\n")]);
    }
    if text.is_empty() {
        text = format!("no plugins were found; {PATH_VARIABLE} names folders that have some\n");
    }
    say(&text)
}

/// An error with its causes, but without the file that is named before it.
fn without_place(error: &Error, plugin: &Path) -> String {
    let text = error.to_string();
    let place = format!("{}: ", plugin.display());
    text.strip_prefix(&place).unwrap_or(&text).to_owned()
}

/// The shared libraries in the folders where plugins are looked for, in order, each once, or why one is not used.
fn find() -> Result<Vec<Result<PathBuf>>> {
    let mut found = Vec::new();
    for folder in path_folders() {
        if !folder.is_absolute() {
            let text =
                format!("{PATH_VARIABLE} names \"{}\", but folders must be given from the root", folder.display());
            return Err(Error::usage(text));
        }
        found.extend(libraries(&folder)?.into_iter().map(Ok));
    }
    if let Some(folder) = user_folder().filter(|folder| folder.is_dir()) {
        match belongs_to_the_user_alone(&folder) {
            Ok(()) => {
                let trusted = |path: PathBuf| belongs_to_the_user_alone(&path).map(|()| path);
                found.extend(libraries(&folder)?.into_iter().map(trusted));
            }
            Err(error) => found.push(Err(error)),
        }
    }
    let mut seen = Vec::new();
    found.retain(|found| {
        let Ok(full) = found.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())) else {
            return true;
        };
        let is_new = !seen.contains(&full);
        seen.push(full);
        is_new
    });
    Ok(found)
}

/// The folders that the variable names. Empty parts mean nothing.
fn path_folders() -> impl Iterator<Item = PathBuf> {
    let folders = std::env::var_os(PATH_VARIABLE).unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()).collect();
    folders.into_iter()
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

/// Whether the user owns a file or folder and nobody else may write it. Where it is a link, that is asked of what it leads to, and
/// of the folder of that, too.
#[cfg(unix)]
fn belongs_to_the_user_alone(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    /// Others of the group, and everybody else, may write.
    const OTHERS_MAY_WRITE: u32 = 0o022;
    let unused = |why: String| Err(Error::usage(format!("is not used: {why}")).at(path.display()));
    let Ok(full) = path.canonicalize() else { return unused("it is a link to nowhere".to_owned()) };
    let mut places = vec![full.as_path()];
    if path.is_symlink() {
        places.extend(full.parent());
    }
    for place in places {
        let (Ok(file), Ok(process)) = (std::fs::metadata(place), std::fs::metadata("/proc/self")) else {
            return unused(format!("the system does not tell whose {} is", place.display()));
        };
        if file.uid() != process.uid() {
            return unused(format!("{} must belong to you", place.display()));
        }
        if file.mode() & OTHERS_MAY_WRITE != 0 {
            return unused(format!("others may write it; `chmod go-w '{}'` changes that", place.display()));
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn belongs_to_the_user_alone(path: &Path) -> Result<()> {
    Err(Error::usage("is not used: nobody knows whose it is").at(path.display()))
}
