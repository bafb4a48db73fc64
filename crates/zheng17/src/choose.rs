//! Which backend suits a matrix and the memory there is.

use std::sync::Arc;

use zheng17_core::backend::AUTO;
use zheng17_core::recipe::Params;
use zheng17_core::{AnyBackend, ChunkSource, Context, Error, ErrorKind, Result};

use crate::registry;

/// A backend, and why it is this one.
pub struct Choice {
    /// The backend.
    pub backend: AnyBackend,
    /// Why, for people: a sentence without its end. `None` where the backend was asked for.
    pub reason: Option<String>,
}

/// The backend of a name for a run of the recipe, or for [`AUTO`] the one that suits: on devices if `ctx` asks for some and they are
/// there; in memory if all that the run needs fits; else out of core.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for a name that no backend has, if devices are asked of a backend that has none,
/// and if the run will need more memory than `ctx` allows; those of reading a few cells.
pub fn choose(name: &str, source: &Arc<dyn ChunkSource>, params: &Params, ctx: &Context) -> Result<Choice> {
    match on_devices(name, ctx)? {
        Wish::None => choose_on_cpu(name, source, params, ctx),
        Wish::Met(choice) => Ok(choice),
        Wish::Unmet(why) => Ok(choose_on_cpu(name, source, params, ctx)?.after(&why)),
    }
}

impl Choice {
    /// This choice, with what comes before its reason.
    fn after(self, why: &str) -> Self {
        Self { reason: self.reason.map(|reason| format!("{why}; {reason}")), ..self }
    }
}

/// What becomes of a wish for devices.
enum Wish {
    /// There is none, or the backend that was asked for has devices.
    None,
    /// The backend that has them.
    Met(Choice),
    /// Why the CPU must do.
    Unmet(String),
}

fn on_devices(name: &str, ctx: &Context) -> Result<Wish> {
    if ctx.devices.is_none() && ctx.device_memory.is_none() {
        return Ok(Wish::None);
    }
    let registry = registry()?;
    if name != AUTO {
        return if registry.find(name)?.capabilities.devices {
            Ok(Wish::None)
        } else {
            Err(Error::usage(format!("devices were asked for, but the backend {name} computes on the CPU")))
        };
    }
    let Some(entry) = registry.entries().iter().find(|entry| entry.capabilities.devices) else {
        return Ok(Wish::Unmet("devices were asked for, but this build has no backend for them".to_owned()));
    };
    match registry.create(&entry.capabilities.name) {
        Ok(backend) => Ok(Wish::Met(Choice { backend, reason: Some("devices were asked for".to_owned()) })),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            // What comes after it says what to do, which is done already.
            let why = error.to_string();
            Ok(Wish::Unmet(format!("devices were asked for, but {}", why.split(';').next().unwrap_or(&why))))
        }
        Err(error) => Err(error),
    }
}

fn choose_on_cpu(name: &str, source: &Arc<dyn ChunkSource>, params: &Params, ctx: &Context) -> Result<Choice> {
    if name != AUTO && (ctx.memory.is_none() || cfg!(not(feature = "lazy"))) {
        // There is nothing to weigh.
        return Ok(Choice { backend: registry()?.create(name)?, reason: None });
    }
    memory::choose(name, source, params, ctx)
}

/// As [`choose`], for a run of which it is known what it takes.
#[cfg(feature = "lazy")]
pub(crate) fn choose_for(name: &str, memory: &crate::memory::Memory<'_>, ctx: &Context) -> Result<Choice> {
    match on_devices(name, ctx)? {
        Wish::None => memory::choose_for(name, memory, ctx),
        Wish::Met(choice) => Ok(choice),
        Wish::Unmet(why) => Ok(memory::choose_for(name, memory, ctx)?.after(&why)),
    }
}

#[cfg(feature = "lazy")]
mod memory {
    use zheng17_core::SparseBackend as _;

    use super::{AUTO, AnyBackend, Arc, Choice, ChunkSource, Context, Error, Params, Result};
    use crate::memory::Memory;
    use crate::{DEFAULT_BACKEND, registry};

    /// As [`super::choose`].
    pub(super) fn choose(name: &str, source: &Arc<dyn ChunkSource>, params: &Params, ctx: &Context) -> Result<Choice> {
        choose_for(name, &Memory::new(source, params, ctx)?, ctx)
    }

    /// As [`super::choose_for`].
    pub(super) fn choose_for(name: &str, memory: &Memory<'_>, ctx: &Context) -> Result<Choice> {
        if name == AUTO {
            let (name, reason) = suitable(memory, ctx)?;
            return Ok(Choice { backend: registry()?.create(name)?, reason: Some(reason) });
        }
        let backend = registry()?.create(name)?;
        check(&backend, memory, ctx)?;
        Ok(Choice { backend, reason: None })
    }

    /// The backend in memory if a run fits, else the one out of core.
    fn suitable(memory: &Memory<'_>, ctx: &Context) -> Result<(&'static str, String)> {
        let peak = memory.in_memory_peak(DEFAULT_BACKEND != "serial");
        let (needed, limit) = (megabytes(peak), memory.limit / 1_000_000);
        if peak <= memory.limit {
            return Ok((DEFAULT_BACKEND, format!("the run needs about {needed} MB, and {limit} MB may be used")));
        }
        check_lazy(memory, ctx)?;
        Ok(("lazy", format!("in memory the run would need about {needed} MB, but {limit} MB may be used")))
    }

    /// Refuses what will not fit the memory that was given.
    fn check(backend: &AnyBackend, memory: &Memory<'_>, ctx: &Context) -> Result<()> {
        if ctx.memory.is_none() {
            return Ok(());
        }
        let capabilities = backend.capabilities();
        if capabilities.out_of_core {
            return check_lazy(memory, ctx);
        }
        let (peak, why) = if capabilities.devices {
            (memory.device_peak(), "even if the devices hold the matrix")
        } else {
            (memory.in_memory_peak(capabilities.threads), "which holds the matrix in memory")
        };
        if peak > memory.limit {
            return Err(Error::usage(format!(
                "the run needs about {} MB with the backend {}, {why}, but {} MB may be used; the backend lazy needs less",
                megabytes(peak),
                capabilities.name,
                memory.limit / 1_000_000
            )));
        }
        Ok(())
    }

    fn check_lazy(memory: &Memory<'_>, ctx: &Context) -> Result<()> {
        let plan = memory.lazy()?;
        let peak = memory.lazy_peak(&plan);
        if ctx.memory.is_some() && peak > memory.limit {
            return Err(Error::usage(format!(
                "{} components of {} genes need about {} MB, but {} MB may be used; fewer genes, or no components, need less",
                memory.n_components,
                memory.n_selected,
                megabytes(peak),
                memory.limit / 1_000_000
            )));
        }
        Ok(())
    }

    fn megabytes(bytes: u64) -> u64 {
        bytes.div_ceil(1_000_000)
    }
}

#[cfg(not(feature = "lazy"))]
mod memory {
    use super::{Arc, Choice, ChunkSource, Context, Params, Result};
    use crate::{DEFAULT_BACKEND, registry};

    /// The only choice.
    pub(super) fn choose(
        _name: &str,
        _source: &Arc<dyn ChunkSource>,
        _params: &Params,
        _ctx: &Context,
    ) -> Result<Choice> {
        let reason = "this build has none that works out of core".to_owned();
        Ok(Choice { backend: registry()?.create(DEFAULT_BACKEND)?, reason: Some(reason) })
    }
}
