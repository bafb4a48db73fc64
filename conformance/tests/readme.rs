//! The table of backends in the README is made of what they say of themselves, and of what a plugin says.

use std::fmt::Write as _;
use std::path::Path;

use zheng17_core::Capabilities;
use zheng17_plugin_host::LoadedPlugin;
use zheng17_test_support::{compile_plugin, example_in_c};

const START: &str = "<!-- backends: ZHENG17_RENEW_README=1 cargo test -p zheng17-conformance --test readme -->\n";
const END: &str = "<!-- end of backends -->";

fn table(backends: &[Capabilities]) -> String {
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
    let mut table = line(&Capabilities::TABLE_HEADINGS);
    let _ = writeln!(table, "|{}", "---|".repeat(Capabilities::TABLE_HEADINGS.len()));
    for backend in backends {
        let mut row = backend.table_row();
        let name = format!("`{}`", row[0]);
        row[0] = &name;
        table += &line(&row);
    }
    table
}

#[test]
fn table_of_backends_is_what_they_say() {
    let registry = zheng17::registry().expect("the backends of this build");
    let mut backends: Vec<Capabilities> = registry.entries().iter().map(|entry| entry.capabilities.clone()).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let plugin = LoadedPlugin::load(&compile_plugin(&example_in_c(), &[], folder.path())).expect("the example in C");
    backends.push(plugin.capabilities());

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(&path).expect("the README");
    let (before, rest) = readme.split_once(START).expect("where the table starts");
    let (committed, after) = rest.split_once(END).expect("where the table ends");
    let generated = format!("\n{}\n", table(&backends));
    if std::env::var_os("ZHENG17_RENEW_README").is_some() {
        std::fs::write(&path, [before, START, &generated, END, after].concat()).expect("written");
        return;
    }
    assert_eq!(committed, generated, "renew it as it says there");
}
