//! Plugins of this process: loaded once, listed with the backends of the build from then on, never unloaded.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use zheng17_core::backend::{BackendEntry, Registry};
use zheng17_core::{AnyBackend, Capabilities, Result};
use zheng17_plugin_host::LoadedPlugin;

static LOADED: Mutex<Vec<BackendEntry>> = Mutex::new(Vec::new());

/// Loads a plugin; [`registry`](crate::registry) has it from now on, under its own name.
///
/// Its code runs in this process: load what you trust.
///
/// # Errors
/// Those of [`LoadedPlugin::load`], and [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a backend has its name.
pub fn load_plugin(path: &Path) -> Result<Capabilities> {
    let plugin = LoadedPlugin::load(path)?;
    let capabilities = plugin.capabilities();
    let create = Arc::new(move || Ok(AnyBackend::new(plugin.backend()?)));
    let entry = BackendEntry { capabilities: capabilities.clone(), create };
    crate::registry()?.register(entry.clone()).map_err(|error| error.at(path.display()))?;
    LOADED.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    Ok(capabilities)
}

/// Adds the loaded plugins.
pub(crate) fn register(registry: &mut Registry) -> Result<()> {
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    loaded.into_iter().try_for_each(|entry| registry.register(entry))
}
