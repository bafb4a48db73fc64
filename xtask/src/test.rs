//! `cargo xtask test`: everything that must hold, cheapest first.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use crate::command::{self, cargo, run_looking};
use crate::{libhdf5, python};

/// Runs all checks and tests; `full` installs what some need first, and then skips nothing.
pub(crate) fn run(full: bool) -> Result<(), String> {
    let python = if full { Some(python::environment()?) } else { None };
    run_checks()?;
    let mut tally = Tally::new(python)?;
    tally.test_feature_sets()?;
    tally.test(&["test", "--workspace", "--all-targets"])?;
    tally.test(&["test", "--workspace", "--doc"])?;
    tally.test_libhdf5(full)?;
    tally.finish(full)
}

fn run_checks() -> Result<(), String> {
    command_run(&["fmt", "--all", "--check"])?;
    command_run(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
    command::run(cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn command_run(arguments: &[&str]) -> Result<(), String> {
    command::run(&mut cargo(arguments))
}

/// Cargo features of the facade that are tested one set at a time; the default, all of them, is tested with the workspace.
const FEATURE_SETS: [&str; 6] = ["", "rayon", "lazy", "plugins", "rayon,lazy", "rayon,plugins"];

/// Counts what test runners report.
struct Tally {
    python: Option<PathBuf>,
    skipped_list: PathBuf,
    passed: u64,
    failed: u64,
    ignored: Vec<String>,
}

impl Tally {
    fn new(python: Option<PathBuf>) -> Result<Self, String> {
        let skipped_list = crate::root().join("target/skipped-tests.tsv");
        std::fs::write(&skipped_list, "").map_err(|error| format!("{}: {error}", skipped_list.display()))?;
        Ok(Self { python, skipped_list, passed: 0, failed: 0, ignored: Vec::new() })
    }

    /// Runs tests with cargo, to the end even if some fail.
    fn test(&mut self, arguments: &[&str]) -> Result<(), String> {
        let mut command = cargo(arguments);
        command.arg("--no-fail-fast").env("ZHENG17_SKIPPED", &self.skipped_list);
        match &self.python {
            Some(python) => command.env("ZHENG17_PYTHON", python),
            None => &mut command,
        };
        let failed_before = self.failed;
        let outcome = run_looking(&mut command, &mut |line| self.look(line));
        match outcome {
            // Failed tests are counted; a build that failed or a test program that crashed is not.
            Err(error) if self.failed == failed_before => Err(error),
            _ => Ok(()),
        }
    }

    /// Tests that each set of features has the backends that it should have. Tested for this package alone: with others, cargo
    /// would add up their features.
    fn test_feature_sets(&mut self) -> Result<(), String> {
        for features in FEATURE_SETS {
            let ended_before = self.passed + self.failed;
            let package = ["test", "--quiet", "--package", "zheng17", "--no-default-features", "--features", features];
            self.test(&[&package[..], &["--test", "backends"]].concat())?;
            if self.passed + self.failed != ended_before + 1 {
                return Err(format!("the features \"{features}\" have no test of their backends"));
            }
        }
        Ok(())
    }

    /// Tests that the system's libhdf5, an option of the build, gives what our own reader gives.
    fn test_libhdf5(&mut self, full: bool) -> Result<(), String> {
        if !full {
            let mut list = std::fs::OpenOptions::new().append(true).open(&self.skipped_list);
            let written = list.as_mut().map_err(|error| error.to_string())?;
            writeln!(written, "libhdf5\truns with --full").map_err(|error| error.to_string())?;
            // What is recorded counts as a test that returned early.
            self.passed += 1;
            return Ok(());
        }
        libhdf5::install()?;
        let package = ["--package", "zheng17-io", "--features", "libhdf5"];
        command_run(
            &[
                &["clippy", "--quiet", "--package", "zheng17-libhdf5"],
                &package[..],
                &["--all-targets", "--", "-D", "warnings"],
            ]
            .concat(),
        )?;
        let tests = ["layouts", "odd_files", "real_files", "copy_rest", "write_h5ad", "write_tenx"];
        let tests = tests.iter().flat_map(|test| ["--test", test]);
        self.test(&["test"].into_iter().chain(package).chain(tests).collect::<Vec<_>>())
    }

    /// Reads one line of a test runner.
    fn look(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... ignored")) {
            self.ignored.push(test.trim().to_owned());
        }
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|line| line.split_once(". ")) else {
            return;
        };
        let count = |word: &str| -> u64 {
            counts.split(';').filter_map(|part| part.trim().strip_suffix(word)?.trim().parse::<u64>().ok()).sum()
        };
        self.passed += count("passed");
        self.failed += count("failed");
    }

    fn finish(self, full: bool) -> Result<(), String> {
        let recorded = std::fs::read_to_string(&self.skipped_list).unwrap_or_default();
        let mut skipped: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (test, why) in recorded.lines().filter_map(|line| line.split_once('\t')) {
            skipped.entry(why).or_default().push(test);
        }
        for test in &self.ignored {
            skipped.entry("not on this machine").or_default().push(test);
        }
        let n_skipped: usize = skipped.values().map(Vec::len).sum();
        for (why, tests) in &mut skipped {
            tests.sort_unstable();
            println!("\nskipped {}, {why}:", tests.len());
            for test in tests.iter() {
                println!("  {test}");
            }
        }
        // A skipped test that returned early was counted as passed.
        let passed = self.passed - recorded.lines().count() as u64;
        println!("\n{passed} passed, {} failed, {n_skipped} skipped", self.failed);
        if self.failed > 0 {
            return Err(format!("{} tests failed", self.failed));
        }
        if passed == 0 {
            return Err("no test ran".to_owned());
        }
        if full && recorded.contains("ZHENG17_PYTHON") {
            return Err("a test that needs Python was skipped".to_owned());
        }
        Ok(())
    }
}
