//! A program that names a package with a backend has the backend, and another of the same name takes its place.

use zheng17::core::backend::{Origin, Registry};
use zheng17_template_static as _;

const NAME: &str = "template-static";

fn linked() -> Origin {
    Origin::Linked("zheng17-template-static")
}

#[test]
fn linked_backends_are_listed_after_those_of_this_build() {
    let registry = zheng17::registry().expect("backends");
    let (last, built_in) = registry.entries().split_last().expect("backends");
    assert_eq!((last.capabilities.name.as_str(), &last.origin), (NAME, &linked()));
    assert!(built_in.iter().all(|entry| matches!(entry.origin, Origin::Explicit(_))));
    registry.create(NAME).expect("a backend");
}

#[test]
fn a_registered_backend_takes_the_place_of_a_linked_one() {
    let mut registry = Registry::default();
    registry.register_linked().expect("one linked backend");
    zheng17_template_static::register(&mut registry).expect("the linked one gives way");
    assert_eq!(registry.entries().len(), 1);
    assert_eq!(registry.find(NAME).expect("it").origin, Origin::Explicit("zheng17-template-static"));
    assert_eq!(registry.replaced()[0].origin, linked());
}

#[cfg(feature = "plugins")]
#[test]
fn a_loaded_backend_takes_the_place_of_a_linked_one_and_excludes_a_registered_one() {
    use std::process::Command;

    use zheng17_test_support::{compile_plugin, example_in_c};

    // A process of its own, so that the other tests of this program have no plugin.
    const LIBRARY: &str = "ZHENG17_TEST_LIBRARY";
    let Some(library) = std::env::var_os(LIBRARY) else {
        let folder = tempfile::tempdir().expect("a folder");
        let text = std::fs::read_to_string(example_in_c()).expect("the example");
        let source = folder.path().join("plugin.c");
        std::fs::write(&source, text.replace("\"example-c\"", &format!("\"{NAME}\""))).expect("written");
        let library = compile_plugin(&source, &[], folder.path());
        let program = std::env::current_exe().expect("this program");
        let name = "a_loaded_backend_takes_the_place_of_a_linked_one_and_excludes_a_registered_one";
        let output = Command::new(program).args(["--exact", name]).env(LIBRARY, library).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    };
    zheng17::load_plugin(library.as_ref()).expect("the linked one gives way");
    let mut registry = zheng17::registry().expect("backends");
    assert!(matches!(registry.find(NAME).expect("it").origin, Origin::Loaded(_)));
    assert_eq!(registry.replaced()[0].origin, linked());

    let said =
        zheng17_template_static::register(&mut registry).expect_err("the loaded one could not be reached").to_string();
    assert!(said.contains("loaded from ") && said.contains("built in (zheng17-template-static)"), "{said}");
}
