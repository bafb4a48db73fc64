//! The whole recipe on generated cells: on the devices with cells that stay there, on the devices with cells that pass by, and on the
//! CPU, whose bits are what the others must have.

use std::sync::Arc;
use std::time::Instant;

use bytesize::ByteSize;
use serde_json::json;
use zheng17::recipe::{self, Outcome};
use zheng17::{AUTO, Components, Context, Params, Result, SparseBackend};
use zheng17_core::ChunkSource;
use zheng17_core::context::{NoProgress, Pass, PassRecorder};
use zheng17_cuda::Cuda;

use crate::cells::{RepeatedCells, Size};
use crate::machine::{available_memory, threads};
use crate::output::{Output, say, seconds};

/// What `recipe` takes.
#[derive(clap::Args)]
pub(crate) struct RecipeArguments {
    #[command(flatten)]
    size: Size,
    /// Genes to select.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    selected: usize,
    /// Principal components.
    #[arg(long, value_name = "N", default_value_t = 50)]
    components: usize,
    /// Make all scaled values too, which is most of the bytes that leave a device.
    #[arg(long)]
    scaled: bool,
    /// Only one of the two ways to keep cells.
    #[arg(long, value_enum)]
    only: Option<Way>,
    /// Bytes of the first device's memory for cells that pass by; less than half of them fits if not given.
    #[arg(long, value_name = "SIZE")]
    device_memory: Option<ByteSize>,
}

/// Where cells are between passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// On the devices.
    Resident,
    /// For the most part in host memory, from where they pass by the first device.
    Streamed,
}

/// Chunks of the input stay on a device as long as half of its memory holds them.
const KEPT: f64 = 1.0 / 2.0;

/// Of the narrow form, so much memory is given for cells that pass by: three tenths of them stay.
const STREAMED_MEMORY: f64 = 0.6;

/// Of what is available, the CPU's backend may use this part.
const PART_OF_MEMORY: u64 = 2;

/// What a run found, each part as a number that all of its bits have a share in.
type Bits = Vec<(&'static str, u64)>;

/// A run that is over.
struct Finished {
    bits: Bits,
    passes: Vec<Pass>,
    seconds: Option<f64>,
}

/// Runs the recipe in all ways.
pub(crate) fn run(arguments: &RecipeArguments, output: &Output) -> Result<bool> {
    let cells = RepeatedCells::generate(arguments.size)?;
    say(&cells.describe());
    let narrow = cells.narrow_bytes();
    let less_than_half = (narrow as f64 * STREAMED_MEMORY) as u64;
    let params = Params {
        n_top_genes: arguments.selected,
        components: Some(Components::UpTo(arguments.components)),
        ..Params::default()
    };
    let ways = [Way::Resident, Way::Streamed].into_iter().filter(|way| arguments.only.is_none_or(|only| only == *way));
    let mut found = Vec::new();
    let mut is_good = true;
    for way in ways {
        let ctx = match way {
            Way::Resident => Context::default(),
            // One device: of several, each may be too small for its work if all of them are to be too small for the cells.
            Way::Streamed => Context {
                devices: Some(vec![0]),
                device_memory: Some(arguments.device_memory.map_or(less_than_half, |size| size.as_u64())),
                ..Context::default()
            },
        };
        if let Some(why) = lacks(output, way, narrow) {
            say(&format!("{}: skipped: {why}", name(way)));
            output.record(json!({ "what": "recipe", "way": name(way), "cells": cells.describe(), "skipped": why }))?;
            continue;
        }
        let backend = Arc::new(Cuda::default());
        match run_one(&backend, &cells, &params, &ctx, arguments.scaled, output) {
            Ok(finished) => {
                // Written down at once: the CPU may take longer than there is time.
                let memory = backend.memory_use();
                let peak = memory.iter().map(|of_device| of_device.peak).max().unwrap_or(0);
                let limit = memory.iter().map(|of_device| of_device.limit).max().unwrap_or(0);
                say(&format!(
                    "{}: {}, at most {:.1} MB of {:.1} MB on a device",
                    name(way),
                    seconds(finished.seconds),
                    peak as f64 / 1e6,
                    limit as f64 / 1e6
                ));
                let memory = json!({ "narrow_bytes": narrow, "device_memory": limit, "peak": peak });
                record(output, name(way), &cells, &finished, memory)?;
                found.push((way, finished.bits));
            }
            Err(error) => {
                // The other way may still do.
                is_good = false;
                say(&format!("{}: failed: {error}", name(way)));
                output.record(json!({
                    "what": "recipe", "way": name(way), "cells": cells.describe(), "good": false, "error": error.to_string(),
                }))?;
            }
        }
    }
    if found.is_empty() {
        return Ok(is_good);
    }
    let ctx = Context { memory: Some(available_memory() / PART_OF_MEMORY), ..Context::default() };
    let source: Arc<dyn ChunkSource> = Arc::clone(&cells) as _;
    let cpu = zheng17::choose(AUTO, &source, &params, &ctx)?.backend;
    let cpu_name = cpu.capabilities().name.clone();
    let expected = run_one(&Arc::new(cpu), &cells, &params, &ctx, arguments.scaled, output)?;
    say(&format!("{cpu_name}, {} threads: {}", threads(), seconds(expected.seconds)));
    record(output, &cpu_name, &cells, &expected, json!({ "threads": threads().get() }))?;
    for (way, bits) in &found {
        let differs = |part: &(&'static str, u64)| !expected.bits.contains(part);
        let differences: Vec<&str> = bits.iter().filter(|part| differs(part)).map(|part| part.0).collect();
        is_good &= differences.is_empty();
        if differences.is_empty() {
            say(&format!("{}: the bits of {cpu_name}", name(*way)));
        } else {
            say(&format!("{}: FAILED: other bits than {cpu_name} in {}", name(*way), differences.join(", ")));
        }
        output.record(json!({
            "what": "comparison", "way": name(*way), "cells": cells.describe(), "compared_with": cpu_name,
            "differences": differences, "good": differences.is_empty(),
        }))?;
    }
    Ok(is_good)
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Resident => "cells on the devices",
        Way::Streamed => "cells pass by one device",
    }
}

/// What the machine lacks to keep cells in a way.
fn lacks(output: &Output, way: Way, narrow: u64) -> Option<String> {
    let (has, what) = match way {
        Way::Resident => {
            let free = output.devices.iter().map(|device| device.free).sum::<u64>() as f64;
            ((free * KEPT) as u64, "devices can keep")
        }
        Way::Streamed => (available_memory(), "the host has"),
    };
    (has < narrow).then(|| format!("{what} {} MB, and the cells take {} MB", has / 1_000_000, narrow / 1_000_000))
}

/// Runs the recipe once, and everything that is made of its result.
fn run_one<B: SparseBackend>(
    backend: &Arc<B>,
    cells: &Arc<RepeatedCells>,
    params: &Params,
    ctx: &Context,
    scaled: bool,
    output: &Output,
) -> Result<Finished> {
    let recorder = Arc::new(PassRecorder::new(Arc::new(NoProgress)));
    let ctx = Context { threads: threads(), progress: Arc::clone(&recorder) as _, ..ctx.clone() };
    let start = Instant::now();
    let outcome = recipe::run(Arc::clone(backend), Arc::clone(cells) as _, params, &ctx)?;
    let mut bits = bits_of(&outcome);
    let mut scores = Fold::default();
    outcome.scores(&ctx, &mut |_, rows| {
        scores.add(rows.iter().map(|x| u64::from(x.to_bits())));
        Ok(())
    })?;
    bits.push(("scores of cells", scores.0));
    if scaled {
        let mut values = Fold::default();
        outcome.scaled(&ctx, &mut |_, rows| {
            values.add(rows.iter().map(|x| u64::from(x.to_bits())));
            Ok(())
        })?;
        bits.push(("scaled values", values.0));
    }
    Ok(Finished { bits, seconds: output.seconds(start), passes: recorder.passes() })
}

/// A number that every bit of what was added has a share in.
struct Fold(u64);

impl Default for Fold {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fold {
    fn add(&mut self, words: impl Iterator<Item = u64>) {
        for word in words {
            self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }

    fn of(words: impl Iterator<Item = u64>) -> u64 {
        let mut fold = Self::default();
        fold.add(words);
        fold.0
    }
}

fn bits_of<B: SparseBackend>(outcome: &Outcome<B>) -> Bits {
    let result = &outcome.result;
    let numbers = |numbers: &[f64]| Fold::of(numbers.iter().map(|x| x.to_bits()));
    let mut bits = vec![
        ("summary", Fold::of(result.digest.bytes().map(u64::from))),
        ("totals of cells", numbers(&result.cell_totals)),
        ("target sums", numbers(&[result.target_sum, result.hvg_target_sum])),
        ("means", numbers(&result.means)),
        ("variances", numbers(&result.variances)),
        ("scores of genes", numbers(&result.scores)),
        ("selected genes", Fold::of(result.selected.iter().map(|&gene| gene as u64))),
        ("totals of selected genes", numbers(&result.hvg_totals)),
        ("means of scaling", numbers(&result.scale_mean)),
        ("deviations", numbers(&result.scale_deviation)),
    ];
    if let Some(pca) = &result.pca {
        bits.push(("loadings", numbers(&pca.loadings)));
        bits.push(("variances of components", numbers(&pca.variances)));
    }
    bits
}

fn record(
    output: &Output,
    way: &str,
    cells: &RepeatedCells,
    finished: &Finished,
    more: serde_json::Value,
) -> Result<()> {
    let passes: Vec<_> = finished
        .passes
        .iter()
        .map(|pass| {
            let time = finished.seconds.map(|_| pass.time.as_secs_f64());
            say(&format!("  {way}: {}: {}", pass.name, seconds(time)));
            json!({ "pass": pass.name, "seconds": time })
        })
        .collect();
    let mut object = json!({
        "what": "recipe", "way": way, "cells": cells.describe(), "n_cells": cells.shape().n_cells,
        "seconds": finished.seconds, "passes": passes,
    });
    if let (Some(object), serde_json::Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    output.record(object)
}
