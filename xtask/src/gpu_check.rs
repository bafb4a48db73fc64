//! `cargo xtask gpu-check`: one folder to carry to a machine with a GPU and without Rust, where one command checks and measures the
//! CUDA backend; and the same command here, on the software driver.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::Value;
use zheng17_test_support::software_driver;

use crate::command::{cargo, run, run_quietly};

/// What `cargo xtask gpu-check` takes.
#[derive(Args)]
pub(crate) struct GpuCheckArguments {
    /// Try the folder's command here, on a CUDA driver in software and with tiny sizes; nothing is timed. Needs g++.
    #[arg(long)]
    dry_run: bool,
}

/// The program that is carried.
const PROGRAM: &str = "zheng17-gpu-check";

/// The libraries that every Linux has.
const USUAL_LIBRARIES: [&str; 7] = ["libc", "libm", "libgcc_s", "libpthread", "libdl", "librt", "ld-linux-x86-64"];

/// Steps that need what no software driver has: the tools of a machine with a GPU.
const STEPS_WITH_TOOLS: [&str; 6] = ["nvidia-smi", "memcheck", "racecheck", "initcheck", "synccheck", "CuPy"];

/// Runs the task.
pub(crate) fn run_task(arguments: &GpuCheckArguments) -> Result<(), String> {
    if arguments.dry_run {
        run(&mut cargo(&["build", "--package", PROGRAM]))?;
        let ran = dry_run(&built("debug"))?;
        return if ran { Ok(()) } else { Err("the software driver needs g++ on Linux on x86-64".to_owned()) };
    }
    run(&mut cargo(&["build", "--release", "--package", PROGRAM]))?;
    let folder = target().join("gpu-check");
    let needs = pack(&built("release"), &folder)?;
    let folder = folder.canonicalize().unwrap_or(folder);
    println!("{needs}\ncopy {} to a machine with a GPU, and type there:\n    bash gpu-check.sh", folder.display());
    Ok(())
}

/// Where cargo puts the program.
pub(crate) fn built(profile: &str) -> PathBuf {
    target().join(profile).join(PROGRAM)
}

fn target() -> PathBuf {
    crate::root().join("target")
}

/// Puts the program and all that goes with it into a folder; what it needs of a machine.
fn pack(program: &Path, folder: &Path) -> Result<String, String> {
    let needs = needs(program)?;
    let say = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(say)?;
    std::fs::copy(program, folder.join(PROGRAM)).map_err(|error| format!("{}: {error}", program.display()))?;
    let carried = crate::root().join("crates").join(PROGRAM).join("carried");
    for file in std::fs::read_dir(&carried).map_err(|error| format!("{}: {error}", carried.display()))?.flatten() {
        if file.path().is_file() {
            std::fs::copy(file.path(), folder.join(file.file_name())).map_err(say)?;
        }
    }
    strip(&folder.join(PROGRAM));
    std::fs::write(folder.join("commit"), commit()).map_err(say)?;
    let readme = folder.join("README.txt");
    let text = std::fs::read_to_string(&readme).map_err(say)?;
    std::fs::write(&readme, format!("{text}\nWhat was found when the program was made: {needs}.\n")).map_err(say)?;
    Ok(needs)
}

/// Leaves out what only debuggers read, where there is a tool for that.
fn strip(program: &Path) {
    let _ = Command::new("strip").arg("--strip-debug").arg(program).status();
}

/// The commit that the program is made of.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(crate::root()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
    let commit = git(&["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    if changed { format!("{commit}, with changes") } else { commit }
}

/// What a program needs of a machine, in one line.
///
/// # Errors
/// If it links more than every Linux has, such as CUDA.
fn needs(program: &Path) -> Result<String, String> {
    let output = Command::new("objdump").arg("-p").arg(program).output();
    match output {
        Ok(output) if output.status.success() => read_needs(&String::from_utf8_lossy(&output.stdout)),
        _ => Ok("what the program links was not looked at, as there is no objdump".to_owned()),
    }
}

/// Reads what objdump says of a program.
fn read_needs(headers: &str) -> Result<String, String> {
    let mut libraries = Vec::new();
    let mut newest = (0, 0);
    for line in headers.lines() {
        let mut words = line.split_whitespace();
        if line.trim_start().starts_with("NEEDED") {
            libraries.extend(words.nth(1));
        }
        let version = line.split_whitespace().find_map(|word| word.strip_prefix("GLIBC_")?.split_once('.'));
        if let Some((major, minor)) = version {
            let minor = minor.split('.').next().unwrap_or(minor);
            newest = newest.max((major.parse().unwrap_or(0), minor.parse().unwrap_or(0)));
        }
    }
    let is_usual = |library: &&&str| USUAL_LIBRARIES.iter().any(|usual| library.split(".so").next() == Some(usual));
    let unusual: Vec<&str> = libraries.iter().filter(|library| !is_usual(library)).copied().collect();
    if !unusual.is_empty() {
        return Err(format!("the program links {}, which not every Linux has", unusual.join(", ")));
    }
    Ok(format!(
        "the program links {} and nothing of CUDA; it needs glibc {}.{} or later",
        libraries.join(", "),
        newest.0,
        newest.1
    ))
}

/// Packs a program and runs the folder's command on the software driver. Whether this machine can.
///
/// # Errors
/// If a step failed that could run, or something was timed.
pub(crate) fn dry_run(program: &Path) -> Result<bool, String> {
    let folder = target().join("gpu-check-dry-run");
    // Where tests of the backend have it too.
    let software = target().join("tmp/software-driver");
    let Some(driver) = software_driver(&crate::root().join("crates/zheng17-cuda"), &software) else {
        return Ok(false);
    };
    println!("{}", pack(program, &folder)?);
    let results = folder.join("results");
    let mut command = Command::new("bash");
    command.arg(folder.join("gpu-check.sh")).arg("--small").arg(&results);
    command.env("LD_LIBRARY_PATH", driver.parent().unwrap_or(&driver)).env("SOFTWARE_DRIVER_DEVICES", "1");
    run_quietly(&mut command)?;
    let path = results.join("gpu-check.json");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let faults = faults(&report);
    if faults.is_empty() { Ok(true) } else { Err(format!("gpu-check on the software driver: {}", faults.join("; "))) }
}

/// What is wrong with the report of a dry run.
fn faults(report: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if report["emulated"] != true {
        faults.push("it does not say that it is emulated".to_owned());
    }
    let steps = report["step"].as_array().map_or(&[][..], Vec::as_slice);
    for step in steps {
        let (name, outcome) = (&step["name"], &step["outcome"]);
        let may_lack = STEPS_WITH_TOOLS.iter().any(|known| name == known) && outcome == "not here";
        if outcome != "passed" && !may_lack {
            faults.push(format!("{name}: {outcome}: {}", step["note"]));
        }
    }
    for (what, least) in
        [("step", 12), ("conformance", 2), ("copy", 3), ("kernel", 57), ("recipe", 6), ("comparison", 4)]
    {
        let n = report[what].as_array().map_or(0, Vec::len);
        if n < least {
            faults.push(format!("there are {n} objects of {what}, fewer than {least}"));
        }
    }
    for run in report["recipe"].as_array().into_iter().flatten().filter(|run| run.get("skipped").is_some()) {
        faults.push(format!("{}: {}", run["way"], run["skipped"]));
    }
    for coverage in report["coverage"].as_array().into_iter().flatten() {
        for key in ["not_measured", "unknown_bytes"] {
            if coverage[key].as_array().is_none_or(|kernels| !kernels.is_empty()) {
                faults.push(format!("{key}: {}", coverage[key]));
            }
        }
    }
    times(report, "", &mut faults);
    faults
}

/// Finds what looks like a time, of which there is none on a driver without a clock.
fn times(value: &Value, name: &str, faults: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| times(value, name, faults)),
        Value::Array(values) => values.iter().for_each(|value| times(value, name, faults)),
        Value::Number(number) if matches!(name, "seconds" | "milliseconds" | "fraction") || name.ends_with("_s") => {
            faults.push(format!("an emulated device has {name} {number}"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_program_links_is_read() {
        let headers = "\
Dynamic Section:
  NEEDED               libgcc_s.so.1
  NEEDED               libc.so.6
Version References:
  required from libc.so.6:
    0x069691b4 0x00 09 GLIBC_2.34
    0x09691a75 0x00 05 GLIBC_2.2.5
    0x0d696914 0x00 03 GLIBC_2.4
";
        let said = read_needs(headers).expect("usual libraries");
        assert_eq!(
            said,
            "the program links libgcc_s.so.1, libc.so.6 and nothing of CUDA; it needs glibc 2.34 or later"
        );
        let error = read_needs(&headers.replace("libgcc_s.so.1", "libcuda.so.1")).expect_err("CUDA");
        assert_eq!(error, "the program links libcuda.so.1, which not every Linux has");
    }

    #[test]
    fn faults_of_a_dry_run_are_found() {
        let step = |name: &str, outcome: &str| json!({ "name": name, "outcome": outcome, "note": "", "seconds": null });
        let mut steps: Vec<Value> = (0..11).map(|_| step("copies", "passed")).collect();
        steps.push(step("memcheck", "not here"));
        let many = |n: usize| vec![json!({ "milliseconds": null }); n];
        let good = json!({
            "emulated": true, "step": steps, "conformance": many(2), "copy": many(3), "kernel": many(57),
            "recipe": many(6), "comparison": many(4), "coverage": [{ "not_measured": [], "unknown_bytes": [] }],
        });
        assert_eq!(faults(&good), Vec::<String>::new());
        let faults_of = |change: &dyn Fn(&mut Value)| {
            let mut changed = good.clone();
            change(&mut changed);
            faults(&changed).join("; ")
        };
        assert_eq!(
            faults_of(&|report| report["kernel"][3]["milliseconds"] = json!(0.5)),
            "an emulated device has milliseconds 0.5"
        );
        assert!(faults_of(&|report| report["step"][2]["outcome"] = json!("failed")).contains("failed"));
        assert!(faults_of(&|report| report["step"][2]["outcome"] = json!("not here")).contains("not here"));
        assert!(faults_of(&|report| report["emulated"] = json!(false)).contains("emulated"));
        assert!(faults_of(&|report| report["recipe"][1]["skipped"] = json!("no memory")).contains("no memory"));
        assert!(faults_of(&|report| report["kernel"] = json!([])).contains("fewer than 57"));
    }
}
