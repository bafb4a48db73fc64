//! Running other programs, and saying which.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Cargo, in the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(crate::root());
    command
}

/// Runs a command to its end; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    println!("$ {}", words(command));
    run_quietly(command)
}

/// As [`run`], without a word unless it fails.
pub(crate) fn run_quietly(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", words(command))),
        Err(error) => Err(format!("{}: {error}", words(command))),
    }
}

/// Runs a command, showing each line of its standard output to `look` and to the user.
pub(crate) fn run_looking(command: &mut Command, look: &mut dyn FnMut(&str)) -> Result<(), String> {
    println!("$ {}", words(command));
    let failed = |error: std::io::Error| error.to_string();
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(failed)?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            look(&line);
        }
    }
    match child.wait().map_err(failed)? {
        status if status.success() => Ok(()),
        status => Err(format!("{}: {status}", words(command))),
    }
}

/// What a command prints; its errors go to the terminal.
pub(crate) fn read(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{}: {error}", words(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{}: {}", words(command), output.status))
}

/// What a program prints, if it runs and succeeds.
pub(crate) fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
