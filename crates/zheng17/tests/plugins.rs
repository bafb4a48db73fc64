//! A plugin that was loaded is a backend like the others.

#![cfg(feature = "plugins")]

use zheng17::{ErrorKind, SparseBackend as _};
use zheng17_test_support::{compile_plugin, example_in_c};

#[test]
fn loaded_plugins_are_listed_and_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = compile_plugin(&example_in_c(), &[], folder.path());
    let before = zheng17::registry().expect("backends").entries().len();
    let loaded = zheng17::load_plugin(&library).expect("a plugin");
    assert_eq!(loaded.name, "example-c");
    let registry = zheng17::registry().expect("backends");
    assert_eq!(registry.entries().len(), before + 1);
    assert_eq!(registry.create("example-c").expect("a backend").capabilities(), &loaded);

    // The same file again is the same plugin; another file with its name is not.
    assert_eq!(zheng17::load_plugin(&library).expect("the same plugin"), loaded);
    let copy = folder.path().join("copy.so");
    std::fs::copy(&library, &copy).expect("copied");
    let error = zheng17::load_plugin(&copy).expect_err("the name is taken");
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().contains("two backends are called example-c"), "{error}");
    assert!(error.to_string().contains("copy.so"), "{error}");
    assert_eq!(zheng17::registry().expect("backends").entries().len(), before + 1);
}
