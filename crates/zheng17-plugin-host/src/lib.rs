//! Loads plugins, shared libraries that speak the interface of `zheng17-plugin-abi`, and makes backends of them.
//!
//! What a plugin gives back is checked before it is used: numbers that can't be are errors that name the plugin. Code of a
//! plugin runs in this process all the same, so only trusted ones should be loaded. This crate knows nothing of where plugins
//! are looked for.

#![allow(unsafe_code, reason = "code behind a C interface is called; each call says why it is sound")]

mod calls;
mod ending;
mod kernels;
mod library;
mod room;

use std::ffi::CStr;
use std::path::Path;

use zheng17_core::backend::Determinism;
use zheng17_core::backend::chunked::KernelBackend;
use zheng17_core::{Capabilities, Error, Result};
use zheng17_plugin_abi as abi;

pub use kernels::PluginKernels;

/// What is shown of a description, in characters.
const LONGEST_DESCRIPTION: usize = 200;

/// A plugin that was found fit to be used. It stays in memory as long as the process.
#[derive(Debug, Clone)]
pub struct LoadedPlugin {
    name: String,
    description: String,
    abi_minor: u32,
    plugin: abi::Plugin,
    watched: bool,
}

impl LoadedPlugin {
    /// Loads a shared library and looks at what it says of itself.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for a file that is not a shared library of this machine, is not a
    /// plugin, or speaks another major version, whose number is named.
    pub fn load(path: &Path) -> Result<Self> {
        let found = library::entry(path)?;
        // SAFETY: the library exports the function under the name that has this type, and stays loaded.
        let plugin = ending::running(&path.display().to_string(), "when it was loaded", || unsafe { found() });
        // SAFETY: by contract the pointer is null or points to a descriptor that lives as long as the process.
        unsafe { Self::from_descriptor(plugin) }.map_err(|error| error.at(path.display()))
    }

    /// Takes a descriptor that is in this program already.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if it is null, too short, of another major version, without a name or
    /// without functions.
    ///
    /// # Safety
    /// The pointer must be null or point to a descriptor, as long as its `struct_size` says, that lives as long as the process
    /// and keeps the contract of [`zheng17_plugin_abi`].
    pub unsafe fn from_descriptor(plugin: *const abi::Plugin) -> Result<Self> {
        // SAFETY: passed on.
        let plugin = unsafe { copied(plugin) }?;
        let name = text(plugin.name).unwrap_or_default();
        if !abi::is_name(name.as_bytes()) {
            let most = abi::LONGEST_NAME;
            let shown: String = calls::for_people(&name).chars().take(most).collect();
            return Err(Error::usage(format!(
                "the plugin's name must be small letters, digits, - and _, a letter first, {most} at most, and not auto or cuda, \
                 but is \"{shown}\""
            )));
        }
        if plugin.fold_counts.is_none()
            && plugin.fold_moments.is_none()
            && plugin.select.is_none()
            && plugin.scale.is_none()
        {
            return Err(Error::usage(format!("the plugin {name} has no functions")));
        }
        let description = text(plugin.description).unwrap_or_else(|| "a plugin".to_owned());
        let description = calls::for_people(&description).chars().take(LONGEST_DESCRIPTION).collect();
        Ok(Self { name, description, abi_minor: plugin.abi_minor, plugin, watched: false })
    }

    /// The same plugin, watched more closely than is cheap: what it is given to read is compared before and after each call, and
    /// scaled values go where writing outside of their room is seen. For those who examine plugins.
    pub fn watched(self) -> Self {
        Self { watched: true, ..self }
    }

    /// The name that users choose it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of the interface that it was written for: major and minor.
    pub fn abi_version(&self) -> (u32, u32) {
        (abi::ABI_MAJOR, self.abi_minor)
    }

    /// The functions that it has itself; the others are the host's.
    pub fn functions(&self) -> Vec<&'static str> {
        let plugin = &self.plugin;
        let all = [
            ("fold_counts", plugin.fold_counts.is_some()),
            ("fold_moments", plugin.fold_moments.is_some()),
            ("select", plugin.select.is_some()),
            ("scale", plugin.scale.is_some()),
        ];
        all.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
    }

    /// What it can do as a backend.
    pub fn capabilities(&self) -> Capabilities {
        let up_to_log = self.plugin.flags & abi::FLAG_SAME_BITS_UP_TO_LOG != 0;
        Capabilities {
            name: self.name.clone(),
            description: self.description.clone(),
            determinism: if up_to_log { Determinism::SameBitsUpToLog } else { Determinism::SameBits },
            ordered_fold: true,
            out_of_core: false,
            threads: false,
            devices: false,
        }
    }

    /// Makes a context, and chunk kernels of it.
    ///
    /// # Errors
    /// Those of the plugin's `create`.
    pub fn kernels(&self) -> Result<PluginKernels> {
        PluginKernels::new(&self.name, self.plugin, self.watched)
    }

    /// Makes a backend of it: chunks of cells in memory, handed to the plugin one after another.
    ///
    /// # Errors
    /// Those of the plugin's `create`.
    pub fn backend(&self) -> Result<KernelBackend<PluginKernels>> {
        Ok(KernelBackend::new(self.kernels()?, self.capabilities()))
    }
}

/// The descriptor as far as both sides know it; what the plugin does not have is null.
///
/// # Safety
/// As [`LoadedPlugin::from_descriptor`].
unsafe fn copied(plugin: *const abi::Plugin) -> Result<abi::Plugin> {
    /// Where the functions begin; what comes before is needed.
    const NEEDED: usize = std::mem::offset_of!(abi::Plugin, create);
    if plugin.is_null() {
        return Err(Error::usage("the plugin gave no description of itself"));
    }
    // SAFETY: every descriptor begins with its size and the version, in every major version.
    let (size, major) = unsafe { ((&raw const (*plugin).struct_size).read(), (&raw const (*plugin).abi_major).read()) };
    if major != abi::ABI_MAJOR {
        return Err(library::other_major(major));
    }
    let size = size as usize;
    if size < NEEDED {
        return Err(Error::usage(format!("the plugin's description has {size} bytes, but needs at least {NEEDED}")));
    }
    let mut known = abi::Plugin {
        struct_size: 0,
        abi_major: 0,
        abi_minor: 0,
        flags: 0,
        name: std::ptr::null(),
        description: std::ptr::null(),
        create: None,
        destroy: None,
        fold_counts: None,
        fold_moments: None,
        select: None,
        scale: None,
    };
    // A function that is there by half is not there.
    let common = size.min(size_of::<abi::Plugin>()) / size_of::<usize>() * size_of::<usize>();
    // SAFETY: the plugin has `size` bytes, `known` has its own size, and both are plain data in which all zeros are valid.
    unsafe { std::ptr::copy_nonoverlapping(plugin.cast::<u8>(), (&raw mut known).cast::<u8>(), common) };
    Ok(known)
}

fn text(from: *const std::ffi::c_char) -> Option<String> {
    // SAFETY: by contract texts are null or end with a 0, and live as long as the process.
    (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}
