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
        let (status, said, _) = output(&mut zheng17(home, &["plugins", "list"]));
        let remedy = format!("{}: is not used: others may write it; `chmod go-w '{0}'`", path.display());
        assert!(status == Some(0) && said.contains(&remedy) && !said.contains("example-c"), "{said}");
        let (status, said, error) = output(&mut zheng17(home, &["backends"]));
        assert!(status == Some(0) && !said.contains("example-c") && error.contains(&remedy), "{said}{error}");
        allow(path, 0o755);
    }
    // What can't be used is no hindrance to the others.
    let dangling = folder.join("dangling.so");
    std::os::unix::fs::symlink("nowhere", &dangling).expect("linked");
    fs::write(folder.join("text.so"), "text").expect("written");
    allow(&folder.join("text.so"), 0o644);
    std::os::unix::fs::symlink(&installed, folder.join("same.so")).expect("linked");
    let (status, said, _) = output(&mut zheng17(home, &["plugins", "list"]));
    assert_eq!(status, Some(0));
    assert!(said.contains("dangling.so: is not used: it is a link to nowhere"), "{said}");
    assert!(said.contains("text.so\n    error: is not a shared library\n"), "{said}");
    assert_eq!(said.matches("example-c:").count(), 1, "a file counts once: {said}");
    // A link is as good as what it leads to.
    let elsewhere = home.join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    fs::rename(&installed, elsewhere.join("plugin.so")).expect("moved");
    std::os::unix::fs::symlink(elsewhere.join("plugin.so"), &installed).expect("linked");
    allow(&elsewhere, 0o777);
    assert!(output(&mut zheng17(home, &["plugins", "list"])).1.contains("elsewhere'` changes that"));
    allow(&elsewhere, 0o755);

    output(&mut zheng17(home, &["simulate", "--cells", "120", "--genes", "3000", "-o", "counts.h5ad"]));
    let run = ["run", "counts.h5ad", "-f", "-o", "out.h5ad", "--backend"];
    let (status, said, error) = output(&mut zheng17(home, &[&run[..], &["example-c"]].concat()));
    assert_eq!(status, Some(0), "{error}");
    assert!(said.contains("example-c"), "{said}");
    let (status, _, error) = output(&mut zheng17(home, &[&run[..], &["nobody"]].concat()));
    assert_eq!(status, Some(2));
    assert!(error.contains("there is no backend \"nobody\"") && error.contains("example-c"), "{error}");
    let looked = format!("plugins were looked for in {}", folder.display());
    assert!(error.contains(&looked), "{error}");
    let named = installed.to_str().expect("a path");
    let (status, _, error) = output(&mut zheng17(home, &[&run[..], &["serial", "--plugin", named]].concat()));
    assert_eq!(status, Some(0));
    assert!(error.contains("note: example-c was loaded but not used; --backend example-c chooses it"), "{error}");
}

/// A plugin in C that is called odd; `body` is what its `fold_counts` does.
fn odd(body: &str, before: &str) -> (TempDir, String) {
    let home = TempDir::new().expect("a temporary folder");
    let source = home.path().join("plugin.c");
    let text = format!(
        "#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n#include \"zheng17_plugin.h\"\n\
         {before}\n\
         static int32_t fold(void *a, const zheng17_chunk *chunk, zheng17_counts *counts, zheng17_message *b) {{\n\
         (void)a; (void)b; (void)chunk; (void)counts;\n{body}\nreturn 0; }}\n\
         static const zheng17_plugin PLUGIN = {{ .struct_size = sizeof(zheng17_plugin), .abi_major = 1,\n\
         .name = \"odd\", .fold_counts = fold }};\n\
         const zheng17_plugin *zheng17_plugin_v1(void) {{ return &PLUGIN; }}\n"
    );
    fs::write(&source, text).expect("written");
    let library = compile_plugin(&source, &[], home.path());
    let library = library.to_str().expect("a path").to_owned();
    (home, library)
}

fn checked(body: &str, limit: &str) -> (Option<i32>, String, String) {
    let (home, library) = odd(body, "");
    output(&mut zheng17(home.path(), &["plugins", "check", &library, "--time-limit", limit]))
}

#[test]
fn a_plugin_that_ends_the_process_is_no_success() {
    let constructor = "__attribute__((constructor)) static void leave(void) { exit(0); }";
    for (body, before, when) in [("exit(0);", "", "in fold_counts"), ("", constructor, "when it was loaded")] {
        let (home, library) = odd(body, before);
        let home = home.path();
        output(&mut zheng17(home, &["simulate", "--cells", "50", "--genes", "3000", "-o", "counts.h5ad"]));
        let run = ["run", "counts.h5ad", "-o", "out.h5ad", "--plugin", &library, "--backend", "odd"];
        for words in [&run[..], &["plugins", "check", &library]] {
            let (status, _, error) = output(&mut zheng17(home, words));
            assert_eq!(status, Some(1), "{error}");
            assert!(error.contains(&format!("the plugin ended the process {when}")), "{error}");
        }
    }
    let (home, library) = odd("_exit(0);", "");
    let (status, _, error) = output(&mut zheng17(home.path(), &["plugins", "check", &library]));
    assert_eq!(status, Some(1));
    assert!(error.contains("the plugin ended its process before it was examined"), "{error}");
    let (home, library) = odd("", "__attribute__((constructor)) static void leave(void) { _exit(0); }");
    let list = ["plugins", "list"];
    let (status, said, _) = output(zheng17(home.path(), &list).env("ZHENG17_PLUGIN_PATH", home.path()));
    assert!(status == Some(0) && said.contains("error: the plugin ended its process"), "{library}: {said}");
}

#[test]
fn check_reads_and_ends_all_that_a_plugin_does() {
    // More than a pipe holds.
    let loud = "for (int i = 0; i < 100000; i++) fprintf(stderr, \"line %d\\n\", i);\nabort();";
    let (status, _, error) = checked(loud, "60");
    assert_eq!(status, Some(1));
    assert!(error.contains("the plugin's process said: line 99999\n"), "{error}");
    assert!(error.contains("SIGABRT") && error.len() < 2000, "{error}");
    let started = Instant::now();
    let (status, _, error) = checked("if (fork() == 0) sleep(100);\nfor (;;) sleep(1);", "1");
    assert!(status == Some(1) && error.contains("it was not done after 1 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30));
    let (home, library) = odd("", "");
    let (status, ..) = output(&mut zheng17(home.path(), &["plugins", "check", &library, "--time-limit", "0"]));
    assert_eq!(status, Some(2));
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
