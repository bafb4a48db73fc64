//! Plugins of this process: loaded once, listed with the backends of the build from then on, never unloaded.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zheng17_core::backend::{BackendEntry, Origin, Registry};
use zheng17_core::{AnyBackend, Capabilities, Result};
use zheng17_plugin_host::LoadedPlugin;

static LOADED: Mutex<Vec<BackendEntry>> = Mutex::new(Vec::new());

/// Loads a plugin; [`registry`](crate::registry) has it from now on, under its own name. A file that was loaded before is not
/// loaded again.
///
/// Its code runs in this process: load what you trust.
///
/// # Errors
/// Those of [`LoadedPlugin::load`], and [`ErrorKind::Usage`](crate::ErrorKind::Usage) if another loaded backend, or one of this
/// build, has its name.
pub fn load_plugin(path: &Path) -> Result<Capabilities> {
    add_loaded(path, LoadedPlugin::load(path)?)
}

/// As [`load_plugin`], for those who examine plugins: it is [watched](LoadedPlugin::watched) more closely than is cheap.
///
/// # Errors
/// As [`load_plugin`].
pub fn load_watched_plugin(path: &Path) -> Result<Capabilities> {
    add_loaded(path, LoadedPlugin::load(path)?.watched())
}

fn add_loaded(path: &Path, plugin: LoadedPlugin) -> Result<Capabilities> {
    let origin = Origin::Loaded(path.canonicalize()?);
    let mut loaded = loaded();
    if let Some(same) = loaded.iter().find(|entry| entry.origin == origin) {
        return Ok(same.capabilities.clone());
    }
    let capabilities = plugin.capabilities();
    let create = Arc::new(move || Ok(AnyBackend::new(plugin.backend()?)));
    loaded.push(BackendEntry { capabilities: capabilities.clone(), origin, create });
    let fits = crate::built_in().and_then(|mut registry| add(&mut registry, &loaded));
    if fits.is_err() {
        loaded.pop();
    }
    fits.map(|()| capabilities)
}

/// Adds the loaded plugins.
pub(crate) fn register(registry: &mut Registry) -> Result<()> {
    add(registry, &loaded())
}

fn add(registry: &mut Registry, loaded: &[BackendEntry]) -> Result<()> {
    loaded.iter().try_for_each(|entry| registry.register(entry.clone()))
}

fn loaded() -> MutexGuard<'static, Vec<BackendEntry>> {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}
