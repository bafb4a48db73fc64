//! Which backends a feature set has, exactly. `cargo xtask test` runs this with every set that matters; features only add.

use zheng17::core::backend::Origin;

#[test]
fn backends_of_this_feature_set() {
    let registry = zheng17::registry().expect("no two backends have one name");
    let names: Vec<&str> = registry.entries().iter().map(|entry| entry.capabilities.name.as_str()).collect();
    let mut expected = vec!["serial"];
    if cfg!(feature = "lazy") {
        expected.insert(0, "lazy");
    }
    if cfg!(feature = "rayon") {
        expected.insert(0, "rayon");
    }
    if cfg!(feature = "cuda") {
        expected.extend(["cuda", "cuda-cublas"]);
    }
    // Packages that tests of this crate may use, but that this one does not name, are not linked: their backends are not here.
    assert_eq!(names, expected);
    assert!(registry.entries().iter().all(|entry| matches!(entry.origin, Origin::Explicit(_))));
    assert!(names.contains(&zheng17::DEFAULT_BACKEND));
}
