//! The table of kernels names exactly the kernels that are shipped, module by module.

use std::collections::BTreeSet;

use zheng17_cuda::ptx::{MODULES, PtxModule};

const TABLE: &str = include_str!("../kernels/README.md");

/// The kernels of a module's section of the table, with the forms of matrices in place of what stands for them.
fn listed(module: &PtxModule) -> BTreeSet<String> {
    let heading = format!("## `{}.ptx`", module.name);
    let section = TABLE.split_once(&heading).map(|(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
    let rows = section.into_iter().flat_map(str::lines).filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let names = rows.map(|(name, _)| vec![name.to_owned()]);
    let expand = |names: Vec<String>, word: &str, forms: &[&str]| -> Vec<String> {
        names
            .iter()
            .flat_map(|name| {
                if name.contains(word) { forms.to_vec() } else { vec![""] }
                    .into_iter()
                    .map(|form| name.replace(word, form))
            })
            .collect()
    };
    names.flat_map(|names| expand(expand(names, "FORM", &["narrow", "f32", "f64"]), "WIDE", &["f32", "f64"])).collect()
}

/// The kernels in a module's compiled form.
fn shipped(module: &PtxModule) -> BTreeSet<String> {
    let entries = module.text.split(".entry ").skip(1);
    entries.filter_map(|entry| entry.split('(').next()).map(str::to_owned).collect()
}

#[test]
fn the_table_lists_the_kernels_that_are_shipped() {
    for module in &MODULES {
        assert_eq!(listed(module), shipped(module), "{}", module.name);
    }
}
