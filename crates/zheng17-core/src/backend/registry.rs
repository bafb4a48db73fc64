//! Which backends there are: a list that can be extended, asked and shown.

use std::cmp::Ordering;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::{AnyBackend, Capabilities, SparseBackend};
use crate::error::{Error, Result};

/// The name that stands for the backend that suits; no backend has it.
pub const AUTO: &str = "auto";

/// Where a backend comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The program registers it. The name is that of its package.
    Explicit(&'static str),
    /// It was loaded from this file.
    Loaded(PathBuf),
    /// It is there because its package is linked in. The name is that of the package.
    Linked(&'static str),
}

impl Origin {
    /// Who takes whose place.
    fn precedence(&self) -> u8 {
        match self {
            Self::Explicit(_) => 2,
            Self::Loaded(_) => 1,
            Self::Linked(_) => 0,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explicit(package) => write!(f, "built in ({package})"),
            Self::Loaded(path) => write!(f, "loaded from {}", path.display()),
            Self::Linked(package) => write!(f, "linked in ({package})"),
        }
    }
}

/// One backend that can be chosen by name.
#[derive(Clone)]
pub struct BackendEntry {
    /// What it can do; its name is the one to choose it by.
    pub capabilities: Capabilities,
    /// Where it comes from.
    pub origin: Origin,
    /// Makes it.
    pub create: Arc<dyn Fn() -> Result<AnyBackend> + Send + Sync>,
}

impl BackendEntry {
    /// A backend that can always be made. `package` is the one that has it: `env!("CARGO_PKG_NAME")`.
    pub fn new<B: SparseBackend>(package: &'static str, make: fn() -> B) -> Self {
        Self {
            capabilities: make().capabilities().clone(),
            origin: Origin::Explicit(package),
            create: Arc::new(move || Ok(AnyBackend::new(make()))),
        }
    }
}

/// A backend of a package that is linked in, found without being named; [`link_backend!`](crate::link_backend) makes one.
pub struct LinkedBackend(
    /// Its entry.
    pub fn() -> BackendEntry,
);

inventory::collect!(LinkedBackend);

/// Puts a backend into the registry of every program that links this package. It is given a function that returns a
/// [`BackendEntry`].
///
/// A program links a package only if it names it: `use my_backend as _;` does. Programs that a linker puts together without Rust's
/// help (static libraries for C) lose such backends, and register them with [`Registry::register`].
#[macro_export]
macro_rules! link_backend {
    ($entry:path) => {
        $crate::inventory::submit! { $crate::backend::LinkedBackend($entry) }
    };
}

/// The backends of a program, each with a name of its own.
///
/// A name may be had in three ways, and the first wins: the program registers a backend; it is loaded from a file; its package is
/// linked in. A linked backend gives way to any other, and [`replaced`](Self::replaced) lists it. Everything else is an
/// error that says where both come from: two of the same kind, and a loaded one whose name the program has registered, as it could
/// never be reached. The order in which they come makes no difference.
#[derive(Clone, Default)]
pub struct Registry {
    entries: Vec<BackendEntry>,
    replaced: Vec<BackendEntry>,
}

impl Registry {
    /// Adds a backend.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the name is taken, or is not one.
    pub fn register(&mut self, entry: BackendEntry) -> Result<()> {
        let name = &entry.capabilities.name;
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(fits) || name == AUTO {
            return Err(Error::usage(format!(
                "a backend can't be called \"{name}\": names are letters, digits, - and _, and {AUTO} stands for the one that suits"
            )));
        }
        let Some(first) = self.entries.iter_mut().find(|other| other.capabilities.name == *name) else {
            self.entries.push(entry);
            return Ok(());
        };
        let linked = |entry: &BackendEntry| matches!(entry.origin, Origin::Linked(_));
        match entry.origin.precedence().cmp(&first.origin.precedence()) {
            Ordering::Greater if linked(first) => self.replaced.push(std::mem::replace(first, entry)),
            Ordering::Less if linked(&entry) => self.replaced.push(entry),
            _ => {
                return Err(Error::usage(format!(
                    "two backends are called {name}: one is {}, one is {}",
                    first.origin, entry.origin
                )));
            }
        }
        Ok(())
    }

    /// Adds the backends of all packages that are linked in, by name.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_linked(&mut self) -> Result<()> {
        let mut linked: Vec<BackendEntry> =
            inventory::iter::<LinkedBackend>.into_iter().map(|LinkedBackend(entry)| entry()).collect();
        // The order in which a linker puts them is nobody's business.
        linked.sort_by(|a, b| a.capabilities.name.cmp(&b.capabilities.name));
        for mut entry in linked {
            if let Origin::Explicit(package) = entry.origin {
                entry.origin = Origin::Linked(package);
            }
            self.register(entry)?;
        }
        Ok(())
    }

    /// All backends.
    pub fn entries(&self) -> &[BackendEntry] {
        &self.entries
    }

    /// Linked backends whose place another of the same name has taken.
    pub fn replaced(&self) -> &[BackendEntry] {
        &self.replaced
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Determinism;

    fn entry(name: &str, origin: Origin) -> BackendEntry {
        let capabilities = Capabilities {
            name: name.to_owned(),
            description: String::new(),
            determinism: Determinism::SameBits,
            ordered_fold: true,
            out_of_core: false,
            threads: false,
            devices: false,
        };
        BackendEntry { capabilities, origin, create: Arc::new(|| Err(Error::unsupported("a test's"))) }
    }

    fn explicit() -> Origin {
        Origin::Explicit("own")
    }

    fn loaded() -> Origin {
        Origin::Loaded(PathBuf::from("/plugins/libfast.so"))
    }

    fn linked() -> Origin {
        Origin::Linked("theirs")
    }

    /// What is left of two backends with one name, whichever comes first: who has it, and who gave way.
    fn both(a: &Origin, b: &Origin) -> Vec<Result<(Origin, Vec<Origin>)>> {
        let register = |first: &Origin, second: &Origin| {
            let mut registry = Registry::default();
            registry.register(entry("fast", first.clone()))?;
            registry.register(entry("fast", second.clone()))?;
            assert_eq!(registry.entries().len(), 1);
            let replaced = registry.replaced().iter().map(|entry| entry.origin.clone()).collect();
            Ok((registry.find("fast")?.origin.clone(), replaced))
        };
        vec![register(a, b), register(b, a)]
    }

    #[test]
    fn a_linked_backend_gives_way() {
        for other in [explicit(), loaded()] {
            for outcome in both(&other, &linked()) {
                assert_eq!(outcome.expect("no conflict"), (other.clone(), vec![linked()]));
            }
        }
    }

    #[test]
    fn backends_that_exclude_each_other_are_named_with_where_they_come_from() {
        for (a, b) in [(explicit(), explicit()), (loaded(), loaded()), (linked(), linked()), (explicit(), loaded())] {
            for outcome in both(&a, &b) {
                let said = outcome.expect_err("a conflict").to_string();
                assert!(said.contains("two backends are called fast"), "{said}");
                assert!(said.contains(&a.to_string()) && said.contains(&b.to_string()), "{said}");
            }
        }
        assert_eq!(explicit().to_string(), "built in (own)");
        assert_eq!(loaded().to_string(), "loaded from /plugins/libfast.so");
        assert_eq!(linked().to_string(), "linked in (theirs)");
    }

    #[test]
    fn names_that_no_backend_can_have() {
        for name in ["", "two words", "auto", "naïve"] {
            let said = Registry::default().register(entry(name, explicit())).expect_err("refused").to_string();
            assert!(said.contains(&format!("can't be called \"{name}\"")), "{said}");
        }
    }
}
