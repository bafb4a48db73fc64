//! Which machine it is.

use serde_json::json;
use sysinfo::{MemoryRefreshKind, RefreshKind, System};
use zheng17::Result;

use crate::output::{Output, say};

/// Bytes of memory that programs may still take; 0 where the system doesn't tell.
pub(crate) fn available_memory() -> u64 {
    memory().1
}

/// Bytes of memory, all and available.
fn memory() -> (u64, u64) {
    let what = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    System::new_with_specifics(what).map_or((0, 0), |system| (system.total_memory(), system.available_memory()))
}

/// Threads of the machine.
pub(crate) fn threads() -> std::num::NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(std::num::NonZeroUsize::MIN)
}

/// Says what the machine has.
pub(crate) fn run(output: &Output) -> Result<bool> {
    for device in &output.devices {
        let (major, minor) = device.compute_capability;
        say(&format!(
            "{}: {} MB of memory, {} MB free, compute capability {major}.{minor}, {} multiprocessors",
            device.name,
            device.memory / 1_000_000,
            device.free / 1_000_000,
            device.multiprocessors
        ));
        output.record(json!({
            "what": "device",
            "name": device.name,
            "memory": device.memory,
            "free": device.free,
            "compute_capability": format!("{major}.{minor}"),
            "multiprocessors": device.multiprocessors,
        }))?;
    }
    let (threads, (memory, available)) = (threads().get(), memory());
    say(&format!(
        "host: {threads} threads, {} MB of memory, {} MB available",
        memory / 1_000_000,
        available / 1_000_000
    ));
    output.record(json!({
        "what": "host",
        "threads": threads,
        "cuda": zheng17_cuda::measure::driver_version()?,
        "memory": memory,
        "available": available,
        "program": concat!("zheng17-gpu-check ", env!("CARGO_PKG_VERSION")),
    }))?;
    Ok(true)
}
