//! What each backend of this build, and each example plugin, says it can't do, written down: a backend that comes to support less is seen.

use std::path::Path;

use zheng17_conformance::{built_in, cases, plugin};
use zheng17_test_support::{compile_plugin, example_in_c, example_in_rust};

#[test]
fn unsupported_cases_of_each_backend() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut subjects = built_in().expect("the backends of this build");
    for library in [example_in_rust(), compile_plugin(&example_in_c(), &[], folder.path())] {
        subjects.push(plugin(&library).expect("an example").0);
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for subject in subjects {
        let unsupported: Vec<String> = cases()
            .iter()
            .filter(|case| !case.requires.iter().all(|needed| needed.is_met_by(subject.capabilities())))
            .map(|case| case.name.clone())
            .collect();
        let text = if unsupported.is_empty() { "none".to_owned() } else { unsupported.join("\n") };
        settings.bind(|| insta::assert_snapshot!(format!("unsupported_by_{}", subject.name()), text));
    }
}
