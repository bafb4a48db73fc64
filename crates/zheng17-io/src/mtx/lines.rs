//! Lines of a text file that may be compressed with gzip. Whether it is, the content says, not the name.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind as IoKind, Read, Seek};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;
use zheng17_core::error::ResultExt as _;
use zheng17_core::{Error, Result};

use crate::open::open_regular;

/// No line of these formats comes near this length; a file without line ends must not fill the memory.
const LONGEST_LINE: usize = 1 << 20;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Hands out lines one by one, in constant memory.
pub(super) struct Lines {
    path: PathBuf,
    reader: Box<dyn Read + Send>,
    gzip: bool,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    at_end: bool,
    line: u64,
}

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let refused = |error: std::io::Error| Error::from(error).at(path.display());
        let mut file = open_regular(path).at(|| path.display())?;
        let gzip = starts_with_gzip(&mut file).map_err(refused)?;
        file.rewind().map_err(refused)?;
        let reader: Box<dyn Read + Send> = if gzip {
            Box::new(GzipFile(Some(GzDecoder::new(BufReader::with_capacity(1 << 16, file)))))
        } else {
            Box::new(file)
        };
        Ok(Self {
            path: path.to_owned(),
            reader,
            gzip,
            buffer: vec![0; LONGEST_LINE],
            start: 0,
            end: 0,
            at_end: false,
            line: 0,
        })
    }

    /// Whether the file is compressed.
    pub(super) fn gzip(&self) -> bool {
        self.gzip
    }

    /// The number of the last line handed out, from 1.
    pub(super) fn line_number(&self) -> u64 {
        self.line
    }

    /// Adds the last line and the file to an error.
    pub(super) fn here(&self, error: Error) -> Error {
        error.at(format_args!("line {}", self.line)).at(self.path.display())
    }

    /// The next line without its end, `\n` or `\r\n`.
    pub(super) fn next_line(&mut self) -> Result<Option<&[u8]>> {
        let mut searched = self.start;
        let (line_end, next) = loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                break (searched + at, searched + at + 1);
            }
            if self.at_end {
                if self.start == self.end {
                    return Ok(None);
                }
                break (self.end, self.end);
            }
            let kept = self.end - self.start;
            self.fill()?;
            searched = self.start + kept;
        };
        let mut line = &self.buffer[self.start..line_end];
        self.line += 1;
        self.start = next;
        if let [rest @ .., b'\r'] = line {
            line = rest;
        }
        if self.line == 1 {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        Ok(Some(line))
    }

    /// Moves what is left to the front and reads more behind it.
    fn fill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.line += 1;
            return Err(self.here(Error::input("longer than any line of such a text file")));
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == IoKind::Interrupted => continue,
                Err(error) => return Err(self.reading_failed(error)),
            }
            return Ok(());
        }
    }

    fn reading_failed(&self, error: std::io::Error) -> Error {
        let damaged = matches!(error.kind(), IoKind::UnexpectedEof | IoKind::InvalidData | IoKind::InvalidInput);
        if self.gzip && damaged {
            let what = if error.kind() == IoKind::UnexpectedEof { "ends too early" } else { "is damaged" };
            Error::input(format!("the gzip stream {what}, after line {}", self.line + self.lines_waiting()))
                .with_source(error)
                .at(self.path.display())
        } else {
            Error::from(error).at(self.path.display())
        }
    }

    /// Complete lines that were read and not handed out.
    fn lines_waiting(&self) -> u64 {
        memchr::memchr_iter(b'\n', &self.buffer[self.start..self.end]).count() as u64
    }
}

/// A file of one or more gzip streams. Unlike flate2's own decoder of such files it says what is wrong with bytes behind them.
struct GzipFile(Option<GzDecoder<BufReader<File>>>);

impl Read for GzipFile {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while let Some(stream) = &mut self.0 {
            let n = stream.read(into)?;
            if n > 0 || into.is_empty() {
                return Ok(n);
            }
            match stream.get_mut().fill_buf()?.first() {
                None => return Ok(0),
                Some(&next) if next == GZIP_MAGIC[0] => {
                    self.0 = self.0.take().map(|ended| GzDecoder::new(ended.into_inner()));
                }
                Some(_) => {
                    return Err(std::io::Error::new(IoKind::InvalidData, "the bytes behind its end are not gzip"));
                }
            }
        }
        Ok(0)
    }
}

fn starts_with_gzip(file: &mut File) -> std::io::Result<bool> {
    let mut start = Vec::with_capacity(GZIP_MAGIC.len());
    file.take(GZIP_MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start == GZIP_MAGIC)
}
