//! The `zheng17` program: reads the command line, calls the libraries and talks to people. It computes nothing itself.

mod arguments;
mod backends;
mod check;
mod demo;
mod inspect;
mod plan;
mod plugins;
mod run;
mod simulate;
mod terminal;

use std::process::ExitCode;

use clap::Parser;
use zheng17_core::Result;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match dispatch(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            terminal::complain(format_args!("error: {line}"));
            ExitCode::from(error.kind().exit_code())
        }
    }
}

fn dispatch(command: &Command) -> Result<()> {
    match command {
        Command::Run(arguments) => run::run(arguments),
        Command::Plan(arguments) => plan::plan(arguments),
        Command::Inspect(arguments) => inspect::inspect(arguments),
        Command::Backends(arguments) => backends::backends(arguments),
        Command::Plugins(arguments) => plugins::plugins(arguments),
        Command::Simulate(arguments) => simulate::simulate(arguments),
        Command::Demo(arguments) => demo::demo(arguments),
    }
}
