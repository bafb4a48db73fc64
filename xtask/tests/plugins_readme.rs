//! `plugins/README.md` is followed to the letter: its commands are typed, in order, by somebody with an empty home folder.

#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Following the README builds the very program that the other tests start, so they take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

/// What stands between the lines "```sh" and "```".
fn commands(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            command if inside => commands.push(command),
            _ => {}
        }
    }
    commands
}

/// Where a tool of the user who runs this test keeps its things.
fn home_of_tool(variable: &str, folder: &str) -> PathBuf {
    let usual = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(folder);
    std::env::var_os(variable).map_or_else(usual, PathBuf::from)
}

#[test]
fn the_readme_is_followed_to_the_letter() {
    let _turn = turn();
    let text = std::fs::read_to_string(root().join("plugins/README.md")).expect("the README");
    let commands = commands(&text);
    for kind in ["dynamic", "c", "static"] {
        let makes = |command: &&str| command.contains("new-plugin") && command.contains(&format!("--kind {kind} "));
        assert!(commands.iter().any(makes), "no plugin of the kind {kind} is made");
    }

    let home = tempfile::tempdir().expect("a folder");
    let mut shell = Command::new("sh");
    shell.args(["-e", "-u", "-x", "-c", &commands.join("\n")]).current_dir(root()).env("HOME", home.path());
    shell.env("CARGO_HOME", home_of_tool("CARGO_HOME", ".cargo"));
    shell.env("RUSTUP_HOME", home_of_tool("RUSTUP_HOME", ".rustup"));
    for variable in ["XDG_DATA_HOME", "ZHENG17_PLUGIN_PATH", "CARGO_TARGET_DIR"] {
        shell.env_remove(variable);
    }
    let output = shell.output().expect("a shell");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");

    // What the README shows is what is said.
    let shown = text.lines().find(|line| line.starts_with("not yet written")).expect("an example of what is said");
    assert!(said.contains(shown), "{said}");
    for backend in ["fast", "plain", "own"] {
        let line =
            said.lines().find(|line| line.split_whitespace().next() == Some(backend)).expect("a line of the table");
        let passed = line.split_whitespace().nth(1).and_then(|n| n.parse::<u32>().ok());
        assert!(passed > Some(200), "{line}");
    }
    assert!(home.path().join("again.h5ad").is_file());
}

#[test]
fn new_plugin_refuses_names_and_folders() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let new_plugin = |name: &str, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let output = command.args(["new-plugin", name]).args(words).current_dir(folder.path()).output();
        let output = output.expect("the program runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (name, why) in [
        ("Fast", "no name for a crate"),
        ("2fast", "no name for a crate"),
        ("so fast", "no name for a crate"),
        ("../fast", "no name for a crate"),
        ("match", "means something else"),
        ("rayon", "means something else"),
        ("auto", "means something else"),
        ("zheng17-core", "is called \"zheng17-core\" already"),
        ("zheng17_core", "is called \"zheng17-core\" already"),
        (&"a".repeat(65), "is longer than 64 letters"),
        ("clap", "is called \"clap\" already"),
    ] {
        let (made, said) = new_plugin(name, &["--kind", "static", "--path", "."]);
        assert!(!made && said.contains(why), "{name}: {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    let (made, said) = new_plugin("fast", &["--kind", "c", "--path", &root().join("crates").display().to_string()]);
    assert!(!made && said.contains("is inside of the workspace"), "{said}");
    assert!(new_plugin("fast", &["--kind", "c", "--path", "."]).0);
    let made = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(made, 1, "nothing is left besides the plugin");
    let (made, said) = new_plugin("fast", &["--kind", "c", "--path", "."]);
    assert!(!made && said.contains("./fast is there already"), "{said}");
    let (made, said) = new_plugin("template-static", &["--kind", "dynamic"]);
    assert!(!made && said.contains("plugins/template-static is there already"), "{said}");
}

#[test]
fn a_path_that_is_no_plugin_is_refused() {
    let _turn = turn();
    let conformance = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let output = command.args(["conformance", "--plugin", path]).current_dir(root()).output().expect("it runs");
        assert!(!output.status.success(), "{path}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (path, why) in [
        ("nowhere", "error: nowhere: "),
        ("plugins", "is neither a shared library nor a folder with a Cargo.toml or with C sources"),
        (".", "is a workspace; name the folder of one of its packages"),
        ("crates/zheng17", "the package is not a plugin"),
    ] {
        let said = conformance(path);
        assert!(said.contains(why), "{said}");
    }
}
