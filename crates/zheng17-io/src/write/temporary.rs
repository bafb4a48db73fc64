//! Output files that appear whole or not at all: written under a temporary name in the same folder, renamed when finished.
//!
//! A temporary file goes away when its writer is dropped, by success, error or panic; [`remove_all_temporaries`] is for signal
//! handlers. After a kill it stays, and the next run for the same output finds and removes it: a live writer holds a lock on
//! its file, a dead one can't. This module must not know what is written.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use zheng17_core::error::{Error, Result, ResultExt};

/// What follows the output's name in a temporary name.
const MARK: &str = ".zheng17-";
const ENDING: &str = ".tmp";
/// A file name has room for 255 bytes; this much of the output's name leaves enough for the rest.
const LONGEST_PREFIX: usize = 200;

/// The temporary files of this process that are not finished yet.
static LIVE: Mutex<Registry> = Mutex::new(Registry { stopped: false, paths: Vec::new() });

struct Registry {
    /// No file is created or finished any more.
    stopped: bool,
    paths: Vec<PathBuf>,
}

fn registry() -> MutexGuard<'static, Registry> {
    // The registry is consistent between any two statements, so a panic elsewhere can't have broken it.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the temporary files of all writers of this process and keeps writers from finishing: for a program that is about to
/// stop because of SIGINT or SIGTERM.
///
/// It takes a lock and touches the file system, so call it from a thread that waits for signals, not inside a raw signal handler.
pub fn remove_all_temporaries() {
    let mut registry = registry();
    registry.stopped = true;
    for path in registry.paths.drain(..) {
        // Nobody is left to tell.
        let _ = std::fs::remove_file(path);
    }
}

/// Checks what can be checked before any work: the output is none of the inputs, is no folder or device, does not exist unless
/// `force` is set, and its folder exists.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage), naming the output.
pub fn check_output(output: &Path, inputs: &[PathBuf], force: bool) -> Result<()> {
    let place = || output.display().to_string();
    let Some(name) = output.file_name() else {
        return Err(Error::usage("the output needs a file name").at(place()));
    };
    // The name of a path that ends in a slash is that of a folder.
    if !output.as_os_str().as_encoded_bytes().ends_with(name.as_encoded_bytes()) {
        return Err(Error::usage("the output needs a file name, not that of a folder").at(place()));
    }
    let folder = folder_of(output);
    match std::fs::metadata(&folder) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(Error::usage(format!("{} is not a folder", folder.display())).at(place())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(Error::usage(format!("the folder {} does not exist", folder.display())).at(place()));
        }
        Err(error) => {
            return Err(Error::system(format!("can't look into the folder {}", folder.display()))
                .with_source(error)
                .at(place()));
        }
    }
    let target = match std::fs::canonicalize(output) {
        Ok(path) => path,
        Err(_) => std::fs::canonicalize(&folder)?.join(name),
    };
    for input in inputs {
        if is_same_file(&target, input) {
            return Err(Error::usage(format!("the output is the input {}", input.display())).at(place()));
        }
        if input.is_dir() && target.exists() && std::fs::canonicalize(input).is_ok_and(|i| target.starts_with(i)) {
            return Err(Error::usage(format!("the output is a file of the input {}", input.display())).at(place()));
        }
    }
    // Links to nothing exist as well.
    if std::fs::symlink_metadata(output).is_err() {
        return Ok(());
    }
    match std::fs::metadata(output) {
        Ok(found) if found.is_dir() => return Err(Error::usage("the output is a folder").at(place())),
        Ok(found) if !found.is_file() => return Err(Error::usage("the output is not a regular file").at(place())),
        _ => {}
    }
    if force { Ok(()) } else { Err(already_there().at(place())) }
}

fn already_there() -> Error {
    Error::usage("the output exists already; use --force to replace it")
}

/// Whether two paths lead to one file, through whatever links.
fn is_same_file(a: &Path, b: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if let (Ok(a), Ok(b)) = (std::fs::metadata(a), std::fs::metadata(b))
            && a.dev() == b.dev()
            && a.ino() == b.ino()
        {
            return true;
        }
    }
    match (std::fs::canonicalize(a), std::fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// A file under a temporary name, beside the output that it becomes.
#[derive(Debug)]
pub struct TemporaryFile {
    file: File,
    path: PathBuf,
    output: PathBuf,
    force: bool,
}

impl TemporaryFile {
    /// Checks the output as [`check_output`] does, removes what killed runs for the same output left, and creates an empty
    /// file in the output's folder.
    ///
    /// # Errors
    /// What [`check_output`] finds, and [`ErrorKind::System`](zheng17_core::ErrorKind::System) where the folder can't be
    /// written to.
    pub fn create(output: &Path, inputs: &[PathBuf], force: bool) -> Result<Self> {
        check_output(output, inputs, force)?;
        let folder = folder_of(output);
        let prefix = temporary_prefix(output);
        remove_leftovers(&folder, &prefix);
        loop {
            let path = folder.join(temporary_name(&prefix));
            let mut registry = registry();
            if registry.stopped {
                return Err(Error::cancelled());
            }
            let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => {
                    return Err(Error::system(format!("can't write to the folder {}", folder.display()))
                        .with_source(error)
                        .at(output.display()));
                }
            };
            registry.paths.push(path.clone());
            drop(registry);
            let created = Self { file, path, output: output.to_path_buf(), force };
            // Some network file systems have no locks. There, leftovers stay: nobody can tell them from live files.
            let _ = created.file.try_lock();
            // Another run may have taken it for a leftover before it was locked.
            if created.has_its_name() {
                return Ok(created);
            }
        }
    }

    fn has_its_name(&self) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            matches!((self.file.metadata(), std::fs::metadata(&self.path)), (Ok(a), Ok(b)) if a.ino() == b.ino())
        }
        #[cfg(not(unix))]
        self.path.exists()
    }

    /// The temporary name, for writers that open files by name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name that the file gets in the end, for messages.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Brings the bytes to the disk and gives the file its name.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if the output has come to exist meanwhile and was not to be
    /// replaced; [`ErrorKind::System`](zheng17_core::ErrorKind::System). No output is left in either case.
    pub fn finish(self) -> Result<()> {
        let place = || self.output.display().to_string();
        self.file.sync_all().map_err(Error::from).at(place)?;
        {
            let registry = registry();
            if registry.stopped {
                return Err(Error::cancelled());
            }
            self.rename().at(place)?;
        }
        // The name is in the folder, so the folder has to reach the disk as well. Not every system lets us open one.
        if let Ok(folder) = File::open(folder_of(&self.output)) {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    fn rename(&self) -> Result<()> {
        if !self.force {
            // A second name fails where the output exists, in one step; a rename would replace it.
            match std::fs::hard_link(&self.path, &self.output) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(already_there()),
                // File systems without hard links.
                Err(_) if std::fs::symlink_metadata(&self.output).is_ok() => return Err(already_there()),
                Err(_) => {}
            }
        }
        std::fs::rename(&self.path, &self.output).map_err(Error::from)
    }
}

impl Write for TemporaryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let mut registry = registry();
        registry.paths.retain(|path| *path != self.path);
        // After a rename there is nothing left to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn temporary_prefix(output: &Path) -> String {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let end = name.floor_char_boundary(LONGEST_PREFIX);
    format!(".{}{MARK}", &name[..end])
}

fn temporary_name(prefix: &str) -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    let salt = now.wrapping_add(COUNTER.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9));
    format!("{prefix}{}-{salt:08x}{ENDING}", std::process::id())
}

/// Whether a file name is one that [`temporary_name`] gives.
fn is_temporary_name(name: &OsString, prefix: &str) -> bool {
    let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_suffix(ENDING)) else {
        return false;
    };
    let Some((process, salt)) = rest.split_once('-') else {
        return false;
    };
    let all = |text: &str, f: fn(&char) -> bool| !text.is_empty() && text.chars().all(|c| f(&c));
    all(process, char::is_ascii_digit) && all(salt, char::is_ascii_hexdigit)
}

/// Removes the temporary files for an output that no live process has locked.
fn remove_leftovers(folder: &Path, prefix: &str) {
    // What can't be listed or opened is left alone: it does no harm to this run.
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        if !is_temporary_name(&entry.file_name(), prefix) || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(file) = OpenOptions::new().read(true).write(true).open(entry.path()) else {
            continue;
        };
        match file.try_lock() {
            Ok(()) => {
                let _ = std::fs::remove_file(entry.path());
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .expect("folder")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_output_appears_when_finished_and_nothing_else_stays() {
        let folder = tempfile::tempdir().expect("folder");
        let output = folder.path().join("out.tsv");
        let mut file = TemporaryFile::create(&output, &[], false).expect("create");
        file.write_all(b"gene\n").expect("write");
        assert!(!output.exists());
        assert_eq!(names(folder.path()).len(), 1);
        file.finish().expect("finish");
        assert_eq!(std::fs::read(&output).expect("read"), b"gene\n");
        assert_eq!(names(folder.path()), ["out.tsv"]);
    }

    #[test]
    fn a_dropped_or_panicking_writer_leaves_nothing() {
        let folder = tempfile::tempdir().expect("folder");
        let output = folder.path().join("out.tsv");
        drop(TemporaryFile::create(&output, &[], false).expect("create"));
        assert!(names(folder.path()).is_empty());
        let panicked = std::panic::catch_unwind(|| {
            let _file = TemporaryFile::create(&output, &[], false).expect("create");
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn an_existing_output_is_replaced_only_by_force() {
        let folder = tempfile::tempdir().expect("folder");
        let output = folder.path().join("out.tsv");
        std::fs::write(&output, "old").expect("write");
        let error = TemporaryFile::create(&output, &[], false).expect_err("exists");
        assert!(error.to_string().contains("--force"), "{error}");
        let mut file = TemporaryFile::create(&output, &[], true).expect("create");
        file.write_all(b"new").expect("write");
        assert_eq!(std::fs::read(&output).expect("read"), b"old");
        file.finish().expect("finish");
        assert_eq!(std::fs::read(&output).expect("read"), b"new");
    }

    #[test]
    fn an_output_that_appears_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let output = folder.path().join("out.tsv");
        let file = TemporaryFile::create(&output, &[], false).expect("create");
        std::fs::write(&output, "theirs").expect("write");
        file.finish().expect_err("exists");
        assert_eq!(std::fs::read(&output).expect("read"), b"theirs");
        assert_eq!(names(folder.path()), ["out.tsv"]);
    }

    #[test]
    fn leftovers_go_but_live_and_foreign_files_stay() {
        let folder = tempfile::tempdir().expect("folder");
        let output = folder.path().join("out.h5ad");
        let leftover = folder.path().join(".out.h5ad.zheng17-4711-0badcafe.tmp");
        std::fs::write(&leftover, "half").expect("write");
        for foreign in [".other.h5ad.zheng17-1-ab.tmp", ".out.h5ad.zheng17-notes.tmp", ".out.h5ad.zheng17-1-ab.txt"] {
            std::fs::write(folder.path().join(foreign), "").expect("write");
        }
        let first = TemporaryFile::create(&output, &[], false).expect("create");
        assert!(!leftover.exists());
        let second = TemporaryFile::create(&output, &[], false).expect("create");
        assert!(first.path().exists() && second.path().exists());
        drop((first, second));
        assert_eq!(names(folder.path()).len(), 3);
    }

    #[test]
    fn the_input_is_never_the_output() {
        let folder = tempfile::tempdir().expect("folder");
        let input = folder.path().join("in.h5ad");
        std::fs::write(&input, "in").expect("write");
        let crooked = folder.path().join(".").join("..").join(folder.path().file_name().expect("name")).join("in.h5ad");
        let mut outputs = vec![input.clone(), crooked];
        #[cfg(unix)]
        {
            let soft = folder.path().join("soft.h5ad");
            std::os::unix::fs::symlink(&input, &soft).expect("link");
            let hard = folder.path().join("hard.h5ad");
            std::fs::hard_link(&input, &hard).expect("link");
            outputs.extend([soft, hard]);
        }
        for output in outputs {
            let error = check_output(&output, std::slice::from_ref(&input), true).expect_err("the input");
            assert!(error.to_string().contains("is the input"), "{error}");
        }
        let error = check_output(&input, &[folder.path().to_path_buf()], true).expect_err("in the input folder");
        assert!(error.to_string().contains("a file of the input"), "{error}");
        check_output(&folder.path().join("new.h5ad"), &[folder.path().to_path_buf()], false).expect("a new file");
    }

    #[test]
    fn bad_places_are_named() {
        let folder = tempfile::tempdir().expect("folder");
        let error = check_output(&folder.path().join("none").join("out"), &[], false).expect_err("no folder");
        assert!(error.to_string().contains("does not exist"), "{error}");
        let error = check_output(folder.path(), &[], true).expect_err("a folder");
        assert!(error.to_string().contains("is a folder"), "{error}");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("write");
        for wrong in ["new.h5ad/", "new.h5ad/.", "file/out.h5ad", "file/sub/out.h5ad"] {
            let error = check_output(&folder.path().join(wrong), &[], true).expect_err("no place for a file");
            assert_eq!(error.kind(), zheng17_core::ErrorKind::Usage, "{wrong}: {error}");
        }
        #[cfg(unix)]
        {
            let error = check_output(Path::new("/dev/null"), &[], true).expect_err("a device");
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
    }

    #[test]
    fn long_names_have_room() {
        let folder = tempfile::tempdir().expect("folder");
        let output = folder.path().join(format!("{}.h5ad", "é".repeat(120)));
        TemporaryFile::create(&output, &[], false).expect("create").finish().expect("finish");
        assert!(output.exists());
    }
}
