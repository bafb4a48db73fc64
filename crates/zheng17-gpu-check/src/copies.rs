//! How fast a device copies: what nothing else can be faster than.

use bytesize::ByteSize;
use serde_json::json;
use zheng17::Result;
use zheng17_cuda::measure::{CopyTime, copies};

use crate::output::{Output, gigabytes_a_second, number, say};

/// What `copies` takes.
#[derive(clap::Args)]
pub(crate) struct CopiesArguments {
    /// Bytes of a copy, such as 1GiB; a quarter of what is free, at most.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    size: ByteSize,
}

/// Measures copies of the first device.
pub(crate) fn run(arguments: &CopiesArguments, output: &Output) -> Result<bool> {
    for copy in measured(output, arguments.size.as_u64())? {
        let rate = gigabytes_a_second(copy.bytes, copy.milliseconds);
        say(&format!("{}: {} GB/s", copy.what, number(rate, 1)));
        output.record(json!({
            "what": "copy",
            "copy": copy.what,
            "bytes": copy.bytes,
            "milliseconds": copy.milliseconds,
            "gb_s": rate,
        }))?;
    }
    Ok(true)
}

/// Copies of so many bytes, or as many as a quarter of the device's free memory has.
pub(crate) fn measured(output: &Output, bytes: u64) -> Result<[CopyTime; 3]> {
    let free = output.devices.first().map_or(0, |device| device.free);
    Ok(copies(0, bytes.min(free / 4).max(1) as usize)?)
}
