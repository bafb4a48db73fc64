//! Which backend suits a matrix and the memory there is.

use std::sync::Arc;

use zheng17_core::backend::AUTO;
use zheng17_core::recipe::{Params, Statistics};
use zheng17_core::{AnyBackend, ChunkSource, Context, Error, ErrorKind, Result, SparseBackend as _};

use crate::registry;

/// A backend, and why it is this one.
pub struct Choice {
    /// The backend.
    pub backend: AnyBackend,
    /// Why, for people: a sentence without its end. `None` where the backend was asked for.
    pub reason: Option<String>,
    /// What somebody asked for that this backend doesn't do: a sentence, for people.
    pub note: Option<String>,
}

/// The backend of a name for a run of the recipe, or for [`AUTO`] the one that suits: on devices if `ctx` asks for some and they are
/// there; in memory if all that the run needs fits; else out of core.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for a name that no backend has, if devices are asked of a backend that has none,
/// and if the run will need more memory than `ctx` allows; those of reading a few cells.
pub fn choose(name: &str, source: &Arc<dyn ChunkSource>, params: &Params, ctx: &Context) -> Result<Choice> {
    let wish = Wish::of(name, params, ctx)?;
    if name != AUTO && (ctx.memory.is_none() || cfg!(not(feature = "lazy"))) {
        // There is nothing to weigh.
        return Ok(Choice { backend: registry()?.create(name)?, reason: None, note: None });
    }
    memory::choose(wish, name, source, params, ctx)
}

/// As [`choose`], for a run of which it is known what it takes.
#[cfg(feature = "lazy")]
pub(crate) fn choose_for(
    name: &str,
    memory: &crate::memory::Memory<'_>,
    params: &Params,
    ctx: &Context,
) -> Result<Choice> {
    memory::choose_for(Wish::of(name, params, ctx)?, name, memory, ctx)
}

impl Choice {
    /// The context to run in. A backend with devices keeps in memory what they have no room for, and so is told how much that may
    /// be where nobody said.
    pub fn context(&self, ctx: &Context) -> Context {
        let has_devices = self.backend.capabilities().devices;
        Context { memory: ctx.memory.or_else(|| has_devices.then(memory::usual)), ..ctx.clone() }
    }

    /// This choice, made because devices can't be used. `why` may go on with what to do, which is done already.
    fn instead_of_devices(self, why: &str) -> Self {
        let why = why.split(';').next().unwrap_or(why);
        Self {
            reason: self.reason.map(|reason| format!("devices were asked for, but {why}; {reason}")),
            note: Some(format!("The devices that were asked for are not used: {why}.")),
            ..self
        }
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

impl Wish {
    fn of(name: &str, params: &Params, ctx: &Context) -> Result<Self> {
        if ctx.devices.is_none() && ctx.device_memory.is_none() {
            return Ok(Self::None);
        }
        let registry = registry()?;
        if name != AUTO {
            return if registry.find(name)?.capabilities.devices {
                Ok(Self::None)
            } else {
                Err(Error::usage(format!("devices were asked for, but the backend {name} computes on the CPU")))
            };
        }
        let Some(entry) = registry.entries().iter().find(|entry| entry.capabilities.devices) else {
            return Ok(Self::Unmet("this build has no backend for them".to_owned()));
        };
        let name = &entry.capabilities.name;
        if params.version.statistics == Statistics::OrderedFloat32 && !entry.capabilities.ordered_fold {
            return Ok(Self::Unmet(format!("the backend {name} can't run {}", params.version.name)));
        }
        match registry.create(name) {
            Ok(backend) => {
                Ok(Self::Met(Choice { backend, reason: Some("devices were asked for".to_owned()), note: None }))
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(Self::Unmet(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

#[cfg(feature = "lazy")]
mod memory {
    use zheng17_core::SparseBackend as _;

    use super::{AUTO, AnyBackend, Arc, Choice, ChunkSource, Context, Error, Params, Result, Wish};
    use crate::memory::Memory;
    use crate::{DEFAULT_BACKEND, registry};

    /// How much memory a process may use where nobody said.
    pub(super) fn usual() -> u64 {
        zheng17_lazy::default_memory()
    }

    /// As [`super::choose`].
    pub(super) fn choose(
        wish: Wish,
        name: &str,
        source: &Arc<dyn ChunkSource>,
        params: &Params,
        ctx: &Context,
    ) -> Result<Choice> {
        choose_for(wish, name, &Memory::new(source, params, ctx)?, ctx)
    }

    /// As [`super::choose_for`].
    pub(super) fn choose_for(wish: Wish, name: &str, memory: &Memory<'_>, ctx: &Context) -> Result<Choice> {
        match wish {
            Wish::None => choose_on_cpu(name, memory, ctx),
            Wish::Unmet(why) => Ok(choose_on_cpu(name, memory, ctx)?.instead_of_devices(&why)),
            Wish::Met(choice) => match check(&choice.backend, memory, ctx) {
                Ok(()) => Ok(choice),
                Err(error) => Ok(choose_on_cpu(name, memory, ctx)?.instead_of_devices(&error.to_string())),
            },
        }
    }

    fn choose_on_cpu(name: &str, memory: &Memory<'_>, ctx: &Context) -> Result<Choice> {
        if name == AUTO {
            let (name, reason) = suitable(memory, ctx)?;
            return Ok(Choice { backend: registry()?.create(name)?, reason: Some(reason), note: None });
        }
        let backend = registry()?.create(name)?;
        check(&backend, memory, ctx)?;
        Ok(Choice { backend, reason: None, note: None })
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
    use super::{Arc, Choice, ChunkSource, Context, Params, Result, Wish};
    use crate::{DEFAULT_BACKEND, registry};

    /// Without a limit: this build weighs no memory.
    pub(super) fn usual() -> u64 {
        u64::MAX
    }

    /// The only choice, but for devices.
    pub(super) fn choose(
        wish: Wish,
        _name: &str,
        _source: &Arc<dyn ChunkSource>,
        _params: &Params,
        _ctx: &Context,
    ) -> Result<Choice> {
        let reason = Some("this build has none that works out of core".to_owned());
        let on_cpu = || Ok(Choice { backend: registry()?.create(DEFAULT_BACKEND)?, reason, note: None });
        match wish {
            Wish::None => on_cpu(),
            Wish::Unmet(why) => Ok(on_cpu()?.instead_of_devices(&why)),
            Wish::Met(choice) => Ok(choice),
        }
    }
}
