//! The program where no GPU is needed: cells for other programs, and CuPy's script on them with numpy in its place.

use std::path::Path;
use std::process::Command;

use zheng17_test_support::{python, skip};

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
