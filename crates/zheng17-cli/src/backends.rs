//! `zheng17 backends`: the backends of this program and what they can do, from their capabilities.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{ContentArrangement, Table};
use serde_json::json;
use zheng17_core::Result;
use zheng17_core::backend::Determinism;

use crate::arguments::BackendsArguments;
use crate::plugins;
use crate::terminal::say;

/// Fits most terminals and half a screen.
const WIDTH: u16 = 100;

/// Lists the backends.
///
/// # Errors
/// Those of loading plugins and of writing to standard output.
pub(crate) fn backends(arguments: &BackendsArguments) -> Result<()> {
    plugins::load(&arguments.plugins, None)?;
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
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(["name", "threads", "beyond memory", "GPU", "scanpy-1.4", "result", "what it is"]);
    for backend in all() {
        table.add_row([
            backend.name.as_str(),
            yes(backend.threads),
            yes(backend.out_of_core),
            yes(backend.devices),
            yes(backend.ordered_fold),
            determinism(backend.determinism),
            backend.description.as_str(),
        ]);
    }
    say(&format!("{table}\n"))
}

fn determinism(determinism: Determinism) -> &'static str {
    match determinism {
        Determinism::SameBits => "same bits",
        Determinism::SameBitsUpToLog => "same bits up to the log",
    }
}
