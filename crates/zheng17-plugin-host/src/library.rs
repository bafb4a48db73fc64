//! Opening a shared library, and saying what is wrong with one that can't be used.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use libloading::Library;
#[cfg(unix)]
use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};
use zheng17_core::{Error, Result};
use zheng17_plugin_abi::{ABI_MAJOR, ENTRY_PREFIX, ENTRY_SYMBOL, Entry};

use crate::ending::running;

/// The function that a plugin exports. The library stays loaded.
pub(crate) fn entry(path: &Path) -> Result<Entry> {
    find(path).map_err(|error| error.at(path.display()))
}

fn find(path: &Path) -> Result<Entry> {
    check_header(path)?;
    // A name without a slash would be looked for in the system's folders.
    let full = path.canonicalize().map_err(|error| Error::usage("there is no such plugin").with_source(error))?;
    let opened = running(&path.display().to_string(), "when it was loaded", || open(&full));
    let library = opened.map_err(|error| Error::usage("can't be loaded").with_source(error))?;
    // SAFETY: a function of this name has this type, by the contract of the interface.
    let found = unsafe { library.get::<Entry>(ENTRY_SYMBOL.as_bytes()) }.map(|entry| *entry);
    let result = found.map_err(|_| missing(&library)).and_then(|entry| {
        let text = format!("is not a zheng17 plugin: what it exports as {ENTRY_SYMBOL} is no function");
        if is_code(entry as usize) { Ok(entry) } else { Err(Error::usage(text)) }
    });
    // Threads, thread-local data and handlers at exit may point into the library, so it is never unloaded.
    std::mem::forget(library);
    result
}

/// Fails at once where a symbol is missing, and keeps the library's names to itself.
#[cfg(unix)]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: loading runs the library's initialisers. Whoever names a plugin trusts it.
    unsafe { UnixLibrary::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Library::from)
}

#[cfg(not(unix))]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: as above.
    unsafe { Library::new(path) }
}

/// Whether there is code at an address, where the system tells.
fn is_code(address: usize) -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return true };
    let holds = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        range.contains(&address).then(|| words.next().is_some_and(|rights| rights.contains('x')))
    };
    maps.lines().find_map(holds).unwrap_or(true)
}

/// Why the function is not there.
fn missing(library: &Library) -> Error {
    /// Major versions that are looked for.
    const MOST: u32 = 32;
    let has = |major: &u32| {
        // SAFETY: the function is not called.
        unsafe { library.get::<Entry>(format!("{ENTRY_PREFIX}{major}").as_bytes()) }.is_ok()
    };
    match (0..MOST).find(has) {
        Some(major) => other_major(major),
        None => Error::usage(format!("is not a zheng17 plugin: it does not export {ENTRY_SYMBOL}")),
    }
}

pub(crate) fn other_major(major: u32) -> Error {
    Error::usage(format!(
        "the plugin was written for version {major} of the plugin interface, but this program has version {ABI_MAJOR}"
    ))
}

/// Names what the system's loader says badly or not at all: another kind of file, another kind of machine.
fn check_header(path: &Path) -> Result<()> {
    let unreadable = |error: std::io::Error| {
        let dangling = error.kind() == std::io::ErrorKind::NotFound && path.is_symlink();
        Error::usage(if dangling { "is a link to nowhere" } else { "can't be read" }).with_source(error)
    };
    // Opening something else, a pipe for example, might wait for ever.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Error::usage("is not a file"));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let mut header = [0_u8; 64];
    match file.read_exact(&mut header) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Err(Error::usage(NOT_A_LIBRARY)),
        other => other.map_err(unreadable)?,
    }
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let [0x7f, b'E', b'L', b'F', class, order, ..] = header else {
        return Err(Error::usage(NOT_A_LIBRARY));
    };
    let machine = [header[18], header[19]];
    let machine = if order == 2 { u16::from_be_bytes(machine) } else { u16::from_le_bytes(machine) };
    let expected: Option<(u8, u16)> = match std::env::consts::ARCH {
        "x86_64" => Some((2, 62)),
        "aarch64" => Some((2, 183)),
        "riscv64" => Some((2, 243)),
        _ => None,
    };
    match expected {
        Some(expected) if expected != (class, machine) => Err(Error::usage(format!(
            "was built for another machine (ELF class {class}, machine {machine}); this program is for {}",
            std::env::consts::ARCH
        ))),
        // Only where the layout is known.
        Some(_) => check_segments(&header, &mut file),
        None => Ok(()),
    }
}

/// Whether all that will be mapped of a 64-bit library is in its file: using what is not there would end the process.
fn check_segments(header: &[u8; 64], file: &mut File) -> Result<()> {
    /// Of a header of a segment: its size, the kind that is loaded, and where its place and length in the file stand.
    const SIZE: usize = 56;
    const LOADED: u64 = 1;
    const PLACE: usize = 8;
    const LENGTH: usize = 32;
    let number = |bytes: &[u8], at: usize, len: usize| {
        bytes[at..at + len].iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
    };
    let cut = |error: std::io::Error| Error::usage(CUT_OFF).with_source(error);
    let n_bytes = file.metadata().map_err(cut)?.len();
    file.seek(SeekFrom::Start(number(header, 32, 8))).map_err(cut)?;
    for _ in 0..number(header, 56, 2) {
        let mut segment = [0_u8; SIZE];
        file.read_exact(&mut segment).map_err(cut)?;
        let end = number(&segment, PLACE, 8).checked_add(number(&segment, LENGTH, 8));
        if number(&segment, 0, 4) == LOADED && end.is_none_or(|end| end > n_bytes) {
            return Err(Error::usage(CUT_OFF));
        }
    }
    Ok(())
}

const CUT_OFF: &str = "is not a whole shared library: its end is missing";
const NOT_A_LIBRARY: &str = "is not a shared library";
