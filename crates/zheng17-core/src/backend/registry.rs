//! Which backends there are: a list that can be extended, asked and shown.

use std::sync::Arc;

use super::{AnyBackend, Capabilities};
use crate::error::{Error, Result};

/// One backend that can be chosen by name.
#[derive(Clone)]
pub struct BackendEntry {
    /// What it can do; its name is the one to choose it by.
    pub capabilities: Capabilities,
    /// Makes it.
    pub create: Arc<dyn Fn() -> Result<AnyBackend> + Send + Sync>,
}

/// The backends of a program, in the order of their registration.
#[derive(Clone, Default)]
pub struct Registry {
    entries: Vec<BackendEntry>,
}

impl Registry {
    /// Adds a backend.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the name is taken.
    pub fn register(&mut self, entry: BackendEntry) -> Result<()> {
        let name = &entry.capabilities.name;
        if let Some(first) = self.entries.iter().find(|other| other.capabilities.name == *name) {
            return Err(Error::usage(format!(
                "two backends are called {name}: \"{}\" and \"{}\"",
                first.capabilities.description, entry.capabilities.description
            )));
        }
        self.entries.push(entry);
        Ok(())
    }

    /// All backends.
    pub fn entries(&self) -> &[BackendEntry] {
        &self.entries
    }

    /// Makes the backend of this name.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage), listing the names there are; those of making it.
    pub fn create(&self, name: &str) -> Result<AnyBackend> {
        (self.find(name)?.create)()
    }

    /// The entry of this name.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage), listing the names there are.
    pub fn find(&self, name: &str) -> Result<&BackendEntry> {
        if let Some(entry) = self.entries.iter().find(|entry| entry.capabilities.name == name) {
            return Ok(entry);
        }
        let names: Vec<&str> = self.entries.iter().map(|entry| entry.capabilities.name.as_str()).collect();
        Err(Error::usage(format!("there is no backend \"{name}\"; there is {}", names.join(", "))))
    }
}
