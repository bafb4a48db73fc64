//! The suite in a process of its own, which a backend may crash, never leave, or end with success: what came of each case is told
//! through a file, so that the process which reports knows how far it came.

#![allow(clippy::print_stderr, reason = "a program that says why it failed")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zheng17_core::{Error, Result};

use crate::suite::{Entry, Report, Verdict, run_case};
use crate::{Case, EXPECTATIONS, Subject};

/// Names the file to tell through, and so says that this is the process which runs the cases.
pub(crate) const TOLD: &str = "ZHENG17_CONFORMANCE_TOLD";

/// What came of the other process.
pub(crate) struct Told {
    /// The cases that were run, that on which it stopped among them.
    pub(crate) report: Report,
    /// The functions that the backend has itself, if it says.
    pub(crate) written: Option<Vec<String>>,
    /// Why there is nothing after the last entry, if it stopped.
    pub(crate) stopped: Option<String>,
}

/// Runs the cases in this process, and tells of each.
///
/// # Errors
/// [`ErrorKind::System`](zheng17_core::ErrorKind::System) if there is nobody to tell.
pub(crate) fn tell(to: &OsStr, cases: &[Case], subjects: &[Subject], written: Option<&[String]>) -> Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(std::io::Error::from)?;
    let mut file = File::options().append(true).open(to)?;
    let mut tell = |event: Value| writeln!(file, "{event}");
    tell(json!({ "n_cases": cases.len() * subjects.len(), "written": written }))?;
    for subject in subjects {
        for case in cases {
            tell(json!({ "backend": subject.name(), "case": case.name }))?;
            let start = Instant::now();
            let verdict = run_case(case, subject, EXPECTATIONS);
            let (word, detail) = (verdict.word(), verdict.detail());
            tell(json!({ "verdict": word, "detail": detail, "seconds": start.elapsed().as_secs_f64() }))?;
        }
    }
    Ok(())
}

/// Starts this program again, and listens to what it tells. A case may take as long as `limit`. An `Err` holds the status of a
/// program that did not come to its first case.
pub(crate) fn listen(limit: Duration) -> Result<Result<Told, ExitCode>> {
    const LOOK_AGAIN: Duration = Duration::from_millis(5);
    let file = tempfile::NamedTempFile::new()?;
    let mut child = start(file.path())?;
    let mut listener = Listener { file: file.reopen()?, unread: Vec::new(), heard: Vec::new() };
    let mut last = Instant::now();
    // None if it was stopped.
    let status = loop {
        // The status first: what was told before the end is in the file then.
        let status = child.try_wait()?;
        if listener.listen()? {
            last = Instant::now();
        }
        if status.is_some() {
            break status;
        }
        if last.elapsed() > limit {
            stop(&mut child)?;
            break None;
        }
        std::thread::sleep(LOOK_AGAIN);
    };
    Ok(understood(&listener.heard, status, limit))
}

/// This program with the same arguments. What backends print is not part of the report.
fn start(told: &Path) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(TOLD, told).stdin(Stdio::null()).stdout(std::io::stderr());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Ok(command.spawn()?)
}

/// Ends a process and all that it started.
fn stop(child: &mut Child) -> Result<()> {
    #[cfg(unix)]
    // A group that is gone already needs no ending.
    let _ = rustix::process::kill_process_group(rustix::process::Pid::from_child(child), rustix::process::Signal::KILL);
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// Reads what the other process writes.
struct Listener {
    file: File,
    unread: Vec<u8>,
    heard: Vec<Value>,
}

impl Listener {
    /// Whether there was something new.
    fn listen(&mut self) -> Result<bool> {
        let n_heard = self.heard.len();
        self.file.read_to_end(&mut self.unread)?;
        while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let event = serde_json::from_slice(&line);
            self.heard.push(event.map_err(|error| Error::internal("the suite told nonsense").with_source(error))?);
        }
        Ok(self.heard.len() > n_heard)
    }
}

/// What was told, and how the telling ended.
fn understood(heard: &[Value], status: Option<ExitStatus>, limit: Duration) -> Result<Told, ExitCode> {
    let how = match status {
        None => format!("it was not done after {} s", limit.as_secs()),
        Some(status) if status.success() => "the backend ended the process".to_owned(),
        Some(status) => format!("the backend ended the process: {status}"),
    };
    let Some((first, events)) = heard.split_first() else {
        // A program that could not start has said why.
        let code = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
        return Err(code.filter(|code| *code != 0).map_or_else(
            || {
                eprintln!("error: no case was run: {how}");
                ExitCode::FAILURE
            },
            ExitCode::from,
        ));
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut report = Report::default();
    let mut is_running = false;
    for event in events {
        if let Some(case) = event.get("case") {
            let (backend, case) = (text(&event["backend"]), text(case));
            report.entries.push(Entry { backend, case, verdict: Verdict::Failed(how.clone()), time: Duration::ZERO });
            is_running = true;
        } else if let Some(entry) = report.entries.last_mut() {
            entry.verdict = Verdict::from_words(event["verdict"].as_str().unwrap_or_default(), &text(&event["detail"]));
            entry.time = Duration::try_from_secs_f64(event["seconds"].as_f64().unwrap_or_default()).unwrap_or_default();
            is_running = false;
        }
    }
    let n_missing = first["n_cases"].as_u64().unwrap_or_default().saturating_sub(report.entries.len() as u64);
    let went_well = !is_running && n_missing == 0 && status.is_some_and(|status| status.success());
    let stopped = (!went_well).then(|| match report.entries.last() {
        Some(Entry { backend, case, .. }) if is_running => {
            format!("stopped in {backend}::{case}: {how}; {n_missing} cases were not run")
        }
        Some(Entry { backend, case, .. }) => {
            format!("stopped after {backend}::{case}: {how}; {n_missing} cases were not run")
        }
        None => format!("stopped before the first case: {how}"),
    });
    let written = first["written"].as_array().map(|names| names.iter().map(text).collect());
    Ok(Told { report, written, stopped })
}
