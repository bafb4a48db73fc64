//! All that the steps found, as one table for people and one file for programs. Knows what steps write, and measures nothing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};
use zheng17::{Error, Result};

use crate::kernels::GOAL;

/// A launch that moves less takes as long as any launch, whatever it does.
const SMALL: f64 = 2e6;

/// What `report` takes.
#[derive(clap::Args)]
pub(crate) struct ReportArguments {
    /// What the steps have added, a JSON object a line.
    lines: PathBuf,
    /// Where `gpu-check.json` and `gpu-check.txt` go.
    folder: PathBuf,
}

/// The objects, by what they are.
struct Found(Vec<Value>);

impl Found {
    fn read(path: &Path) -> Result<Self> {
        // What other programs said may be in there.
        let bytes = std::fs::read(path).map_err(|error| Error::from(error).at(path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let object = |(at, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                Error::input(format!("line {} is no JSON object", at + 1)).with_source(error).at(path.display())
            })
        };
        text.lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .map(object)
            .collect::<Result<_>>()
            .map(Self)
    }

    fn of<'a>(&'a self, what: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |object| object["what"] == what)
    }

    fn is_emulated(&self) -> bool {
        self.0.iter().any(|object| object["emulated"] == true)
    }

    /// What there was no time, no tool or no memory for.
    fn missing(&self) -> Vec<String> {
        let steps =
            self.of("step").filter(|step| matches!(step["outcome"].as_str(), Some("not here" | "no time left")));
        let skipped = self.0.iter().filter(|object| object["skipped"].is_string());
        let of_step = steps.map(|step| text(&step["name"]));
        of_step.chain(skipped.map(|object| format!("{} {}", text(&object["what"]), text(&object["way"])))).collect()
    }

    /// Whether every step ended well, and at least one ran.
    fn is_good(&self) -> bool {
        let good_step =
            |step: &Value| !matches!(step["outcome"].as_str(), Some("failed" | "stopped at its limit") | None);
        let mut steps = self.of("step").peekable();
        steps.peek().is_some() && steps.all(good_step) && self.0.iter().all(|object| object["good"] != false)
    }
}

/// Writes the report, and prints the table.
#[allow(clippy::print_stdout, reason = "a program for the terminal")]
pub(crate) fn run(arguments: &ReportArguments) -> Result<bool> {
    let found = Found::read(&arguments.lines)?;
    let text = tables(&found);
    let write = |name: &str, text: &str| {
        let path = arguments.folder.join(name);
        std::fs::write(&path, text).map_err(|error| Error::from(error).at(path.display()))
    };
    write("gpu-check.txt", &text)?;
    write("gpu-check.json", &format!("{:#}\n", as_json(&found)))?;
    print!("{text}");
    Ok(found.is_good())
}

/// Everything, grouped by what it is.
fn as_json(found: &Found) -> Value {
    let mut groups = Map::new();
    groups.insert("good".to_owned(), json!(found.is_good()));
    groups.insert("emulated".to_owned(), json!(found.is_emulated()));
    for object in &found.0 {
        let what = object["what"].as_str().unwrap_or("other").to_owned();
        if let Value::Array(group) = groups.entry(what).or_insert_with(|| json!([])) {
            group.push(object.clone());
        }
    }
    Value::Object(groups)
}

/// A text of an object, or a line for none.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A number with so many digits after the point, in units of `unit`.
fn number(value: &Value, unit: f64, digits: usize) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |value| format!("{:.digits$}", value / unit))
}

/// Adds a table whose columns but the first ones hold numbers.
fn add(out: &mut String, title: &str, header: &[&str], n_texts: usize, rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(n_texts) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let _ = writeln!(out, "\n{title}");
    for line in table.to_string().lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn tables(found: &Found) -> String {
    let mut out = String::new();
    let devices: Vec<String> = found.of("device").map(|device| text(&device["name"])).collect();
    let _ =
        writeln!(out, "zheng17 on {}", if devices.is_empty() { "no device".to_owned() } else { devices.join(", ") });
    if found.is_emulated() {
        let _ = writeln!(out, "EMULATED: no GPU took part, and nothing was timed.");
    }
    machine(found, &mut out);
    let steps = found.of("step").map(|step| {
        vec![text(&step["name"]), text(&step["outcome"]), number(&step["seconds"], 1.0, 0), text(&step["note"])]
    });
    let rows = steps.map(|mut row| {
        if row[3] == "-" {
            row[3].clear();
        }
        row.swap(2, 3);
        row
    });
    add(&mut out, "Steps", &["step", "outcome", "", "seconds"], 3, rows.collect());
    conformance(found, &mut out);
    let copies = found.of("copy").map(|copy| vec![text(&copy["copy"]), number(&copy["gb_s"], 1.0, 1)]);
    add(&mut out, "Copies", &["", "GB/s"], 1, copies.collect());
    kernels(found, &mut out);
    recipes(found, &mut out);
    cupy(found, &mut out);
    let _ = writeln!(out, "\n{}", if found.is_good() { "Everything that ran is good." } else { "SOMETHING FAILED." });
    let missing = found.missing();
    if !missing.is_empty() {
        let _ = writeln!(out, "Not run: {}.", missing.join(", "));
    }
    out
}

/// The steps of the same recipe with CuPy, and the sum of those that ran, for each number of cells.
fn cupy(found: &Found, out: &mut String) {
    let steps: Vec<&Value> = found.of("cupy").collect();
    let mut rows = Vec::new();
    for of_size in steps.chunk_by(|a, b| a["n_cells"] == b["n_cells"]) {
        for step in of_size {
            let missing = step["missing"].as_str().map_or_else(String::new, |why| format!(": not done: {why}"));
            let operation = text(&step["operation"]) + &missing;
            rows.push(vec![text(&step["n_cells"]), operation, number(&step["milliseconds"], 1.0, 1)]);
        }
        let sum: f64 = of_size.iter().filter_map(|step| step["milliseconds"].as_f64()).sum();
        rows.push(vec![text(&of_size[0]["n_cells"]), "sum of what was done".to_owned(), format!("{sum:.1}")]);
    }
    add(out, "The same recipe with CuPy", &["cells", "step", "ms"], 2, rows);
}

fn machine(found: &Found, out: &mut String) {
    for device in found.of("device") {
        let _ = writeln!(
            out,
            "{}: {} GB of memory, compute capability {}, {} multiprocessors",
            text(&device["name"]),
            number(&device["memory"], 1e9, 1),
            text(&device["compute_capability"]),
            device["multiprocessors"]
        );
    }
    for host in found.of("host") {
        let memory = number(&host["memory"], 1e9, 0);
        let _ = writeln!(out, "host: {} threads, {memory} GB of memory; CUDA {}", host["threads"], text(&host["cuda"]));
    }
    for built in found.of("built") {
        let _ = writeln!(out, "commit: {}", text(&built["commit"]));
    }
}

fn conformance(found: &Found, out: &mut String) {
    let header = ["on", "passed", "failed", "skipped", "unsupported"];
    let rows = found.of("conformance").map(|run| header.map(|key| text(&run[key])).to_vec());
    add(out, "Conformance", &header, 1, rows.collect());
    for failure in found.of("conformance").flat_map(|run| run["failures"].as_array().into_iter().flatten()) {
        let _ = writeln!(out, "failed: {}", text(failure));
    }
}

/// Each kernel in the operation in which it moves most; the file has them all.
fn once_each(found: &Found) -> Vec<&Value> {
    let bytes = |kernel: &Value| kernel["bytes"].as_f64().unwrap_or(0.0);
    let mut kernels: Vec<&Value> = Vec::new();
    for kernel in found.of("kernel") {
        match kernels.iter_mut().find(|other| other["kernel"] == kernel["kernel"]) {
            Some(other) if bytes(kernel) > bytes(other) => *other = kernel,
            Some(_) => {}
            None => kernels.push(kernel),
        }
    }
    kernels
}

fn kernels(found: &Found, out: &mut String) {
    let of_kernels = once_each(found);
    let Some(first) = of_kernels.first() else { return };
    let title = format!("Kernels, {}; wide forms get a quarter of the cells", text(&first["cells"]));
    let header =
        ["operation", "kernel", "launches", "ms", "MB", "GB/s", "of a copy", "10^9 additions/s", "TFLOP/s", ""];
    let is_small = |kernel: &Value| {
        let of = |key: &str| kernel[key].as_f64();
        of("bytes").zip(of("launches")).is_some_and(|(bytes, launches)| bytes < SMALL * launches)
    };
    let is_slow =
        |kernel: &Value| !is_small(kernel) && kernel["fraction"].as_f64().is_some_and(|fraction| fraction < GOAL);
    let rows = of_kernels.iter().map(|kernel| {
        vec![
            text(&kernel["operation"]),
            text(&kernel["kernel"]),
            text(&kernel["launches"]),
            number(&kernel["milliseconds"], 1.0, 3),
            number(&kernel["bytes"], 1e6, 1),
            number(&kernel["gb_s"], 1.0, 1),
            number(&kernel["fraction"], 0.01, 0) + if kernel["fraction"].is_null() { "" } else { " %" },
            number(&kernel["additions_g_s"], 1.0, 1),
            number(&kernel["tflop_s"], 1.0, 2),
            match (is_small(kernel), is_slow(kernel)) {
                (true, _) => "small".to_owned(),
                (false, true) => "below the goal".to_owned(),
                (false, false) => String::new(),
            },
        ]
    });
    add(out, &title, &header, 2, rows.collect());
    let timed = of_kernels.iter().filter(|kernel| !kernel["fraction"].is_null() && !is_small(kernel)).count();
    if timed > 0 {
        let slow: Vec<String> = of_kernels
            .iter()
            .filter(|kernel| is_slow(kernel))
            .map(|kernel| format!("{} {} %", text(&kernel["kernel"]), number(&kernel["fraction"], 0.01, 0)))
            .collect();
        let _ = writeln!(
            out,
            "\n{} of {timed} reach {:.0} % of a copy within the device.{}",
            timed - slow.len(),
            100.0 * GOAL,
            if slow.is_empty() { String::new() } else { format!(" Below: {}.", slow.join(", ")) }
        );
        let _ = writeln!(
            out,
            "Small ones move less than {:.0} MB a launch and take as long as a launch does.",
            SMALL / 1e6
        );
        let _ = writeln!(out, "gram_products is bound by arithmetic, and folds by additions, rather than by bytes.");
    }
    for coverage in found.of("coverage") {
        for (key, what) in [("not_measured", "Not measured"), ("unknown_bytes", "Bytes not known")] {
            let names: Vec<String> = coverage[key].as_array().into_iter().flatten().map(text).collect();
            if !names.is_empty() {
                let _ = writeln!(out, "{what}: {}.", names.join(", "));
            }
        }
    }
}

fn recipes(found: &Found, out: &mut String) {
    let runs: Vec<&Value> = found.of("recipe").collect();
    let header = ["cells", "way", "seconds", "peak MB", "of MB", "bits"];
    let rows = runs.iter().map(|run| {
        let comparison = found
            .of("comparison")
            .find(|comparison| comparison["way"] == run["way"] && comparison["cells"] == run["cells"]);
        let bits = match (run["skipped"].as_str(), run["error"].as_str(), comparison) {
            (Some(why), ..) => format!("skipped: {why}"),
            (_, Some(error), _) => format!("FAILED: {error}"),
            (.., Some(comparison)) if comparison["good"] == true => {
                format!("those of {}", text(&comparison["compared_with"]))
            }
            (.., Some(comparison)) => {
                let parts: Vec<String> = comparison["differences"].as_array().into_iter().flatten().map(text).collect();
                format!("OTHERS than {}: {}", text(&comparison["compared_with"]), parts.join(", "))
            }
            (None, None, None) => String::new(),
        };
        vec![
            text(&run["cells"]),
            text(&run["way"]),
            number(&run["seconds"], 1.0, 2),
            number(&run["peak"], 1e6, 1),
            number(&run["device_memory"], 1e6, 1),
            bits,
        ]
    });
    add(out, "The whole recipe, with principal components", &header, 2, rows.collect());
    let mut sizes: Vec<&Value> = runs.iter().map(|run| &run["cells"]).collect();
    sizes.dedup();
    for size in sizes {
        let of_size: Vec<&Value> = runs.iter().copied().filter(|run| run["cells"] == *size).collect();
        passes(size, &of_size, out);
    }
}

/// The seconds of each pass, with a column for each way to run.
fn passes(size: &Value, runs: &[&Value], out: &mut String) {
    let timed: Vec<&&Value> = runs.iter().filter(|run| run["passes"].is_array()).collect();
    let Some(first) = timed.first() else { return };
    let ways: Vec<String> = timed.iter().map(|run| text(&run["way"])).collect();
    let header: Vec<&str> = std::iter::once("seconds").chain(ways.iter().map(String::as_str)).collect();
    let rows = first["passes"].as_array().into_iter().flatten().map(|pass| {
        let of_run = |run: &&&Value| {
            let passes = run["passes"].as_array().into_iter().flatten();
            let times: Vec<f64> = passes
                .filter(|other| other["pass"] == pass["pass"])
                .filter_map(|other| other["seconds"].as_f64())
                .collect();
            if times.is_empty() { "-".to_owned() } else { format!("{:.3}", times.iter().sum::<f64>()) }
        };
        std::iter::once(text(&pass["pass"])).chain(timed.iter().map(of_run)).collect()
    });
    add(out, &format!("By pass, {}", text(size)), &header, 1, rows.collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[Value]) -> Found {
        Found(lines.to_vec())
    }

    fn step(name: &str, outcome: &str) -> Value {
        json!({ "what": "step", "name": name, "outcome": outcome, "seconds": 3, "emulated": false })
    }

    #[test]
    fn a_failed_step_or_other_bits_are_a_failure_and_a_missing_tool_is_not() {
        assert!(!found(&[]).is_good(), "nothing ran");
        assert!(found(&[step("a", "passed"), step("b", "not here"), step("c", "no time left")]).is_good());
        assert!(!found(&[step("a", "passed"), step("b", "failed")]).is_good());
        assert!(!found(&[step("a", "stopped at its limit")]).is_good());
        let run = json!({ "what": "recipe", "way": "resident" });
        let other_bits = json!({
            "what": "comparison", "way": "resident", "good": false, "differences": ["means"], "compared_with": "rayon",
        });
        assert!(!found(&[step("a", "passed"), other_bits.clone()]).is_good());
        let text = tables(&found(&[step("a", "passed"), run, other_bits]));
        assert!(text.contains("OTHERS than rayon: means") && text.contains("SOMETHING FAILED."), "{text}");
    }

    #[test]
    fn slow_kernels_are_named_and_emulated_ones_have_no_time() {
        let kernel = |kernel: &str, fraction: Option<f64>| json!({ "what": "kernel", "cells": "9 cells", "kernel": kernel, "fraction": fraction, "gb_s": fraction });
        let text = tables(&found(&[kernel("quick_one", Some(0.8)), kernel("slow_one", Some(0.25))]));
        assert!(text.contains("1 of 2 reach 60 %") && text.contains("Below: slow_one 25 %."), "{text}");
        let emulated = json!({ "what": "device", "name": "none (not a GPU)", "emulated": true });
        let text = tables(&found(&[emulated, kernel("any", None)]));
        assert!(text.contains("EMULATED") && !text.contains('%') && !text.contains(" reach "), "{text}");
    }

    #[test]
    fn what_cupy_did_is_added_up_and_what_it_did_not_is_told() {
        let step = |operation: &str, time: Option<f64>, missing: Option<&str>| {
            let mut step = json!({ "what": "cupy", "n_cells": 7, "operation": operation, "milliseconds": time });
            if let Some(missing) = missing {
                step["missing"] = json!(missing);
            }
            step
        };
        let text = tables(&found(&[
            step("totals", Some(2.0), None),
            step("log1p", Some(1.5), None),
            step("gram", None, Some("no memory")),
        ]));
        let line = |what: &str| text.lines().find(|line| line.contains(what)).unwrap_or_default();
        assert!(line("sum of what was done").ends_with("3.5"), "{text}");
        assert!(line("gram").contains("not done: no memory"), "{text}");
    }

    #[test]
    fn objects_are_grouped_and_bad_lines_are_told_by_number() {
        let folder = std::env::temp_dir().join(format!("zheng17-gpu-check-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let lines = folder.join("lines.jsonl");
        std::fs::write(&lines, format!("{}\n\n{}\n", step("a", "passed"), step("b", "passed"))).expect("a file");
        assert!(run(&ReportArguments { lines: lines.clone(), folder: folder.clone() }).expect("a report"));
        let text = std::fs::read_to_string(folder.join("gpu-check.json")).expect("a file");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((value["good"].as_bool(), value["step"].as_array().map(Vec::len)), (Some(true), Some(2)));
        std::fs::write(&lines, "{}\nnot JSON\n").expect("a file");
        let error = Found::read(&lines).err().expect("not JSON");
        assert!(error.to_string().contains("line 2 is no JSON object"), "{error}");
        std::fs::remove_dir_all(&folder).expect("gone");
    }
}
