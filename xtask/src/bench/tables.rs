//! Results as tables in Markdown.

use std::fmt::Write as _;

use serde_json::Value;

use super::Section;

/// The tables of a section.
pub(crate) fn section(section: Section, measured: &Value) -> String {
    let of_size = match section {
        Section::Files => files,
        Section::Memory => memory,
        Section::Chunks => chunks,
        Section::Large => large,
        Section::Limits => limits,
        Section::Python => python,
    };
    let mut text: String = list(&measured["sizes"]).iter().map(of_size).collect();
    // Writing to a string can't fail.
    let _ = write!(
        text,
        "Measured at commit {} on {}; load of the machine before: {:.1}.",
        measured["commit"].as_str().unwrap_or("unknown"),
        measured["date"].as_str().unwrap_or("an unknown day"),
        number(&measured["load_before"]),
    );
    text
}

fn files(size: &Value) -> String {
    let cases = list(&size["cases"]);
    let scanpy = cases.iter().find(|case| case["solver"] == "arpack").map_or(f64::NAN, |case| number(&case["seconds"]));
    let mut table =
        Table::new(&["program", "threads", "wall", "processors", "peak memory", "faster than scanpy", "runs"]);
    for case in cases {
        let [wall, cpu, peak] = resources(case);
        let ratio = times(scanpy / number(&case["seconds"]));
        table.row([name(case), threads(case), wall, cpu, peak, ratio, case["repeats"].to_string()]);
    }
    let mut text = format!("{}\n{table}\n", heading(size));

    let with_most_threads = |backend: &str| {
        let of_backend = cases.iter().filter(|case| case["backend"] == backend);
        of_backend.max_by_key(|case| case["threads"].as_u64())
    };
    let columns: Vec<&Value> =
        [cases.first(), with_most_threads("rayon"), with_most_threads("lazy")].into_iter().flatten().collect();
    let names: Vec<String> = columns.iter().map(|case| name(case)).collect();
    let mut header = vec!["step"];
    header.extend(names.iter().map(String::as_str));
    let mut table = Table::new(&header);
    let steps: Vec<Steps> = columns.iter().map(|case| Steps::of(case)).collect();
    for (at, step) in Steps::NAMES.iter().enumerate() {
        table.row([(*step).to_owned()].into_iter().chain(steps.iter().map(|steps| seconds(steps.0[at]))));
    }
    let _ = writeln!(text, "{table}");
    text
}

/// Seconds of each step of a program from file to file.
struct Steps([f64; 5]);

impl Steps {
    const NAMES: [&str; 5] = ["read", "recipe", "components", "write X", "start, eigenproblem, tables, end"];

    fn of(case: &Value) -> Self {
        let report = &case["report"];
        let steps = &report["steps"];
        let known = if steps.is_null() {
            let passes = |names: &[&str]| {
                let passes = list(&report["passes"]).iter();
                passes
                    .filter(|pass| names.iter().any(|name| pass["name"] == *name))
                    .map(|pass| number(&pass["seconds"]))
                    .sum()
            };
            [
                passes(&["reading"]),
                passes(&["totals and moments", "selected genes", "means and deviations"]),
                passes(&["products of gene pairs", "principal component scores"]),
                passes(&["scaled values"]),
            ]
        } else {
            ["read", "recipe", "PCA", "write"].map(|step| number(&steps[step]))
        };
        let rest = number(&case["seconds"]) - known.iter().sum::<f64>();
        let [read, recipe, components, write] = known;
        Self([read, recipe, components, write, rest])
    }
}

fn python(size: &Value) -> String {
    let seconds_of = |name: &str| number(&size["seconds"][name]);
    let mut table =
        Table::new(&["program", "recipe and 50 components", "than arpack", "than covariance_eigh", "genes of scanpy"]);
    for name in size["seconds"].as_object().into_iter().flat_map(|programs| programs.keys()) {
        let ratios =
            ["scanpy, arpack", "scanpy, covariance_eigh"].map(|other| times(seconds_of(other) / seconds_of(name)));
        let [arpack, covariance] = ratios;
        table.row([
            name.clone(),
            seconds(seconds_of(name)),
            arpack,
            covariance,
            size["genes_of_scanpy"][name].to_string(),
        ]);
    }
    let text = format!("{}\nMedians of {} runs, by turns in one process.\n\n{table}\n", heading(size), size["repeats"]);
    text + &dask(&size["dask"])
}

/// The recipe on clusters of this machine, without components, beside one process.
fn dask(found: &Value) -> String {
    let mut table = Table::new(&["recipe, X in memory at the end", "from file", "from memory"]);
    let time = |value: &Value| value.as_f64().map_or_else(String::new, seconds);
    for workers in ["1 workers", "2 workers"] {
        let of = &found[workers];
        table.row([format!("Dask, {workers}"), time(&of["from file"]), time(&of["from memory"])]);
    }
    let faster = &found["two against one"];
    let ratios = ["from file", "from memory"].map(|which| times(number(&faster[which])));
    table.row([String::from("two workers against one"), ratios[0].clone(), ratios[1].clone()]);
    table.row([
        String::from("scanpy's functions on Dask, 2 workers"),
        String::new(),
        time(&found["2 workers"]["scanpy, from memory"]),
    ]);
    for (name, value) in found["in memory"].as_object().into_iter().flatten() {
        table.row([format!("one process: {name}"), String::new(), time(value)]);
    }
    let (rows, repeats) = (&found["chunk_rows"], &found["repeats"]);
    let overhead = 1000.0 * number(&found["1 workers"]["overhead_per_task_s"]);
    let moved = bytes(number(&found["2 workers"]["bytes_between_workers"]));
    format!(
        "Chunks of {rows} cells, workers of one thread each, medians of {repeats}. A task costs {overhead:.1} ms besides its work; between two \
         workers {moved} travel.\n\n{table}\n"
    )
}

fn memory(size: &Value) -> String {
    let (ours, scanpy) = (&size["ours"], &size["scanpy"]["seconds"]);
    let (entries, cases) = (number(&ours["n_entries"]), list(&ours["recipe"]));
    let runs = [ours, &size["scanpy"]].map(|program| &program["repeats"]);
    let mut text = format!("{}\nMedians of {} runs, of scanpy {}.\n\n", heading(ours), runs[0], runs[1]);
    let mut table = Table::new(&[
        "program",
        "threads",
        "recipe",
        "faster than scanpy",
        "components",
        "than arpack",
        "than covariance_eigh",
    ]);
    let scanpy_row = |solver: &str, ratios: [f64; 2]| {
        let [arpack, covariance] = ratios.map(times);
        [
            format!("scanpy, {solver}"),
            String::new(),
            seconds(number(&scanpy["recipe"])),
            times(1.0),
            seconds(number(&scanpy[solver])),
            arpack,
            covariance,
        ]
    };
    let [recipe, arpack, covariance] = ["recipe", "arpack", "covariance_eigh"].map(|name| number(&scanpy[name]));
    table.row(scanpy_row("arpack", [1.0, covariance / arpack]));
    table.row(scanpy_row("covariance_eigh", [arpack / covariance, 1.0]));
    for case in cases {
        let [own_recipe, own_pca] = ["recipe_seconds", "pca_seconds"].map(|key| number(&case[key]));
        table.row([
            name(case),
            threads(case),
            seconds(own_recipe),
            times(recipe / own_recipe),
            seconds(own_pca),
            times(arpack / own_pca),
            times(covariance / own_pca),
        ]);
    }
    let _ = writeln!(text, "{table}");

    let mut header = vec!["step".to_owned()];
    header.extend(cases.iter().map(|case| format!("{}, {}", name(case), threads(case))));
    let mut table = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for (at, pass) in cases.first().map_or(&[][..], |case| list(&case["passes"])).iter().enumerate() {
        let step = pass["name"].as_str().unwrap_or_default().to_owned();
        table.row([step].into_iter().chain(cases.iter().map(|case| seconds(number(&case["passes"][at]["seconds"])))));
    }
    for (step, key) in [
        ("recipe in all", "recipe_seconds"),
        ("products of gene pairs", "gram_seconds"),
        ("eigenproblem", "eigen_seconds"),
        ("scores", "scores_seconds"),
    ] {
        table.row([step.to_owned()].into_iter().chain(cases.iter().map(|case| seconds(number(&case[key])))));
    }
    let _ = writeln!(text, "{table}");

    let mut table = Table::new(&[
        "totals and moments",
        "threads",
        "ns an entry and thread",
        "entries a second",
        "of a copy at 8 bytes an entry",
        "of a copy at 2 bytes an entry",
    ]);
    for case in cases {
        let pass = list(&case["passes"]).iter().find(|pass| pass["name"] == "totals and moments");
        let rate = entries / pass.map_or(f64::NAN, |pass| number(&pass["seconds"]));
        let copy = list(&ours["copy"]).iter().find(|copy| copy["threads"] == case["threads"]);
        let copy = copy.map_or(f64::NAN, |copy| number(&copy["bytes_per_second"]));
        table.row([
            name(case),
            threads(case),
            format!("{:.2}", 1e9 * number(&case["threads"]) / rate),
            format!("{:.2} G", rate / 1e9),
            percent(8.0 * rate / copy),
            percent(2.0 * rate / copy),
        ]);
    }
    let _ = writeln!(text, "{table}");
    let copies = list(&ours["copy"]).iter().map(|copy| {
        let threads = if copy["threads"] == 1 { "one thread" } else { &format!("{} threads", copy["threads"]) };
        format!("{:.1} GB/s by {threads}", number(&copy["bytes_per_second"]) / 1e9)
    });
    let _ = writeln!(text, "A copy from memory to memory: {}.\n", copies.collect::<Vec<_>>().join(", "));
    let one_to_most = |backend: &str| {
        let mut of_backend = cases.iter().filter(|case| case["backend"] == backend);
        let (one, most) = (of_backend.next()?, of_backend.next_back()?);
        let ratio = |key: &str| times(number(&one[key]) / number(&most[key]));
        let (recipe, components) = (ratio("recipe_seconds"), ratio("pca_seconds"));
        Some(format!("{backend} on {} threads against one: recipe {recipe}, components {components}.", most["threads"]))
    };
    let ratios: Vec<String> = ["rayon", "lazy"].into_iter().filter_map(one_to_most).collect();
    let _ = writeln!(text, "{}\n", ratios.join(" "));
    text
}

fn chunks(size: &Value) -> String {
    let in_memory = &size["in_memory"];
    let mut text = format!("{}\n", heading(size));
    let mut table = Table::new(&[
        "cells in a chunk",
        "rayon, recipe in memory",
        "lazy, recipe in memory",
        "lazy, file to file",
        "peak memory",
    ]);
    for case in list(&size["cases"]) {
        let recipe = |backend: &str| {
            let found = list(&in_memory["chunks"])
                .iter()
                .find(|other| other["backend"] == backend && other["chunk_rows"] == case["chunk_rows"]);
            seconds(found.map_or(f64::NAN, |found| number(&found["recipe_seconds"])))
        };
        let [wall, _, peak] = resources(case);
        table.row([count(&case["chunk_rows"]), recipe("rayon"), recipe("lazy"), wall, peak]);
    }
    let _ = writeln!(text, "{table}");
    let mut table = Table::new(&["cells in a chunk", "sums, idle", "share", "rows, idle", "share"]);
    for case in list(&in_memory["idle"]) {
        let mut row = vec![count(&case["chunk_rows"])];
        for key in ["summaries_seconds", "rows_seconds"] {
            let [idle, working] = ["idle", "working"].map(|kernels| number(&case[kernels][key]));
            row.extend([format!("{:.2} ms", 1e3 * idle), format!("{:.2} %", 100.0 * idle / working)]);
        }
        table.row(row);
    }
    let _ = writeln!(text, "{table}");
    text
}

fn large(size: &Value) -> String {
    let mut table = Table::new(&[
        "X written",
        "--memory",
        "backend",
        "wall",
        "processors",
        "peak memory",
        "foreseen",
        "spilled",
        "ns an entry",
    ]);
    for case in list(&size["cases"]) {
        let [wall, cpu, peak] = resources(case);
        let explanation = case["report"]["explanation"].as_str().unwrap_or_default();
        let spilled = explanation.lines().find_map(|line| line.strip_prefix("spilled: ")?.split_once(" MiB"));
        let text = |key: &str| case[key].as_str().unwrap_or_default().to_owned();
        table.row([
            text("write_x"),
            text("memory"),
            case["report"]["backend"].as_str().unwrap_or_default().to_owned(),
            wall,
            cpu,
            peak,
            foreseen(case),
            spilled.map_or("–".to_owned(), |(mebibytes, _)| format!("{mebibytes} MiB")),
            format!("{:.1}", 1e9 * number(&case["seconds"]) / number(&size["n_entries"])),
        ]);
    }
    format!("{}\n{table}\n", heading(size))
}

fn limits(size: &Value) -> String {
    let mut table = Table::new(&["--memory", "peak memory", "foreseen", "wall"]);
    for case in list(&size["cases"]) {
        let [wall, _, peak] = resources(case);
        table.row([case["memory"].as_str().unwrap_or_default().to_owned(), peak, foreseen(case), wall]);
    }
    format!("{}\n{table}\n", heading(size))
}

/// What an input is.
fn heading(size: &Value) -> String {
    let entries = number(&size["n_entries"]);
    let file =
        if size["bytes"].is_null() { String::new() } else { format!(", a file of {}", bytes(number(&size["bytes"]))) };
    format!(
        "### {} cells × {} genes\n\n{:.1} million counts{file}.\n",
        count(&size["n_cells"]),
        count(&size["n_genes"]),
        entries / 1e6
    )
}

fn name(case: &Value) -> String {
    let solver = case["solver"].as_str().map(|solver| format!("scanpy, {solver}"));
    let backend = case["backend"].as_str().map(|backend| match case["report"]["backend"].as_str() {
        Some(chosen) if chosen != backend => format!("{backend} ({chosen})"),
        _ => backend.to_owned(),
    });
    solver.or(backend).unwrap_or_default()
}

fn threads(case: &Value) -> String {
    case["threads"].as_u64().map_or_else(String::new, |threads| threads.to_string())
}

/// Wall time, processor time and peak memory of a program, or what went wrong.
fn resources(case: &Value) -> [String; 3] {
    if case["error"].is_string() {
        return ["failed".to_owned(), String::new(), String::new()];
    }
    let [wall, cpu] = ["seconds", "cpu_seconds"].map(|key| seconds(number(&case[key])));
    [wall, cpu, bytes(number(&case["peak_memory_bytes"]))]
}

/// The peak memory that was foreseen.
fn foreseen(case: &Value) -> String {
    case["foreseen_bytes"].as_f64().map_or_else(|| "–".to_owned(), bytes)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn count(value: &Value) -> String {
    let digits = value.as_u64().unwrap_or(0).to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

fn seconds(seconds: f64) -> String {
    match seconds {
        s if s.is_nan() => "–".to_owned(),
        s if s < 0.095 => format!("{s:.3} s"),
        s if s < 9.95 => format!("{s:.2} s"),
        s => format!("{s:.1} s"),
    }
}

fn bytes(bytes: f64) -> String {
    if bytes < 1e9 { format!("{:.0} MB", bytes / 1e6) } else { format!("{:.2} GB", bytes / 1e9) }
}

fn times(ratio: f64) -> String {
    if ratio.is_nan() { "–".to_owned() } else { format!("{ratio:.1}×") }
}

fn percent(share: f64) -> String {
    if share.is_nan() { "–".to_owned() } else { format!("{:.0} %", 100.0 * share) }
}

/// A table whose first column is text and whose others are numbers.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new(header: &[&str]) -> Self {
        Self(vec![header.iter().map(|&cell| cell.to_owned()).collect()])
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push(cells.into_iter().collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, row) in self.0.iter().enumerate() {
            writeln!(f, "| {} |", row.join(" | "))?;
            if at == 0 {
                writeln!(f, "|---|{}", "--:|".repeat(row.len().saturating_sub(1)))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!([7, 1000, 1_306_127].map(|n| count(&json!(n))), ["7", "1,000", "1,306,127"]);
        assert_eq!([0.0123, 1.234, 63.21, f64::NAN].map(seconds), ["0.012 s", "1.23 s", "63.2 s", "–"]);
        assert_eq!([105e6, 2.5e9].map(bytes), ["105 MB", "2.50 GB"]);
    }

    #[test]
    fn a_run_that_failed_is_in_the_table() {
        let run = json!({ "memory": "1GiB", "foreseen_bytes": 8e8, "seconds": 2.0, "cpu_seconds": 3.0, "peak_memory_bytes": 9e8 });
        let failed = json!({ "memory": "256MiB", "error": "exit status: 2" });
        let size = json!({ "n_cells": 5000, "n_genes": 10, "n_entries": 1_500_000, "bytes": 3_000_000, "cases": [failed, run] });
        let measured = json!({ "sizes": [size], "commit": "abc", "date": "2026-11-29", "load_before": 0.04 });
        let expected = "### 5,000 cells × 10 genes\n\n1.5 million counts, a file of 3 MB.\n\n\
            | --memory | peak memory | foreseen | wall |\n|---|--:|--:|--:|\n| 256MiB |  | – | failed |\n| 1GiB | 900 MB | 800 MB | 2.00 s |\n\n\
            Measured at commit abc on 2026-11-29; load of the machine before: 0.0.";
        assert_eq!(section(Section::Limits, &measured), expected);
    }
}
