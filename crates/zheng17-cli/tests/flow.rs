//! The program from file to file: what it writes, what it says, and how it stops.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;
use zheng17_core::CsrBuffer;
use zheng17_core::matrix::ValueKind;
use zheng17_io::table::{ColumnData, Numbers};
use zheng17_io::{Dataset, Format, OpenOptions};

fn zheng17(folder: &Path) -> Command {
    let mut command = Command::cargo_bin("zheng17").expect("the program is built with its tests");
    command.current_dir(folder);
    command
}

/// Runs the program with words split at blanks.
fn run(folder: &Path, words: &str) -> Output {
    zheng17(folder).args(words.split_whitespace()).output().expect("the program starts")
}

fn run_well(folder: &Path, words: &str) -> String {
    let output = run(folder, words);
    assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs the program, which must fail with one line on standard error and this exit status. Gives the line.
fn run_badly(folder: &Path, words: &str, status: i32) -> String {
    let output = run(folder, words);
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{words}: {line}");
    assert_eq!(text(&output.stdout), "", "{words}");
    assert!(line.starts_with("error: ") && line.trim_end().lines().count() == 1, "{words}: {line}");
    line
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program writes Unicode")
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

fn with_counts() -> TempDir {
    let folder = folder();
    run_well(folder.path(), "simulate --cells 120 --genes 3000 --seed 3 -o counts.h5ad --quiet");
    folder
}

fn open(path: &Path) -> Dataset {
    zheng17_io::open(path, &OpenOptions::default()).expect("a sound file")
}

fn cells_of(dataset: &Dataset) -> CsrBuffer {
    let shape = dataset.source.shape();
    let mut cells = CsrBuffer::new(shape.n_genes, ValueKind::F32);
    dataset.source.read_cells(0..shape.n_cells, &mut cells).expect("sound cells");
    cells
}

fn numbers<'a>(dataset: &'a Dataset, column: &str) -> &'a [f64] {
    match dataset.var.column(column) {
        Some(ColumnData::Numbers(Numbers::F64(values))) => values,
        other => panic!("{column} is {other:?}"),
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn simulated_files_hold_the_same_counts_in_both_formats() {
    let folder = folder();
    let said = run_well(folder.path(), "simulate --cells 150 --genes 2000 --seed 5 -o a.h5");
    assert!(said.starts_with("a.h5: 150 cells × 2,000 genes, "), "{said}");
    run_well(folder.path(), "simulate --cells 100 --genes 2000 --seed 5 -o b.h5ad");
    let (tenx, h5ad) = (open(&folder.path().join("a.h5")), open(&folder.path().join("b.h5ad")));
    assert_eq!((tenx.format, h5ad.format), (Format::TenxV3, Format::H5ad));
    let (more, fewer) = (cells_of(&tenx), cells_of(&h5ad));
    let end = fewer.indices.len();
    assert_eq!(fewer.indices, more.indices[..end]);
    assert_eq!(fewer.values.as_ref(), more.values.as_ref().slice(0..end));
    assert!(tenx.obs.index.iter().take(100).eq(h5ad.obs.index.iter()));
    assert_eq!(tenx.var.index, h5ad.var.index);
    assert!(h5ad.obs.column("cell_type").is_some() && h5ad.var.column("marker_of").is_some());
    assert!(run_badly(folder.path(), "simulate --cells 5 -o a.h5", 2).contains("--force"));
    run_well(folder.path(), "simulate --cells 5 --genes 9 -o a.h5 --force");
    assert_eq!(open(&folder.path().join("a.h5")).source.shape().n_genes, 9);
    assert_eq!(names(folder.path()), ["a.h5", "b.h5ad"]);
}

#[test]
fn memory_chunks_and_backends_change_no_bit() {
    let folder = with_counts();
    let bytes = |options: &str| {
        let said = run_well(folder.path(), &format!("run counts.h5ad -o out.h5ad -f --top-genes 50 --pca 7 {options}"));
        (fs::read(folder.path().join("out.h5ad")).expect("the output"), said)
    };
    let (lazy, _) = bytes("--backend lazy");
    for options in
        ["--memory 64MiB --chunk-rows 7 --threads 3", "--chunk-rows 1 --threads 1", "--memory 100MB --threads 8"]
    {
        assert!(bytes(&format!("--backend lazy {options}")).0 == lazy, "{options}");
    }
    let (auto, said) = bytes("");
    assert!(said.contains("rayon: the run needs about "), "{said}");
    // The record names the backend; nothing else differs.
    assert_eq!(auto.len(), lazy.len());
    let differing = auto.iter().zip(&lazy).filter(|(a, b)| a != b).count();
    assert!(differing <= "rayon".len() + 2, "{differing} bytes differ");
    let (_, said) = bytes("--backend lazy --explain");
    for part in
        ["50 selected genes: 120 cells x 50 genes", "pass 1: totals and moments of 3000 genes; 120 cells", "memory: "]
    {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_takes_no_file_is_told_and_costs_only_time() {
    let folder = tempfile::tempdir().expect("a folder");
    run_well(folder.path(), "simulate --cells 3000 --genes 9000 -o counts.h5");
    // So little memory that the selected genes have no room in it; and a folder where nobody can make a file.
    let words = "run counts.h5 -o out.h5ad --backend lazy --top-genes 9000 --memory 32MiB --tmp /proc --write-x none";
    let output = run(folder.path(), words);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("note: /proc has no room for temporary files ("), "{said}");
}

#[test]
fn a_run_in_memory_is_explained_too() {
    let folder = with_counts();
    let said = run_well(folder.path(), "run counts.h5ad -o out.h5ad --top-genes 50 --explain");
    for part in
        ["rayon holds the matrix in memory", "pass 1: reading; ", "pass 2: totals and moments; ", "scaled values"]
    {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}

#[test]
fn too_little_memory_and_wrong_folders_are_refused() {
    let folder = with_counts();
    let refused = |options: &str| run_badly(folder.path(), &format!("run counts.h5ad -o out.h5ad {options}"), 2);
    assert!(refused("--tmp nowhere").contains("no such folder"));
    let little = refused("--backend lazy --memory 32MiB --top-genes 3000 --pca 5");
    assert!(little.contains("5 components of 3000 genes need about"), "{little}");
    let little = refused("--backend serial --memory 32MiB --top-genes 3000 --pca 5");
    assert!(little.contains("the backend lazy needs less"), "{little}");
    assert_eq!(names(folder.path()), ["counts.h5ad"]);
}

#[test]
fn a_run_writes_what_it_says() {
    let folder = with_counts();
    let said = run_well(folder.path(), "run counts.h5ad -o out.h5ad --top-genes 50 --pca 7 --gene-table genes.tsv");
    for part in [
        "counts.h5ad (AnnData h5ad)",
        "120",
        "3,000, ",
        "50 selected",
        "7, with ",
        "exact",
        "rayon: the run needs about ",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert_eq!(names(folder.path()), ["counts.h5ad", "genes.tsv", "out.h5ad"]);
    let result = open(&folder.path().join("out.h5ad"));
    assert_eq!((result.source.shape().n_cells, result.source.shape().n_genes), (120, 50));
    assert!(result.logged);
    assert!(result.obs.column("cell_type").is_some(), "columns of the input pass through");
    assert!(result.obs.column("n_counts_all").is_some());

    let table = fs::read_to_string(folder.path().join("genes.tsv")).expect("the gene table");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(
        rows[0],
        ["name", "total", "kept", "mean", "variance", "dispersion", "bin", "score", "rank", "selected"]
    );
    assert_eq!(rows.len(), 3001);
    assert!(rows.iter().all(|row| row.len() == 10));
    let selected: Vec<&str> = rows.iter().filter(|row| row[9] == "true").map(|row| row[0]).collect();
    assert_eq!(result.var.index, selected[..]);
    let totals: Vec<f64> =
        rows.iter().filter(|row| row[9] == "true").map(|row| row[1].parse().expect("a total")).collect();
    assert_eq!(totals, numbers(&result, "n_counts"));
    let mut ranks: Vec<usize> =
        rows.iter().filter(|row| row[9] == "true").map(|row| row[8].parse().expect("a rank")).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, (1..=50).collect::<Vec<_>>());
    let removed: Vec<_> = rows.iter().filter(|row| row[2] == "false").collect();
    assert!(!removed.is_empty());
    assert!(removed.iter().all(|row| row[3..9].iter().all(|field| field.is_empty()) && row[1] == "0"));
}

#[test]
fn the_sparse_output_holds_the_scaled_values() {
    let folder = with_counts();
    run_well(folder.path(), "run counts.h5ad -o scaled.h5ad --top-genes 40 --quiet");
    run_well(folder.path(), "run counts.h5ad -o lognorm.h5ad --top-genes 40 --write-x lognorm --quiet");
    run_well(folder.path(), "run counts.h5ad -o none.h5ad --top-genes 40 --write-x none --pca 3 --quiet");
    let (scaled, lognorm) = (open(&folder.path().join("scaled.h5ad")), open(&folder.path().join("lognorm.h5ad")));
    let (means, deviations) = (numbers(&lognorm, "mean"), numbers(&lognorm, "std"));
    let (dense, sparse) = (cells_of(&scaled), cells_of(&lognorm));
    assert_eq!(dense.indices.len(), 120 * 40);
    let (dense, sparse) = (dense.view(), sparse.view());
    for cell in 0..120 {
        let mut row = [0.0; 40];
        for (at, &gene) in sparse.row_indices(cell).iter().enumerate() {
            row[gene as usize] = sparse.row_values(cell).get(at);
        }
        for (gene, value) in row.into_iter().enumerate() {
            let expected = (value - means[gene]) / deviations[gene];
            let found = dense.row_values(cell).get(gene);
            assert!((found - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{found} instead of {expected}");
        }
    }
    let error = zheng17_io::open(&folder.path().join("none.h5ad"), &OpenOptions::default()).err().expect("no X");
    assert!(error.to_string().contains('X'), "{error}");
}

#[test]
fn results_do_not_depend_on_format_backend_or_repetition() {
    let folder = with_counts();
    run_well(folder.path(), "simulate --cells 120 --genes 3000 --seed 3 -o counts.h5 --quiet");
    for (input, options, output) in [
        ("counts.h5ad", "--backend serial", "1.h5ad"),
        ("counts.h5", "--threads 1", "2.h5ad"),
        ("counts.h5ad", "--threads 3", "3.h5ad"),
        ("counts.h5ad", "--threads 2", "4.h5ad"),
    ] {
        run_well(folder.path(), &format!("run {input} -o {output} {options} --top-genes 60 --pca 5 --quiet"));
    }
    let first = cells_of(&open(&folder.path().join("1.h5ad")));
    assert_eq!(first, cells_of(&open(&folder.path().join("2.h5ad"))));
    assert_eq!(first, cells_of(&open(&folder.path().join("3.h5ad"))));
    assert_eq!(
        fs::read(folder.path().join("3.h5ad")).expect("a result"),
        fs::read(folder.path().join("4.h5ad")).expect("a result"),
        "the same run twice gives the same bytes, with any number of threads"
    );
}

#[test]
fn json_is_json_and_quiet_is_quiet() {
    let folder = with_counts();
    let summary = run_well(folder.path(), "run counts.h5ad -o out.h5ad --top-genes 30 --pca --json");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary["n_selected_genes"], 30);
    assert_eq!(summary["n_components"], 29);
    assert!(summary["warnings"].to_string().contains("principal components: 29 instead of 50"), "{summary}");
    let passes = summary["passes"].as_array().expect("a list");
    let names: Vec<&str> = passes.iter().filter_map(|pass| pass["name"].as_str()).collect();
    assert_eq!(names[..2], ["reading", "totals and moments"], "{names:?}");
    assert_eq!(names.last(), Some(&"principal component scores"), "{names:?}");
    let seconds: f64 = passes.iter().filter_map(|pass| pass["seconds"].as_f64()).sum();
    assert!(
        passes.iter().all(|pass| pass["cells"] == if pass["name"] == "eigenproblem" { 0 } else { 120 }),
        "{summary}"
    );
    assert!(seconds > 0.0 && seconds <= summary["seconds"].as_f64().expect("a number"), "{summary}");
    assert!(summary["cpu_seconds"].as_f64().expect("a number") >= 0.0, "{summary}");
    let found: Value = serde_json::from_str(&run_well(folder.path(), "inspect counts.h5ad --json")).expect("JSON");
    assert_eq!(found["n_cells"], 120);
    assert_eq!(found["sample"]["looks_like_counts"], true);
    let backends: Value = serde_json::from_str(&run_well(folder.path(), "backends --json")).expect("JSON");
    let names: Vec<&Value> = backends.as_array().expect("a list").iter().map(|backend| &backend["name"]).collect();
    assert!(names.contains(&&Value::from("serial")), "{names:?}");
    assert_eq!(run_well(folder.path(), "run counts.h5ad -o out.h5ad --top-genes 30 --force --quiet"), "");
}

#[test]
fn inspect_tells_counts_from_other_numbers() {
    let folder = with_counts();
    assert!(run_well(folder.path(), "inspect counts.h5ad").contains("counts: integers up to"));
    run_well(folder.path(), "run counts.h5ad -o scaled.h5ad --top-genes 40 --quiet");
    run_well(folder.path(), "run counts.h5ad -o lognorm.h5ad --top-genes 40 --write-x lognorm --quiet");
    assert!(run_well(folder.path(), "inspect scaled.h5ad").contains("are negative; scaled already?"));
    assert!(run_well(folder.path(), "inspect lognorm.h5ad").contains("logarithmised already?"));
    // Such an input runs, with a warning.
    let output = run(folder.path(), "run lognorm.h5ad -o again.h5ad --top-genes 10");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let warnings = text(&output.stderr);
    assert!(warnings.contains("warning: the file says that X was logarithmised"), "{warnings}");
    assert!(warnings.contains("warning: the input does not look like counts"), "{warnings}");
    // The recipe's columns replace those of the input, which is said.
    assert!(warnings.contains("note: The column n_counts of the input's var was replaced"), "{warnings}");
}

#[test]
fn wrong_requests_say_why_and_leave_nothing() {
    let folder = with_counts();
    run_well(folder.path(), "run counts.h5ad -o there.h5ad --top-genes 20 --quiet");
    let before = names(folder.path());
    for (words, expected) in [
        ("run counts.h5ad -o there.h5ad", "there.h5ad: the output exists already; use --force to replace it"),
        ("run counts.h5ad -o counts.h5ad --force", "the output is the input"),
        ("run counts.h5ad -o new.h5ad --gene-table new.h5ad", "are the same file"),
        ("run counts.h5ad -o new.h5ad --gene-table ./new.h5ad --force", "are the same file"),
        ("run counts.h5ad -o ./there.h5ad --gene-table there.h5ad --force", "are the same file"),
        ("run counts.h5ad -o new.h5ad --gene-table there.h5ad", "exists already"),
        ("run counts.h5ad -o new.h5ad --top-genes 20 --pca 20", "20 principal components asked for"),
        ("run counts.h5ad -o new.h5ad --pca 0", "0 principal components"),
        ("run counts.h5ad -o new.h5ad --layer spliced", "spliced"),
        ("run counts.h5ad -o new.h5ad --raw", "raw"),
        ("run counts.h5ad -o new.h5ad --genome hg19", "genome"),
        ("inspect nothing.h5ad", "nothing.h5ad: there is no such file"),
    ] {
        let line = run_badly(folder.path(), words, 2);
        assert!(line.contains(expected), "{words}: {line}");
    }
    assert_eq!(names(folder.path()), before);
}

#[test]
fn damaged_input_is_named_and_leaves_nothing() {
    let folder = folder();
    let banner = "%%MatrixMarket matrix coordinate integer general\n";
    for (name, body, expected) in [
        ("short.mtx", "3 4 3\n1 1 1\n2 2 1\n", "short.mtx: line 4: expected 3 entries, found 2"),
        ("letter.mtx", "3 4 1\n1 1 x\n", "letter.mtx: line 3: expected row, column and value, found `1 1 x`"),
        ("negative.mtx", "3 4 2\n1 1 -1\n2 2 1\n", "cell 0 has -1 for gene 0; it is the only such value"),
        ("empty.mtx", "3 4 0\n", "every count is 0"),
        ("one.mtx", "3 1 1\n1 1 1\n", "there is only one cell"),
    ] {
        fs::write(folder.path().join(name), format!("{banner}{body}")).expect("writing a file");
        let line = run_badly(folder.path(), &format!("run {name} -o out.h5ad --gene-table genes.tsv"), 2);
        assert!(line.contains(expected), "{name}: {line}");
        fs::remove_file(folder.path().join(name)).expect("removing a file");
    }
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = with_counts();
    let program = assert_cmd::cargo::cargo_bin("zheng17");
    let mut child = std::process::Command::new(program)
        .args(["inspect", "counts.h5ad", "--json"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[cfg(unix)]
#[test]
fn signals_stop_a_run_and_leave_nothing() {
    for signal in ["INT", "TERM"] {
        let folder = folder();
        let program = assert_cmd::cargo::cargo_bin("zheng17");
        let child = std::process::Command::new(program)
            .args(["simulate", "--cells", "2000000", "-o", "large.h5ad"])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        // It is at work once its file is there.
        while names(folder.path()).is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let kill = std::process::Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(kill.expect("kill starts").success());
        let output = child.wait_with_output().expect("the program ends");
        assert_eq!(output.status.code(), Some(1), "{signal}");
        assert_eq!(text(&output.stderr), "error: stopped on request\n");
        assert_eq!(names(folder.path()), Vec::<String>::new(), "{signal}");
    }
}

#[cfg(unix)]
#[test]
fn a_hang_up_that_is_ignored_does_not_stop_a_run() {
    let folder = folder();
    let program = assert_cmd::cargo::cargo_bin("zheng17");
    // What nohup does: the signal is ignored before the program starts, which then sends it to itself.
    let script = r#"trap '' HUP; "$0" simulate --cells 3000 -o cells.h5ad --quiet & sleep 0.1; kill -HUP $!; wait $!"#;
    let status = std::process::Command::new("sh").args(["-c", script]).arg(program).current_dir(folder.path()).status();
    assert!(status.expect("the shell starts").success());
    assert_eq!(names(folder.path()), ["cells.h5ad"]);
}

#[cfg(unix)]
#[test]
fn a_file_size_limit_is_an_error_and_leaves_nothing() {
    let folder = folder();
    let program = assert_cmd::cargo::cargo_bin("zheng17");
    let script = r#"ulimit -f 100; exec "$0" simulate --cells 3000 -o cells.h5ad --quiet"#;
    let output = std::process::Command::new("sh").args(["-c", script]).arg(program).current_dir(folder.path()).output();
    let output = output.expect("the shell starts");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("error: can't write cells.h5ad: "), "{}", text(&output.stderr));
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn the_demo_ends_with_what_to_look_at() {
    let folder = folder();
    let said = run_well(folder.path(), "demo --cells 300");
    assert!(said.contains("What to look at") && said.contains("selected genes are markers of a cell type"), "{said}");
    assert_eq!(names(folder.path()), ["zheng17-demo-counts.h5ad", "zheng17-demo.h5ad"]);
    // Again, over its own files.
    run_well(folder.path(), "demo --cells 100");
    let result = open(&folder.path().join("zheng17-demo.h5ad"));
    assert_eq!((result.source.shape().n_cells, result.source.shape().n_genes), (100, 1000));
}

/// A number in what a command says as JSON.
fn number(json: &str, name: &str) -> f64 {
    let value: serde_json::Value = serde_json::from_str(json).expect("JSON");
    value[name].as_f64().unwrap_or_else(|| panic!("no number {name} in {json}"))
}

#[test]
fn a_plan_foretells_memory_and_output() {
    let folder = tempfile::tempdir().expect("a folder");
    run_well(folder.path(), "simulate --cells 4000 --genes 9000 -o counts.h5ad");
    for options in [
        "",
        "--pca",
        "--backend serial --pca",
        "--backend lazy --pca --write-x lognorm",
        "--backend lazy --memory 100MiB",
        "--recipe-version scanpy-main --write-x none",
    ] {
        let plan = run_well(folder.path(), &format!("plan counts.h5ad --json {options}"));
        let ran = run_well(folder.path(), &format!("run counts.h5ad -o out.h5ad -f --json {options}"));
        let (foretold, peak) = (number(&plan, "peak_memory_bytes"), number(&ran, "peak_memory_bytes"));
        let allowed = (peak / 4.0).max(64.0 * 1024.0 * 1024.0);
        assert!((foretold - peak).abs() <= allowed, "{options}: {foretold} foretold, {peak} taken");
        if options.contains("scaled") || !options.contains("--write-x") {
            let size = fs::metadata(folder.path().join("out.h5ad")).expect("the output").len() as f64;
            let foretold = number(&plan, "output_bytes");
            assert!((foretold - size).abs() <= size / 10.0, "{options}: {foretold} foretold, {size} written");
        }
        assert_eq!(
            number(&plan, "n_entries"),
            number(&run_well(folder.path(), "inspect counts.h5ad --json"), "n_entries")
        );
    }
    let said = run_well(folder.path(), "plan counts.h5ad --pca");
    for part in
        ["4,000 x 9,000", "rayon: the run needs about", "pass 5", "reads 100 % of the file", "peak memory    about"]
    {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let of_run = "plan counts.h5ad -o out.h5ad --gene-table genes.tsv --explain -f -q --pca";
    // What a process has at its start differs a little from one to the next.
    let without_numbers = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    let of_run = run_well(folder.path(), of_run);
    assert_eq!(without_numbers(&of_run), without_numbers(&said), "the options of a run make a plan");
    assert!(run_badly(folder.path(), "plan counts.h5ad --backend nothing", 2).contains("rayon, lazy, serial"));
    assert!(run_badly(folder.path(), "plan nothing.h5ad", 2).contains("nothing.h5ad"));
    assert!(run_badly(folder.path(), "plan counts.h5ad --top-genes 0", 2).contains("genes"));
}

#[test]
fn nothing_of_cuda_is_linked() {
    let Ok(linked) = std::process::Command::new("ldd").arg(env!("CARGO_BIN_EXE_zheng17")).output() else {
        return zheng17_test_support::skip("nothing_of_cuda_is_linked", "needs ldd");
    };
    let linked = text(&linked.stdout);
    assert!(linked.contains("libc.so") && !linked.contains("cuda") && !linked.contains("cublas"), "{linked}");
}

#[test]
fn gpus_that_are_not_there() {
    if Path::new("/dev/nvidiactl").exists() {
        zheng17_test_support::skip("gpus_that_are_not_there", "there is a GPU");
        return;
    }
    let folder = with_counts();
    let said = run_badly(folder.path(), "run counts.h5ad -o out.h5ad --backend cuda", 2);
    assert!(said.contains("there is no CUDA driver") && said.contains("--backend auto computes on the CPU"), "{said}");
    let ran = run(folder.path(), "run counts.h5ad -o out.h5ad --devices 0");
    let said = text(&ran.stdout);
    assert!(
        said.contains("rayon: devices were asked for, but there is no CUDA driver (libcuda) on this machine; the"),
        "{said}"
    );
    assert!(text(&ran.stderr).contains("note: The devices that were asked for are not used: there is no CUDA driver"));
    let said = text(&run(folder.path(), "run counts.h5ad -o no.h5ad --devices 0,x").stderr);
    assert!(said.contains("GPUs are named by their numbers"), "{said}");
    let said = run_badly(folder.path(), "run counts.h5ad -o no.h5ad --backend lazy --device-memory 2GiB", 2);
    assert!(said.contains("devices were asked for, but the backend lazy computes on the CPU"), "{said}");
}

#[test]
fn plugin_gives_the_summary_of_the_reference() {
    let folder = with_counts();
    let plugin = zheng17_test_support::compile_plugin(&zheng17_test_support::example_in_c(), &[], folder.path());
    let plugin = plugin.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(run_well(folder.path(), &format!("backends --plugin {plugin}")).contains("example-c"));
    let run_on = |backend: &str, output: &str| {
        let words = format!("run counts.h5ad -o {output} --plugin {plugin} --backend {backend} --json");
        let report: Value = serde_json::from_str(&run_well(folder.path(), &words)).expect("JSON");
        assert_eq!(report["backend"], backend);
    };
    run_on("example-c", "plugin.h5ad");
    run_on("serial", "serial.h5ad");
    let cells = |output: &str| cells_of(&open(&folder.path().join(output)));
    assert_eq!(cells("plugin.h5ad"), cells("serial.h5ad"));
    let line = run_badly(folder.path(), "run counts.h5ad -o out.h5ad --plugin counts.h5ad", 2);
    assert!(line.contains("counts.h5ad: is not a shared library"), "{line}");
}
