//! Programs that are measured: wall time, processor time and the most memory that they had.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use wait4::Wait4 as _;

/// What one run of a program took, and the JSON that it printed.
pub(crate) struct Run {
    seconds: f64,
    cpu_seconds: f64,
    peak_memory_bytes: u64,
    pub(crate) report: Value,
}

/// Runs a program to its end. Anything but success, or output that is not JSON, is an error.
pub(crate) fn run(command: &mut Command) -> Result<Run, String> {
    let program = command.get_program().display().to_string();
    let failed = |error: &dyn std::fmt::Display| format!("{program}: {error}");
    let started = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| failed(&error))?;
    let mut printed = String::new();
    if let Some(output) = &mut child.stdout {
        output.read_to_string(&mut printed).map_err(|error| failed(&error))?;
    }
    let ended = child.wait4().map_err(|error| failed(&error))?;
    let seconds = started.elapsed().as_secs_f64();
    if !ended.status.success() {
        return Err(failed(&ended.status));
    }
    let report = serde_json::from_str(&printed).map_err(|error| failed(&error))?;
    let cpu_seconds = (ended.rusage.utime + ended.rusage.stime).as_secs_f64();
    Ok(Run { seconds, cpu_seconds, peak_memory_bytes: ended.rusage.maxrss, report })
}

/// Something that is run again and again.
pub(crate) struct Case {
    /// What tells it from others.
    pub(crate) label: Value,
    repeats: usize,
    command: Box<dyn Fn() -> Command>,
    runs: Vec<Run>,
    /// Why it is not run any more.
    error: Option<String>,
}

impl Case {
    pub(crate) fn new(label: Value, repeats: usize, command: impl Fn() -> Command + 'static) -> Self {
        Self { label, repeats, command: Box::new(command), runs: Vec::new(), error: None }
    }

    /// Medians of what its runs took, and the report of the run of median time.
    fn as_json(&self) -> Value {
        let mut by_time: Vec<&Run> = self.runs.iter().collect();
        by_time.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let median = |of: &dyn Fn(&Run) -> f64| {
            let mut values: Vec<f64> = self.runs.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        let mut case = self.label.clone();
        if let Some(error) = &self.error {
            case["error"] = json!(error);
            return case;
        }
        case["repeats"] = json!(self.runs.len());
        case["seconds"] = json!(median(&|run| run.seconds));
        case["cpu_seconds"] = json!(median(&|run| run.cpu_seconds));
        case["peak_memory_bytes"] = json!(median(&|run| run.peak_memory_bytes as f64));
        case["report"] = json!(by_time.get(by_time.len() / 2).map(|run| &run.report));
        case
    }
}

/// Runs all cases, one of each in turn, so that whatever else the machine does meets all of them. A case that fails is a result
/// with an error.
pub(crate) fn run_all(mut cases: Vec<Case>) -> Vec<Value> {
    let most = cases.iter().map(|case| case.repeats).max().unwrap_or(0);
    for round in 0..most {
        for case in cases.iter_mut().filter(|case| round < case.repeats && case.error.is_none()) {
            match run(&mut (case.command)()) {
                Ok(run) => {
                    eprintln!("{:8.2} s  {}", run.seconds, case.label);
                    case.runs.push(run);
                }
                Err(error) => {
                    eprintln!("  failed    {}: {error}", case.label);
                    case.error = Some(error);
                }
            }
        }
    }
    cases.iter().map(Case::as_json).collect()
}
