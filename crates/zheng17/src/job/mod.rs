//! The whole job, from a file of counts to a file of results. Knows files and backends, nothing of terminals.

mod gene_table;
mod result_file;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use zheng17_core::recipe::{self, Outcome, Params};
use zheng17_core::{AnyBackend, Context, Error, Result, SparseBackend as _};
use zheng17_io::dataset::{Dataset, OpenOptions};
use zheng17_io::write::{self, Compression, CreateOptions, TemporaryFile};

use crate::Choice;

/// What the X of the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// The scaled values of all cells and selected genes, dense.
    Scaled,
    /// The values before scaling, sparse.
    Normalised,
    /// No values.
    None,
}

impl Values {
    /// What it is called in the record of a run.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scaled => "scaled",
            Self::Normalised => "lognorm",
            Self::None => "none",
        }
    }
}

/// What is to be done, from file to file.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// The file or folder of counts.
    pub input: &'a Path,
    /// Which of its matrices.
    pub options: OpenOptions,
    /// What the recipe should do.
    pub params: Params,
    /// The name of a backend, or [`AUTO`](crate::AUTO).
    pub backend: &'a str,
    /// The h5ad file to write.
    pub output: &'a Path,
    /// What its X will be.
    pub values: Values,
    /// Where to write one row for each gene of the input, if anywhere.
    pub gene_table: Option<&'a Path>,
    /// Whether files that exist are replaced.
    pub force: bool,
}

impl Job<'_> {
    /// Does it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for parameters that make no sense or outputs that exist; those of reading,
    /// of the recipe and of writing. No output is left then.
    pub fn execute(&self, ctx: &Context) -> Result<Finished> {
        let started = Instant::now();
        let inputs = [self.input.to_owned()];
        self.params.check()?;
        self.check_outputs(&inputs)?;
        let before = Stamp::of(self.input);
        let dataset = open(self.input, self.options.clone(), self.backend, ctx)?;
        let choice = crate::choose(self.backend, &dataset.source, &self.params, ctx)?;
        let ctx = &choice.context(ctx);
        let Choice { backend, reason, note } = choice;
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
        let mut notes: Vec<String> = note.into_iter().chain(dataset.notes.iter().cloned()).collect();
        let written = result_file::write(self.output, &options, &dataset, &outcome, self.values, &backend_name, ctx)?;
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
pub struct Finished {
    /// The input.
    pub dataset: Dataset,
    /// What was found out.
    pub outcome: Outcome<AnyBackend>,
    /// The name of the backend.
    pub backend: String,
    /// Why it is this backend, if nobody asked for it.
    pub reason: Option<String>,
    /// What a user should know of input and output. Full sentences.
    pub notes: Vec<String>,
    /// How long it took.
    pub time: Duration,
}

impl Finished {
    /// What a user should know about the data. Without capital and final stop.
    pub fn warnings(&self) -> Vec<String> {
        result_file::warnings(&self.dataset, &self.outcome.result)
    }
}

/// Opens a file for a backend, which may not be there.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for a backend that there is not; those of opening.
pub fn open(path: &Path, options: OpenOptions, backend: &str, ctx: &Context) -> Result<Dataset> {
    // Before anything is read.
    if backend != crate::AUTO {
        crate::registry()?.find(backend)?;
    }
    let memory = ctx.memory.map(|memory| memory / SHARE_OF_READERS);
    zheng17_io::open(path, &OpenOptions { memory, ..options })
}

/// One part of the memory in so many may be taken by readers of matrices that are stored by genes.
const SHARE_OF_READERS: u64 = 4;

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
