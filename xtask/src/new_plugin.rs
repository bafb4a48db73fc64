//! `cargo xtask new-plugin`: a plugin that compiles and passes the suite, made from the templates and the example in `plugins/`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

/// Options of `cargo xtask new-plugin`.
#[derive(Args)]
pub(crate) struct NewPluginArguments {
    /// What the package, and the backend in it, will be called.
    name: String,
    /// What it is written in, and how a program gets it.
    #[arg(long, value_enum)]
    kind: Kind,
    /// Make the folder NAME in this one, outside of the workspace, instead of in plugins/.
    #[arg(long, value_name = "FOLDER")]
    path: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A package that programs link.
    Static,
    /// A shared library in Rust.
    Dynamic,
    /// A shared library in C.
    C,
}

/// Names that mean another backend, another crate, or something else.
const RESERVED: [&str; 13] = [
    "auto",
    "serial",
    "rayon",
    "lazy",
    "cuda",
    "cuda-cublas",
    "chunked",
    "alloc",
    "core",
    "std",
    "test",
    "proc_macro",
    "zheng17",
];

/// The longest name of a plugin, as `zheng17-plugin-abi` has it.
const LONGEST_NAME: usize = 64;

/// Words of Rust, which no crate can be called.
const KEYWORDS: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Makes the plugin, and says what to do with it.
pub(crate) fn run(arguments: &NewPluginArguments) -> Result<(), String> {
    let NewPluginArguments { name, kind, path } = arguments;
    let root = crate::root().canonicalize().map_err(|error| error.to_string())?;
    check_name(name, &root)?;
    let within = path.as_deref().map_or_else(|| root.join("plugins"), Path::to_owned);
    if path.is_some() && is_in(&within, &root)? {
        let text = "is inside of the workspace; leave --path out to make a plugin in plugins/";
        return Err(format!("{}: {text}", within.display()));
    }
    let folder = within.join(name);
    if folder.symlink_metadata().is_ok() {
        return Err(format!("{} is there already", folder.display()));
    }
    let files = files(name, *kind, path.is_some(), &root)?;
    let at = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(&within).map_err(|error| at(&within, error))?;
    // What is made is moved to its place as a whole, or goes away.
    let unfinished = tempfile::tempdir_in(&within).map_err(|error| at(&within, error))?;
    let made = unfinished.path().join(name);
    for (file, text) in files {
        let to = made.join(file);
        let written = to.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&to, text));
        written.map_err(|error| at(&to, error))?;
    }
    std::fs::rename(&made, &folder).map_err(|error| at(&folder, error))?;
    if path.is_none()
        && *kind != Kind::C
        && let Err(error) = add_member(name, &root)
    {
        std::fs::remove_dir_all(&folder).map_err(|error| at(&folder, error))?;
        return Err(error);
    }

    let shown = if path.is_some() { quoted(&folder.display().to_string()) } else { format!("plugins/{name}") };
    println!("{shown} is there. It passes the suite as it is, and the suite says what to write next:");
    println!("    cargo xtask conformance --plugin {shown}");
    match kind {
        Kind::Static => println!("    cargo run --manifest-path {shown}/Cargo.toml --example recipe"),
        Kind::Dynamic => println!("    cargo build --release --manifest-path {shown}/Cargo.toml"),
        Kind::C => println!("How to compile it stands in {shown}/{name}.c."),
    }
    Ok(())
}

fn check_name(name: &str, root: &Path) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(fits) {
        return Err(format!("\"{name}\" is no name for a crate: small letters, digits, - and _, and a letter first"));
    }
    if name.len() > LONGEST_NAME {
        return Err(format!("\"{name}\" is longer than {LONGEST_NAME} letters"));
    }
    let lock = read(&root.join("Cargo.lock"))?;
    let as_crate = name.replace('-', "_");
    if RESERVED.contains(&as_crate.as_str()) || KEYWORDS.contains(&as_crate.as_str()) {
        return Err(format!("\"{name}\" means something else already"));
    }
    let mut packages = lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    match packages.find(|package| package.replace('-', "_") == as_crate) {
        Some(package) => Err(format!("a package that zheng17 is built of is called \"{package}\" already")),
        None => Ok(()),
    }
}

/// Whether a folder, which need not be there yet, is in another one.
fn is_in(folder: &Path, other: &Path) -> Result<bool, String> {
    let full = std::path::absolute(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let there = full.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    Ok(there.is_some_and(|there| there.starts_with(other)))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// The files of a new plugin: where they go in its folder, and their texts.
fn files(name: &str, kind: Kind, outside: bool, root: &Path) -> Result<Vec<(String, String)>, String> {
    let plugins = root.join("plugins");
    let (template, texts): (&str, &[&str]) = match kind {
        Kind::Static => {
            ("template-static", &["Cargo.toml", "src/lib.rs", "tests/conformance.rs", "examples/recipe.rs"])
        }
        Kind::Dynamic => ("template-dynamic", &["Cargo.toml", "src/lib.rs"]),
        Kind::C => return in_c(name, outside, &plugins),
    };
    let as_crate = name.replace('-', "_");
    let mut files = Vec::new();
    for &file in texts {
        let mut text = read(&plugins.join(template).join(file))?;
        for (from, to) in [
            (format!("zheng17-{template}"), name),
            (format!("zheng17-{template}").replace('-', "_"), as_crate.as_str()),
            (template.to_owned(), name),
        ] {
            text = text.replace(&from, to);
        }
        if file == "Cargo.toml" && outside {
            // Debug quotes a path as TOML does.
            let quoted = format!("{:?}", format!("{}/", root.display()));
            text = text.replace("\"../../", quoted.trim_end_matches('"')) + STANDALONE;
        }
        files.push((file.to_owned(), text));
    }
    if outside {
        files.push(("Cargo.lock".to_owned(), read(&root.join("Cargo.lock"))?));
    }
    Ok(files)
}

/// What the manifest of a package has that is no member of a workspace.
const STANDALONE: &str = "
# A package of its own, whatever lies around it.
[workspace]

# Numeric code is unusable without optimisation.
[profile.dev]
opt-level = 1

[profile.dev.package.\"*\"]
opt-level = 2
debug = false
";

fn in_c(name: &str, outside: bool, plugins: &Path) -> Result<Vec<(String, String)>, String> {
    let mut text = read(&plugins.join("example-dynamic-c/example.c"))?;
    let library = format!("lib{}.so", name.replace('-', "_"));
    for (from, to) in [
        ("An example of a zheng17 plugin in C", "A zheng17 plugin in C"),
        ("an example of a plugin in C", "a plugin in C"),
        ("example-c", name),
        ("libexample_c.so", &library),
        ("example.c", &format!("{name}.c")),
        ("-I ../include", if outside { "-I ." } else { "-I ../include" }),
    ] {
        text = text.replace(from, to);
    }
    let mut files = vec![(format!("{name}.c"), text)];
    if outside {
        files.push(("zheng17_plugin.h".to_owned(), read(&plugins.join("include/zheng17_plugin.h"))?));
    }
    Ok(files)
}

/// Makes the package a member of the workspace.
fn add_member(name: &str, root: &Path) -> Result<(), String> {
    let manifest = root.join("Cargo.toml");
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", manifest.display());
    let text = with_member(name, &read(&manifest)?).ok_or_else(|| at(&"the list of members is not as it was"))?;
    std::fs::write(&manifest, text).map_err(|error| at(&error))
}

/// The workspace's manifest with one more member.
fn with_member(name: &str, manifest: &str) -> Option<String> {
    const BEFORE: &str = "\"plugins/example-dynamic\", ";
    let (before, after) = manifest.split_once(BEFORE)?;
    Some(format!("{before}{BEFORE}\"plugins/{name}\", {after}"))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_member_is_added_to_the_manifest_as_it_is() {
        let manifest = super::read(&crate::root().join("Cargo.toml")).expect("the manifest");
        let with_member = super::with_member("fast", &manifest).expect("the list of members");
        let line = with_member.lines().find(|line| line.starts_with("members = [")).expect("the list of members");
        assert!(line.contains("\"plugins/fast\", "), "{line}");
        assert_eq!(with_member.replacen("\"plugins/fast\", ", "", 1), manifest);
    }

    #[test]
    fn no_plugin_is_called_like_a_backend_of_this_build() {
        let registry = zheng17::registry().expect("backends");
        for entry in registry.entries() {
            let name = entry.capabilities.name.as_str();
            assert!(super::RESERVED.contains(&name), "{name}");
        }
    }
}
