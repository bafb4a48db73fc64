//! `zheng17 backends`: the backends of this program and what they can do, from their capabilities.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{ContentArrangement, Table};
use serde_json::json;
use zheng17_core::Result;
use zheng17_core::backend::{BackendEntry, Capabilities, Origin};

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
    let replaced = |name: &str| {
        let replaced = registry.replaced().iter().filter(move |entry| entry.capabilities.name == name);
        replaced.map(|entry| entry.origin.to_string()).collect::<Vec<_>>()
    };
    if arguments.json {
        let list: Vec<_> = registry
            .entries()
            .iter()
            .map(|BackendEntry { capabilities: backend, origin, .. }| {
                json!({
                    "name": backend.name,
                    "description": backend.description,
                    "determinism": backend.determinism.name(),
                    "scanpy_1_4": backend.ordered_fold,
                    "out_of_core": backend.out_of_core,
                    "threads": backend.threads,
                    "devices": backend.devices,
                    "origin": origin.to_string(),
                    "in_place_of": replaced(&backend.name),
                })
            })
            .collect();
        return say(&format!("{:#}\n", json!(list)));
    }
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(Capabilities::TABLE_HEADINGS);
    let mut notes = Vec::new();
    for BackendEntry { capabilities: backend, origin, .. } in registry.entries() {
        table.add_row(backend.table_row());
        let replaced = replaced(&backend.name);
        if !matches!(origin, Origin::Explicit(_)) || !replaced.is_empty() {
            let instead: Vec<String> =
                replaced.iter().map(|other| format!(", in place of the one that is {other}")).collect();
            notes.push(format!("{}: {origin}{}\n", backend.name, instead.concat()));
        }
    }
    say(&format!("{table}\n{}", notes.concat()))
}
