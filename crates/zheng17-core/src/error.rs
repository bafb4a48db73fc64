//! One error type for the whole project: what kind of failure, what was being done, where, and why.

use std::fmt;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as far as a caller needs to tell cases apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request makes no sense: a parameter out of range, options that exclude each other.
    Usage,
    /// The data are not what they should be: damaged files, negative counts, no cells.
    Input,
    /// A valid request that this backend or build can't carry out.
    Unsupported,
    /// The system refused: reading, writing, memory.
    System,
    /// Somebody asked to stop.
    Cancelled,
    /// A fault of this program or of a plugin.
    Internal,
}

impl ErrorKind {
    /// The exit code of a program that stops with this error: 2 for usage and input, 1 for everything else.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Usage | Self::Input | Self::Unsupported => 2,
            Self::System | Self::Cancelled | Self::Internal => 1,
        }
    }
}

/// An error with its kind, a message, the places it passed through and its cause.
///
/// `Display` is one line that a user can act on: the places from the outside in (file, dataset, cell, gene), then the message,
/// then the causes. `Debug` shows every part.
pub struct Error(Box<Parts>);

struct Parts {
    kind: ErrorKind,
    message: String,
    places: Vec<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of the given kind. The message starts in lower case and has no final stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Parts { kind, message: message.into(), places: Vec::new(), source: None }))
    }

    /// The request makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// The data are not what they should be.
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Input, message)
    }

    /// A valid request that can't be carried out here.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// The system refused.
    pub fn system(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::System, message)
    }

    /// A fault of this program.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Somebody asked to stop.
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "stopped on request")
    }

    /// Adds the place where it happened, from the inside out: first the dataset, then, further up, the file.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.0.places.push(place.to_string());
        self
    }

    /// Adds the cause.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message without places and causes.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in self.0.places.iter().rev() {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.0.message)?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("places", &self.0.places)
            .field("source", &self.0.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|error| error as &(dyn std::error::Error + 'static))
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::system("the system refused").with_source(error)
    }
}

/// Adds a place to the error of a result.
pub trait ResultExt<T> {
    /// Adds the place where it happened; the text is made only for an error.
    ///
    /// # Errors
    /// The error it was called on.
    fn at<P: fmt::Display>(self, place: impl FnOnce() -> P) -> Result<T>;
}

impl<T> ResultExt<T> for Result<T> {
    fn at<P: fmt::Display>(self, place: impl FnOnce() -> P) -> Result<T> {
        self.map_err(|error| error.at(place()))
    }
}
