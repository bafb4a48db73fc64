//! Opening a shared library, and saying what is wrong with one that can't be used.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use libloading::Library;
#[cfg(unix)]
use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};
use zheng17_core::{Error, Result};
use zheng17_plugin_abi::{ABI_MAJOR, ENTRY_PREFIX, ENTRY_SYMBOL, Entry};

/// The function that a plugin exports. The library stays loaded.
pub(crate) fn entry(path: &Path) -> Result<Entry> {
    find(path).map_err(|error| error.at(path.display()))
}

fn find(path: &Path) -> Result<Entry> {
    check_header(path)?;
    // A name without a slash would be looked for in the system's folders.
    let full = path.canonicalize().map_err(|error| Error::usage("there is no such plugin").with_source(error))?;
    let library = open(&full).map_err(|error| Error::usage("can't be loaded").with_source(error))?;
    // SAFETY: a function of this name has this type, by the contract of the interface.
    let found = unsafe { library.get::<Entry>(ENTRY_SYMBOL.as_bytes()) }.map(|entry| *entry);
    let result = found.map_err(|_| missing(&library));
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
    let mut header = [0_u8; 20];
    let opened = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    match opened {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Err(Error::usage(NOT_A_LIBRARY)),
        Err(error) => return Err(Error::usage("can't be read").with_source(error)),
        Ok(()) => {}
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
        _ => Ok(()),
    }
}

const NOT_A_LIBRARY: &str = "is not a shared library";
