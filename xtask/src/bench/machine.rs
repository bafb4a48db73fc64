//! On what was measured: processor, memory, versions.

use std::path::Path;

use serde_json::{Value, json};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::command::output;

/// This machine and what it measures with.
pub(crate) fn describe() -> Value {
    let what =
        RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()).with_memory(MemoryRefreshKind::nothing().with_ram());
    let (processor, memory) = match System::new_with_specifics(what) {
        Ok(system) => {
            let brand = system.cpus().first().map(|cpu| cpu.brand().to_owned());
            (brand.unwrap_or_default(), system.total_memory())
        }
        Err(_) => (String::new(), 0),
    };
    json!({
        "processor": processor,
        "threads": threads(),
        "memory_bytes": memory,
        "system": System::long_os_version().ok(),
        "rust": output(Path::new("rustc"), &["--version"]),
    })
}

/// The commit that is measured, and when.
pub(crate) fn commit() -> Value {
    let git = |arguments: &[&str]| output(Path::new("git"), arguments);
    json!({
        "commit": git(&["describe", "--always", "--dirty", "--abbrev=10"]),
        "date": output(Path::new("date"), &["+%F"]),
        "load_before": System::load_average().ok().map(|load| load.one),
    })
}

/// The machine for people.
pub(crate) fn text(machine: &Value) -> String {
    let versions = ["system", "rust", "python"].iter().filter_map(|key| machine[key].as_str());
    format!(
        "Machine: {} processors of {}, {:.0} GB of memory; {}.",
        machine["threads"],
        machine["processor"].as_str().unwrap_or("unknown kind"),
        machine["memory_bytes"].as_f64().unwrap_or(0.0) / 1e9,
        versions.collect::<Vec<_>>().join("; "),
    )
}

/// Processors that a program can use.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
