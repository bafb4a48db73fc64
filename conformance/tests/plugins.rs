//! Every case on the example plugins and the template, in Rust and in C, loaded as users load them.

use std::process::ExitCode;

use zheng17_conformance::{plugin, test_program};
use zheng17_test_support::{compile_plugin, example_in_c, example_in_rust, plugin_in_rust};

fn main() -> ExitCode {
    let Ok(folder) = tempfile::tempdir() else { panic!("no folder for the example in C") };
    let template = plugin_in_rust("zheng17-template-dynamic");
    let libraries = [example_in_rust(), template, compile_plugin(&example_in_c(), &[], folder.path())];
    let subjects = libraries.iter().map(|library| match plugin(library) {
        Ok((subject, _)) => subject,
        Err(error) => panic!("{error}"),
    });
    test_program(subjects.collect())
}
