//! A file without a name for chunks that memory has no room for. It goes with the process, however that ends.

use std::fs::File;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use zheng17_core::{Error, Result};

/// Where bytes stand in a spill file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    offset: u64,
    length: usize,
}

/// A spill file that is made when it is first needed.
pub(crate) struct SpillFile {
    folder: PathBuf,
    file: OnceLock<Option<File>>,
    next: AtomicU64,
    /// Why nothing more is put there: no room, no permission. What stands there already is read all the same.
    refused: OnceLock<String>,
}

impl SpillFile {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, file: OnceLock::new(), next: AtomicU64::new(0), refused: OnceLock::new() }
    }

    /// Puts bytes into the file; `None` if there is no room, which is no error: whoever asks can do without.
    pub(crate) fn put(&self, bytes: &[u8]) -> Option<Place> {
        if self.refused.get().is_some() {
            return None;
        }
        let make = || tempfile::tempfile_in(&self.folder).map_err(|error| self.refuse(&error)).ok();
        let file = self.file.get_or_init(make).as_ref()?;
        let offset = self.next.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        match write_at(file, bytes, offset) {
            Ok(()) => Some(Place { offset, length: bytes.len() }),
            Err(error) => {
                self.next.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
                self.refuse(&error);
                None
            }
        }
    }

    fn refuse(&self, error: &std::io::Error) {
        // The first reason is as good as any.
        let _ = self.refused.set(error.to_string());
    }

    /// What a user should know if the file could not be made or could not grow.
    pub(crate) fn complaint(&self) -> Option<String> {
        let reason = self.refused.get()?;
        let folder = self.folder.display();
        Some(format!(
            "{folder} has no room for temporary files ({reason}), so the input was read more often than needed"
        ))
    }

    /// Reads bytes again.
    pub(crate) fn get(&self, place: Place, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.resize(place.length, 0);
        let Some(Some(file)) = self.file.get() else {
            return Err(Error::internal("nothing was put into the spill file"));
        };
        read_at(file, bytes, place.offset).map_err(|error| {
            Error::system("the spill file can't be read again").with_source(error).at(self.folder.display())
        })
    }

    /// Bytes that were put there.
    pub(crate) fn bytes(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Where it is, or would be.
    pub(crate) fn folder(&self) -> &std::path::Path {
        &self.folder
    }
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_at(file: &File, mut bytes: &[u8], mut offset: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        (bytes, offset) = (&bytes[n..], offset + n as u64);
    }
    Ok(())
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => (bytes, offset) = (&mut bytes[n..], offset + n as u64),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_comes_back_in_any_order() {
        let spill = SpillFile::new(std::env::temp_dir());
        let places: Vec<Place> = (0..50_u8).map(|n| spill.put(&vec![n; usize::from(n) * 100]).expect("room")).collect();
        let mut bytes = Vec::new();
        for n in (0..50_u8).rev() {
            spill.get(places[usize::from(n)], &mut bytes).expect("it is there");
            assert_eq!(bytes, vec![n; usize::from(n) * 100]);
        }
        assert_eq!(spill.bytes(), (0..50).sum::<u64>() * 100);
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_room() {
        let spill = SpillFile::new("/nowhere/at/all".into());
        assert_eq!(spill.complaint(), None);
        assert!(spill.put(b"something").is_none());
        assert!(spill.put(b"something").is_none());
        let complaint = spill.complaint().expect("a complaint");
        assert!(complaint.starts_with("/nowhere/at/all has no room for temporary files ("), "{complaint}");
    }
}
