//! What steps say: lines for people on standard output, and objects for programs, a line each, added to a file. Every object says
//! which device it is of, and whether that is emulated.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Map, Value, json};
use zheng17::{Error, Result};
use zheng17_cuda::measure::{DeviceFacts, devices};

/// Where a step's objects go, and what it runs on.
pub(crate) struct Output {
    step: &'static str,
    json: Option<PathBuf>,
    /// The devices of the machine.
    pub(crate) devices: Vec<DeviceFacts>,
    /// Whether any of them is emulated: then there are no times.
    pub(crate) emulated: bool,
}

impl Output {
    /// Looks for devices.
    ///
    /// # Errors
    /// Those of the driver: nothing can be checked without a device.
    pub(crate) fn new(step: &'static str, json: Option<PathBuf>) -> Result<Self> {
        let devices = devices()?;
        let emulated = devices.iter().any(DeviceFacts::is_emulated);
        let output = Self { step, json, devices, emulated };
        let note = if emulated { "; emulated: no times" } else { "" };
        say(&format!("{step} on {}{note}", output.device_names()));
        Ok(output)
    }

    /// The devices, by name.
    fn device_names(&self) -> String {
        let names: Vec<&str> = self.devices.iter().map(|device| device.name.as_str()).collect();
        names.join(", ")
    }

    /// An object for programs.
    ///
    /// # Errors
    /// Those of writing the file.
    pub(crate) fn record(&self, fields: Value) -> Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        let mut object = Map::new();
        object.insert("step".to_owned(), json!(self.step));
        object.insert("device".to_owned(), json!(self.device_names()));
        object.insert("emulated".to_owned(), json!(self.emulated));
        if let Value::Object(fields) = fields {
            object.extend(fields);
        }
        // One write, so that a step which is stopped leaves whole lines.
        let write = || {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            file.write_all(format!("{}\n", Value::Object(object)).as_bytes())
        };
        write().map_err(|error: std::io::Error| Error::from(error).at(path.display()))
    }

    /// A measured time, or none of an emulated device.
    pub(crate) fn seconds(&self, since: Instant) -> Option<f64> {
        (!self.emulated).then(|| since.elapsed().as_secs_f64())
    }
}

/// A line for people.
#[allow(clippy::print_stdout, reason = "a program for the terminal")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Seconds for people.
pub(crate) fn seconds(time: Option<f64>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{time:.3} s"))
}

/// Bytes moved in a time, in GB/s.
pub(crate) fn gigabytes_a_second(bytes: u64, milliseconds: Option<f64>) -> Option<f64> {
    milliseconds.filter(|&time| time > 0.0).map(|time| bytes as f64 / time / 1e6)
}

/// A number for people, with so many digits after the point.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}
