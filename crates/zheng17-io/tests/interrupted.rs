//! What stays of an output when its process is killed or asked to stop. One test: a stopped process writes nothing more.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Trial};
use zheng17_core::ErrorKind;
use zheng17_core::matrix::{ValueKind, ValuesRef};
use zheng17_io::table::Table;
use zheng17_io::write::{CreateOptions, DenseWriter, H5adWriter, Place, remove_all_temporaries};

/// Tells the child process where to write.
const OUTPUT: &str = "ZHENG17_TEST_OUTPUT";
const N_CELLS: usize = 3000;
const N_GENES: usize = 1000;

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn start(output: &Path) -> (H5adWriter, DenseWriter) {
    let mut writer = H5adWriter::create(output, &CreateOptions::default()).expect("create");
    let names = |n: usize| Table::from_index("_index", (0..n).map(|at| at.to_string()).collect());
    writer.write_obs(&names(N_CELLS)).expect("obs");
    writer.write_var(&names(N_GENES)).expect("var");
    let x = writer.dense(Place::X, N_CELLS, N_GENES, ValueKind::F32).expect("start");
    (writer, x)
}

fn main() {
    if let Some(output) = std::env::var_os(OUTPUT) {
        write_until_killed(Path::new(&output));
        return;
    }
    let trial = Trial::test("nothing_half_written_has_the_name_and_the_next_run_cleans_up", || {
        nothing_half_written_has_the_name_and_the_next_run_cleans_up();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

#[allow(clippy::print_stdout, reason = "the other process waits for it")]
fn write_until_killed(output: &Path) {
    let (_writer, mut x) = start(output);
    x.push(ValuesRef::F32(&vec![1.0; N_GENES * N_CELLS / 2])).expect("push");
    println!("half done");
    std::thread::sleep(std::time::Duration::from_mins(10));
}

fn nothing_half_written_has_the_name_and_the_next_run_cleans_up() {
    let folder = tempfile::tempdir().expect("folder");
    let output = folder.path().join("out.h5ad");
    let mut child = Command::new(std::env::current_exe().expect("test program"))
        .env(OUTPUT, &output)
        .stdout(Stdio::piped())
        .spawn()
        .expect("child");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "half done"), "the child stopped by itself");

    // Another run for the same output leaves a live one alone.
    drop(start(&output));
    let left = files(folder.path());
    assert!(left.len() == 1 && left[0].starts_with(".out.h5ad.zheng17-"), "{left:?}");

    child.kill().expect("kill");
    child.wait().expect("wait");
    assert_eq!(files(folder.path()), left, "a killed process can't clean up");

    let (writer, mut x) = start(&output);
    assert!(!files(folder.path()).contains(&left[0]), "the leftover is still there");
    x.push(ValuesRef::F32(&vec![1.0; N_GENES * N_CELLS])).expect("push");
    x.finish().expect("finish");
    writer.finish().expect("finish");
    assert_eq!(files(folder.path()), ["out.h5ad"]);

    // Asked to stop, a process takes its temporary files along and finishes nothing.
    let other = folder.path().join("other.h5ad");
    let (writer, mut x) = start(&other);
    remove_all_temporaries();
    assert_eq!(files(folder.path()), ["out.h5ad"]);
    x.push(ValuesRef::F32(&vec![1.0; N_GENES * N_CELLS])).expect("push");
    x.finish().expect("finish");
    assert_eq!(writer.finish().expect_err("stopped").kind(), ErrorKind::Cancelled);
    let Err(error) = H5adWriter::create(&other, &CreateOptions::default()) else { panic!("stopped") };
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(files(folder.path()), ["out.h5ad"]);
}
