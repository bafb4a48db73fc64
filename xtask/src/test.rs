//! `cargo xtask test`: everything that must hold, cheapest first.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::command::{self, cargo, run_looking};
use crate::{codegen, gpu_check, libhdf5, mutations, python};

/// Runs all checks and tests; `full` installs what some need first, and then skips nothing.
pub(crate) fn run(full: bool) -> Result<(), String> {
    let python = if full { Some(timed("Python", python::environment)?) } else { None };
    timed("format, lints, docs", run_checks)?;
    let mut tally = Tally::new(python)?;
    timed("sets of features", || tally.test_feature_sets())?;
    timed("tests", || tally.test(&[&["test"], &WORKSPACE[..]].concat()))?;
    timed("tests in docs", || tally.test(&["test", "--workspace", "--doc"]))?;
    timed("libhdf5", || tally.test_libhdf5(full))?;
    timed("compiled kernels", || tally.test_device_code(full))?;
    timed("mutations", || tally.test_mutations(full))?;
    timed("Python package", || tally.test_python_package())?;
    tally.finish(full)
}

/// Does a step and says how long it took.
fn timed<T>(step: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let start = Instant::now();
    let result = work();
    println!("{step}: {} s", start.elapsed().as_secs());
    result
}

fn run_checks() -> Result<(), String> {
    command_run(&["fmt", "--all", "--check"])?;
    command_run(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
    command::run(cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))
}

fn command_run(arguments: &[&str]) -> Result<(), String> {
    command::run(&mut cargo(arguments))
}

/// Whose tests are compiled together.
const WORKSPACE: [&str; 2] = ["--workspace", "--all-targets"];

/// Cargo features of the facade that are tested one set at a time; the default, all of them, is tested with the workspace.
const FEATURE_SETS: [&str; 7] = ["", "rayon", "lazy", "plugins", "cuda", "rayon,lazy", "rayon,plugins"];

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
            return self.skip("libhdf5", "runs with --full");
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

    /// Tests that the compiled kernels are what their sources give, and fit the GPUs that they are for; and that what is carried to
    /// a machine with a GPU runs, on the software driver. Its program was built with the tests.
    fn test_device_code(&mut self, full: bool) -> Result<(), String> {
        if !full {
            self.skip("compiled kernels", "runs with --full")?;
            return self.skip("gpu-check, dry run", "runs with --full");
        }
        self.count(codegen::check());
        match gpu_check::dry_run(&gpu_check::built("debug")) {
            Ok(false) => self.skip("gpu-check, dry run", "needs g++ on Linux on x86-64"),
            outcome => {
                self.count(outcome.map(drop));
                Ok(())
            }
        }
    }

    /// Counts a test that is none of cargo's.
    fn count(&mut self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(error) => {
                println!("{error}");
                self.failed += 1;
            }
        }
    }

    /// Tests that tests of the CUDA backend find faults that are put into it.
    fn test_mutations(&mut self, full: bool) -> Result<(), String> {
        if !full {
            return self.skip("mutations", "runs with --full");
        }
        // What the tests of the workspace compiled is there.
        match mutations::run(&WORKSPACE, "") {
            Ok(outcome) => {
                self.passed += outcome.found;
                self.failed += outcome.not_found;
                outcome.skipped.map_or(Ok(()), |why| self.skip("mutations", &why))
            }
            Err(error) => {
                println!("{error}");
                self.failed += 1;
                Ok(())
            }
        }
    }

    /// Tests the Python package as `pip install` makes it, with the newest scanpy and with older ones.
    fn test_python_package(&mut self) -> Result<(), String> {
        let Some(newest) = self.python.clone() else {
            return self.skip("zheng17-python", "runs with --full");
        };
        let wheel = python::wheel(&newest)?;
        python::install(&newest, &wheel)?;
        self.pytest(&newest, &[])?;
        for (version, packages) in python::OLDER_SCANPY {
            match python::with_scanpy(&newest, version, packages) {
                Ok(older) => {
                    python::install(&older, &wheel)?;
                    self.pytest(&older, &["-m", "scanpy"])?;
                }
                Err(error) => self.skip(&format!("zheng17-python with scanpy {version}"), &error)?,
            }
        }
        Ok(())
    }

    fn pytest(&mut self, python: &Path, arguments: &[&str]) -> Result<(), String> {
        let tests = crate::root().join("crates/zheng17-python/tests");
        let mut command = Command::new(python);
        // -B: nothing is left in the source folders. The tests import what was installed, from anywhere else.
        command.args(["-B", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]).args(arguments).arg(&tests);
        let mut lines = Vec::new();
        let outcome =
            run_looking(command.current_dir(crate::root().join("target")), &mut |line| lines.push(line.to_owned()));
        let mut ended = Ended::default();
        for line in lines {
            ended.look(&line);
        }
        for (place, why) in &ended.skipped {
            self.skip(place, why)?;
        }
        self.passed += ended.passed;
        self.failed += ended.failed;
        match outcome {
            Err(error) if ended.failed == 0 => Err(error),
            _ if ended.passed == 0 => Err("no test of the Python package ran".to_owned()),
            _ => Ok(()),
        }
    }

    /// Lists something as skipped.
    fn skip(&mut self, what: &str, why: &str) -> Result<(), String> {
        let mut list = std::fs::OpenOptions::new().append(true).open(&self.skipped_list);
        let written = list.as_mut().map_err(|error| error.to_string())?;
        writeln!(written, "{what}\t{why}").map_err(|error| error.to_string())?;
        // What is recorded counts as a test that returned early.
        self.passed += 1;
        Ok(())
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
            skipped
                .entry("ignored, as cases of the suite are that need what the backend says it lacks")
                .or_default()
                .push(test);
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

/// What pytest said at its end.
#[derive(Default)]
struct Ended {
    passed: u64,
    failed: u64,
    /// Where, and why.
    skipped: Vec<(String, String)>,
}

impl Ended {
    /// Reads one line: a skipped test with its reason, or the counts.
    fn look(&mut self, line: &str) {
        let skipped = line.strip_prefix("SKIPPED [").and_then(|line| line.split_once("] ")?.1.split_once(": "));
        if let Some((place, why)) = skipped {
            self.skipped.push((place.to_owned(), why.to_owned()));
            return;
        }
        let words: Vec<&str> = line.trim_matches('=').split([' ', ',']).filter(|word| !word.is_empty()).collect();
        if !words.windows(2).any(|pair| pair[0] == "in" && pair[1].ends_with('s')) {
            return;
        }
        for pair in words.windows(2) {
            match (pair[0].parse::<u64>(), pair[1]) {
                (Ok(number), "passed") => self.passed = number,
                // An error is a test that did not get as far as failing.
                (Ok(number), "failed" | "error" | "errors") => self.failed += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ended;

    #[test]
    fn counts_of_pytest_are_read() {
        let mut ended = Ended::default();
        for line in [
            "..s.F                                                      [100%]",
            "SKIPPED [2] ../tests/test_recipe.py:12: needs the folder shared/: beside the repository",
            "FAILED ../tests/test_recipe.py::test_that - assert 1 == 2",
            "=== 1 failed, 31 passed, 2 skipped, 7 warnings, 1 error in 12.34s (0:01:40) ===",
        ] {
            ended.look(line);
        }
        assert_eq!((ended.passed, ended.failed), (31, 2));
        assert_eq!(ended.skipped[0].1, "needs the folder shared/: beside the repository");
    }
}
