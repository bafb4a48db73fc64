//! What the program says and how: text on standard output, progress on standard error, and signals that stop it.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};
use zheng17_core::context::{CancelToken, NoProgress, Progress};
use zheng17_core::{Error, Result};

/// How long a run that was asked to stop may take to reach the end of a chunk.
const GRACE: Duration = Duration::from_secs(5);

/// How long a second signal may go unnoticed.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Writes to standard output. A reader that has gone, as in `zheng17 … | head`, is no error.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::system("can't write to standard output").with_source(error))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error. If that is gone too, nobody is left to tell.
pub(crate) fn complain(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A number with its thousands set apart: 1,306,127.
pub(crate) fn grouped(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of things, grouped.
pub(crate) fn count(n: usize) -> String {
    grouped(n as u64)
}

/// A number with as many decimals as people want to see: none for whole ones.
pub(crate) fn rounded(x: f64) -> String {
    if x.fract() == 0.0 && x < 1e15 { grouped(x as u64) } else { format!("{x:.2}") }
}

/// Bytes in the unit that fits.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if n < 1000 {
        return format!("{n} bytes");
    }
    let mut size = n as f64 / 1000.0;
    let mut unit = 0;
    while size >= 999.5 && unit + 1 < UNITS.len() {
        size /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(size < 10.0);
    format!("{size:.digits$} {}", UNITS[unit])
}

/// A span of time for people.
pub(crate) fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 100.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
    }
}

/// The most memory that this process has had at a time, in bytes, where the system tells.
pub(crate) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// How long this process has kept processors busy, the system's work for it included, where the system tells.
pub(crate) fn cpu_time() -> Option<Duration> {
    let own = get_current_pid().ok()?;
    let mut system = System::new().ok()?;
    let what = ProcessRefreshKind::nothing().with_cpu();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, what);
    Some(Duration::from_millis(system.process(own)?.accumulated_cpu_time()))
}

/// Stops the run on Ctrl-C and SIGTERM: through the token at the next chunk, or, after a while or a second signal, at
/// once. Unfinished files go away either way.
///
/// # Errors
/// [`ErrorKind::System`](zheng17_core::ErrorKind::System) if the system refuses.
pub(crate) fn stop_on_signals() -> Result<CancelToken> {
    let token = CancelToken::default();
    // A write beyond the file-size limit shall be an error and not the end, so its signal is taken and forgotten. SIGHUP is
    // left alone, or `nohup` would be in vain.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGXFSZ])
        .map_err(|error| Error::system("can't listen for signals").with_source(error))?;
    let handed = token.clone();
    let listen = move || {
        let stops = |signal: &i32| *signal != SIGXFSZ;
        if signals.forever().find(stops).is_none() {
            return;
        }
        handed.cancel();
        // From here on nothing is asked of the system that it might refuse: neither memory nor a thread.
        for _ in 0..GRACE.as_millis() / LOOK_AGAIN.as_millis() {
            std::thread::sleep(LOOK_AGAIN);
            if signals.pending().any(|signal| stops(&signal)) {
                break;
            }
        }
        stop_now();
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listen)
        .map_err(|error| Error::system("can't listen for signals").with_source(error))?;
    Ok(token)
}

fn stop_now() -> ! {
    zheng17_io::write::remove_all_temporaries();
    complain(format_args!("error: {}", Error::cancelled()));
    std::process::exit(i32::from(zheng17_core::ErrorKind::Cancelled.exit_code()))
}

/// A progress bar, if standard error is a terminal and nobody asked for quiet.
pub(crate) fn progress(quiet: bool) -> Arc<dyn Progress> {
    if quiet || !std::io::stderr().is_terminal() { Arc::new(NoProgress) } else { Arc::new(Bar::default()) }
}

/// The bar of the current pass.
#[derive(Default)]
struct Bar(Mutex<Option<ProgressBar>>);

impl Bar {
    fn current(&self) -> MutexGuard<'_, Option<ProgressBar>> {
        // A bar that another thread was drawing when it panicked is still a bar.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Bar {
    fn start(&self, pass: &str, n_cells: usize) {
        let template = "{msg:26} {wide_bar} {human_pos} of {human_len} cells, {eta} to go";
        // The template is constant; if a later indicatif refuses it, its default still shows progress.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(n_cells as u64), ProgressDrawTarget::stderr());
        *self.current() = Some(bar.with_style(style).with_message(pass.to_owned()));
    }

    fn advance(&self, n_cells: usize) {
        if let Some(bar) = &*self.current() {
            bar.inc(n_cells as u64);
        }
    }

    fn finish(&self) {
        if let Some(bar) = self.current().take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!([0_u64, 999, 1000, 1_306_127].map(grouped), ["0", "999", "1,000", "1,306,127"]);
        let sizes = [999, 1000, 9_949, 62_000, 999_400, 999_600, 1_500_000_000].map(bytes);
        assert_eq!(sizes, ["999 bytes", "1.0 kB", "9.9 kB", "62 kB", "999 kB", "1.0 MB", "1.5 GB"]);
        assert_eq!(seconds(Duration::from_millis(1_234)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 05 s");
    }
}
