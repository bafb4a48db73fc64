//! The program that runs the suite: what it says of a plugin that is half written, and that nothing run is a failure.

use std::path::{Path, PathBuf};
use std::process::Command;

use zheng17_test_support::{compile_plugin, example_in_c};

/// Success, and what was printed.
fn conformance(arguments: &[&str], plugin: Option<&Path>) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zheng17-conformance"));
    command.args(arguments);
    if let Some(plugin) = plugin {
        command.arg("--plugin").arg(plugin);
    }
    let output = command.output().expect("the program runs");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_report_on_a_plugin_says_what_to_write_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = compile_plugin(&example_in_c(), &[], folder.path());
    let (good, said) = conformance(&["--case", "select"], Some(&library));
    assert!(good && said.contains("\nexample-c "), "{said}");
    assert!(
        said.contains("not yet written, so done without the backend: scale (in Rust affine_into), fold_moments"),
        "{said}"
    );
    assert!(said.contains("write scale next"), "{said}");

    let (good, said) = conformance(&["--json", "--case", "select"], Some(&library));
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert!(good && report["good"] == true);
    assert_eq!(report["not_written"], serde_json::json!(["scale", "fold_moments"]));
    assert!(report["backends"]["example-c"]["passed"].as_u64() > Some(0));
}

#[test]
fn no_case_is_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = compile_plugin(&example_in_c(), &[], folder.path());
    for plugin in [None, Some(library.as_path())] {
        let (good, said) = conformance(&["--case", "there is no such case"], plugin);
        assert!(!good && said.contains("no case was run, which is a failure"), "{said}");
        let (good, said) = conformance(&["--json", "--case", "there is no such case"], plugin);
        assert!(!good && said.contains("\"good\": false"), "{said}");
    }
}

/// A plugin in C whose `fold_counts` does something.
fn that_does(body: &str, folder: &Path) -> PathBuf {
    let source = folder.join("odd.c");
    let text = format!(
        "#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include \"zheng17_plugin.h\"\n\
         static int32_t fold(void *a, const zheng17_chunk *b, zheng17_counts *c, zheng17_message *d) {{\n\
         (void)a; (void)b; (void)c; (void)d;\n{body}\nreturn 0; }}\n\
         static const zheng17_plugin PLUGIN = {{ .struct_size = sizeof(zheng17_plugin), .abi_major = 1,\n\
         .name = \"odd\", .fold_counts = fold }};\n\
         const zheng17_plugin *zheng17_plugin_v1(void) {{ return &PLUGIN; }}\n"
    );
    std::fs::write(&source, text).expect("written");
    compile_plugin(&source, &[], folder)
}

#[test]
fn a_plugin_that_ends_the_suite_or_never_does_has_failed_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    for (body, how) in [
        ("_exit(0);", "the backend ended the process"),
        ("exit(0);", "the backend ended the process: exit status: 1"),
        ("abort();", "the backend ended the process: signal: 6 (SIGABRT)"),
        ("for (;;) sleep(1);", "it was not done after 5 s"),
    ] {
        let library = that_does(&format!("printf(\"noise\\n\"); {body}"), folder.path());
        let case = ["--case", "recipe::stepwise_agrees", "--case-limit", "5"];
        let (good, said) = conformance(&case, Some(&library));
        assert!(!good && said.starts_with("backend "), "{said}");
        assert!(said.contains(": odd::recipe::") && said.contains(&format!(": {how}\n")), "{said}");
        assert!(said.contains("stopped in odd::") && said.contains("cases were not run"), "{said}");
        let (good, said) = conformance(&[&case[..], &["--json"]].concat(), Some(&library));
        let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        assert!(!good && report["good"] == false && report["backends"]["odd"]["failed"] == 1, "{said}");
        assert!(report["stopped"].as_str().is_some_and(|stopped| stopped.contains(how)), "{said}");
    }
}

#[test]
fn json_counts_every_case_of_the_backend_asked_for() {
    let (good, said) = conformance(&["--backend", "serial", "--case", "select::", "--json"], None);
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert!(good && report["good"] == true, "{said}");
    let cases = report["cases"].as_array().expect("a list");
    let of_serial = |case: &serde_json::Value| case["backend"] == "serial" && case["verdict"] == "passed";
    assert!(!cases.is_empty() && cases.iter().all(of_serial), "{said}");
    assert_eq!(report["backends"]["serial"]["passed"], cases.len());
}

#[test]
fn what_is_not_there_is_a_usage_error() {
    for arguments in [["--backend", "none"], ["--plugin", "no-such-file.so"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zheng17-conformance"));
        let output = command.args(arguments).output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(arguments[1]), "{said}");
    }
}
