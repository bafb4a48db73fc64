//! The program where no GPU is needed: cells for other programs, CuPy's script on them with numpy in its place, and what is said of
//! a device that computes something else. `cargo xtask gpu-check --dry-run` tries all steps.

use std::path::Path;
use std::process::Command;

use zheng17_test_support::{python, skip, software_driver};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_zheng17-gpu-check"))
}

#[test]
fn the_script_for_cupy_runs_with_numpy_in_its_place() {
    let test = "the_script_for_cupy_runs_with_numpy_in_its_place";
    let Some(python) = python(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let cells = folder.path().join("cells");
    let status =
        program().arg("export").arg(&cells).args(["--cells", "300", "--base", "300", "--genes", "900"]).status();
    assert!(status.is_ok_and(|status| status.success()), "export failed");
    let lines = folder.path().join("lines.jsonl");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("carried/cupy_recipe.py");
    let mut command = Command::new(python);
    command.arg(script).arg(&cells).args(["--host", "--cells", "300", "700", "--json"]).arg(&lines);
    let output = command.output().expect("a Python that starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&lines).expect("lines");
    let steps: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(steps.len(), 2 * 12, "{text}");
    assert!(steps.iter().all(|step| step.get("missing").is_none() && step["milliseconds"].is_null()), "{text}");
}

#[test]
fn without_a_driver_a_step_says_so() {
    if zheng17_cuda::probe() != Err(zheng17_cuda::Fault::NoDriver) {
        skip("without_a_driver_a_step_says_so", "there is a CUDA driver");
        return;
    }
    let output = program().arg("machine").output().expect("a program that starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.starts_with("error: there is no CUDA driver") && said.lines().count() == 1, "{said}");
}

#[test]
fn other_bits_than_those_of_the_cpu_are_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    let package = folder.path().join("package");
    let offset = "(float)(score - offset[component])";
    copy_with_a_fault(&package, "output.cu", offset, "(float)(score - offset[component] * 1.000001)");
    if software_driver(&package, folder.path()).is_none() {
        skip("other_bits_than_those_of_the_cpu_are_a_failure", "needs g++ on Linux on x86-64");
        return;
    }
    let lines = folder.path().join("lines.jsonl");
    let mut command = program();
    let sizes = "--cells 700 --base 300 --genes 500 --selected 20 --components 5";
    command.arg("recipe").args(sizes.split(' '));
    command.args(["--only", "resident", "--json"]).arg(&lines).env("LD_LIBRARY_PATH", folder.path());
    let output = command.output().expect("a program that starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("FAILED: other bits than rayon in scores of cells\n"), "{said}");
    let text = std::fs::read_to_string(&lines).expect("lines");
    let runs: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let comparison = runs.iter().find(|run| run["what"] == "comparison").expect("a comparison");
    assert_eq!((&comparison["good"], &comparison["differences"]), (&false.into(), &vec!["scores of cells"].into()));
    assert!(runs.iter().all(|run| run["emulated"] == true && run["seconds"].is_null()), "{text}");
}

/// The sources of the software driver, with one text of a kernel replaced.
fn copy_with_a_fault(package: &Path, file: &str, from: &str, to: &str) {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../zheng17-cuda");
    for folder in ["kernels", "emulator"] {
        std::fs::create_dir_all(package.join(folder)).expect("a folder");
        for entry in std::fs::read_dir(ours.join(folder)).expect("a folder of sources").flatten() {
            std::fs::copy(entry.path(), package.join(folder).join(entry.file_name())).expect("a copy");
        }
    }
    let file = package.join("kernels").join(file);
    let text = std::fs::read_to_string(&file).expect("a source");
    assert!(text.contains(from), "{} no longer has the text {from}", file.display());
    std::fs::write(&file, text.replacen(from, to, 1)).expect("a writable folder");
}
