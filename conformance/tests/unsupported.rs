//! What each backend of this build says it can't do, written down: a backend that comes to support less is seen.

use std::path::Path;

use zheng17_conformance::{built_in, cases};

#[test]
fn unsupported_cases_of_each_backend() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for subject in built_in().expect("the backends of this build") {
        let unsupported: Vec<String> = cases()
            .iter()
            .filter(|case| !case.requires.iter().all(|needed| needed.is_met_by(subject.capabilities())))
            .map(|case| case.name.clone())
            .collect();
        let text = if unsupported.is_empty() { "none".to_owned() } else { unsupported.join("\n") };
        settings.bind(|| insta::assert_snapshot!(format!("unsupported_by_{}", subject.name()), text));
    }
}
