//! Plugins at the command line: where they are looked for, and what a check says of good, wrong, crashing and endless ones.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use tempfile::TempDir;
use zheng17_test_support::{compile_plugin, example_in_c};

/// The program, with a home of its own.
fn zheng17(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::cargo_bin("zheng17").expect("the program is built with its tests");
    command
        .current_dir(home)
        .env("HOME", home)
        .env_remove("XDG_DATA_HOME")
        .env_remove("ZHENG17_PLUGIN_PATH")
        .args(words);
    command
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("the program writes Unicode");
    (status.code(), text(stdout), text(stderr))
}

fn home_with_example() -> (TempDir, PathBuf) {
    let home = TempDir::new().expect("a temporary folder");
    let library = compile_plugin(&example_in_c(), &[], home.path());
    (home, library)
}

#[test]
fn plugins_are_found_where_they_are_looked_for_and_nowhere_else() {
    let (home, library) = home_with_example();
    let home = home.path();
    let (status, said, _) = output(&mut zheng17(home, &["plugins", "list"]));
    assert_eq!(status, Some(0));
    assert!(said.starts_with("no plugins were found"), "the current folder is not looked at: {said}");

    let (status, said, _) = output(zheng17(home, &["plugins", "list"]).env("ZHENG17_PLUGIN_PATH", ""));
    assert!(status == Some(0) && said.starts_with("no plugins were found"), "{said}");

    let (status, said, _) = output(zheng17(home, &["plugins", "list"]).env("ZHENG17_PLUGIN_PATH", home));
    assert_eq!(status, Some(0));
    assert!(said.contains("example-c: an example of a plugin in C"), "{said}");

    let (status, _, error) = output(zheng17(home, &["plugins", "list"]).env("ZHENG17_PLUGIN_PATH", "."));
    assert_eq!(status, Some(2));
    assert!(error.contains("folders must be given from the root"), "{error}");

    let folder = home.join(".local/share/zheng17/plugins");
    fs::create_dir_all(&folder).expect("made");
    let installed = folder.join(library.file_name().expect("a name"));
    fs::copy(&library, &installed).expect("copied");
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    allow(&folder, 0o755);
    allow(&installed, 0o755);
    assert!(output(&mut zheng17(home, &["plugins", "list"])).1.contains("example-c"));
    let (_, said, _) = output(&mut zheng17(home, &["backends"]));
    assert!(said.contains(&format!("example-c: loaded from {}", installed.display())), "{said}");
    for path in [&folder, &installed] {
        allow(path, 0o777);
        let (status, _, error) = output(&mut zheng17(home, &["plugins", "list"]));
        assert_eq!(status, Some(2));
        assert!(error.contains("nobody else may write it"), "{error}");
        allow(path, 0o755);
    }

    output(&mut zheng17(home, &["simulate", "--cells", "120", "--genes", "3000", "-o", "counts.h5ad"]));
    let run = ["run", "counts.h5ad", "-f", "-o", "out.h5ad", "--backend"];
    let (status, said, error) = output(&mut zheng17(home, &[&run[..], &["example-c"]].concat()));
    assert_eq!(status, Some(0), "{error}");
    assert!(said.contains("example-c"), "{said}");
    let (status, _, error) = output(&mut zheng17(home, &[&run[..], &["nobody"]].concat()));
    assert_eq!(status, Some(2));
    assert!(error.contains("there is no backend \"nobody\"") && error.contains("example-c"), "{error}");
}

fn checked(body: &str, limit: &str) -> (Option<i32>, String, String) {
    let home = TempDir::new().expect("a temporary folder");
    let source = home.path().join("plugin.c");
    let text = format!(
        "#include <stdlib.h>\n#include \"zheng17_plugin.h\"\n\
         static int32_t fold(void *a, const zheng17_chunk *chunk, zheng17_counts *counts, zheng17_message *b) {{\n\
         (void)a; (void)b; (void)chunk; (void)counts;\n{body}\nreturn 0; }}\n\
         static const zheng17_plugin PLUGIN = {{ .struct_size = sizeof(zheng17_plugin), .abi_major = 1,\n\
         .name = \"odd\", .fold_counts = fold }};\n\
         const zheng17_plugin *zheng17_plugin_v1(void) {{ return &PLUGIN; }}\n"
    );
    fs::write(&source, text).expect("written");
    let library = compile_plugin(&source, &[], home.path());
    let library = library.to_str().expect("a path");
    output(&mut zheng17(home.path(), &["plugins", "check", library, "--time-limit", limit]))
}

#[test]
fn check_passes_a_good_plugin_and_tells_what_is_wrong_with_others() {
    let (home, library) = home_with_example();
    let library = library.to_str().expect("a path");
    let (status, said, error) = output(&mut zheng17(home.path(), &["plugins", "check", library]));
    assert_eq!(status, Some(0), "{error}");
    assert!(said.contains("agrees with the reference"), "{said}");

    let (status, _, error) = checked("", "60");
    assert_eq!(status, Some(1));
    assert!(error.contains("plugin odd: gave a wrong result"), "{error}");

    let (status, _, error) = checked("abort();", "60");
    assert_eq!(status, Some(1));
    assert!(error.contains("the plugin ended its process"), "{error}");

    let started = Instant::now();
    let (status, _, error) = checked("for (;;) counts->n_entries++;", "1");
    assert_eq!(status, Some(1));
    assert!(error.contains("it was not done after 1 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30));
}
