//! `zheng17 backends`: the backends of this program and what they can do, from their capabilities.

use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use serde_json::json;
use zheng17_core::Result;
use zheng17_core::backend::Determinism;

use crate::arguments::BackendsArguments;
use crate::terminal::say;

/// Lists the backends.
///
/// # Errors
/// Those of writing to standard output.
pub(crate) fn backends(arguments: &BackendsArguments) -> Result<()> {
    let registry = zheng17::registry()?;
    let all = || registry.entries().iter().map(|entry| &entry.capabilities);
    if arguments.json {
        let list: Vec<_> = all()
            .map(|backend| {
                json!({
                    "name": backend.name,
                    "description": backend.description,
                    "determinism": determinism(backend.determinism),
                    "scanpy_1_4": backend.ordered_fold,
                    "out_of_core": backend.out_of_core,
                    "threads": backend.threads,
                    "devices": backend.devices,
                })
            })
            .collect();
        return say(&format!("{:#}\n", json!(list)));
    }
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_header(["name", "what it is", "result", "scanpy-1.4", "beyond memory", "threads", "GPU"]);
    for backend in all() {
        table.add_row([
            backend.name.as_str(),
            backend.description.as_str(),
            determinism(backend.determinism),
            yes(backend.ordered_fold),
            yes(backend.out_of_core),
            yes(backend.threads),
            yes(backend.devices),
        ]);
    }
    say(&format!("{table}\n"))
}

fn determinism(determinism: Determinism) -> &'static str {
    match determinism {
        Determinism::SameBits => "same bits as the reference",
        Determinism::SameBitsUpToLog => "same bits up to the logarithm",
    }
}
