//! The program `mongolock`: shows and releases distributed locks on MongoDB, and runs commands under them.

#![forbid(unsafe_code)]

#[cfg(not(unix))]
compile_error!("the program mongolock runs on Unix only: `run` needs process groups and signals");

mod acquire;
mod cli;
mod clock;
mod codes;
mod columns;
mod completions;
mod connection;
mod damaged;
mod detach;
mod doctor;
mod driver;
mod duration;
mod exit;
mod extend;
mod failure;
mod handle_file;
mod ids;
mod input;
mod json;
mod last_renewal;
mod list;
mod log;
mod output;
mod person;
mod question;
mod release;
mod run;
mod show;
mod text;
mod times;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, CliCommand};
use crate::exit::Exit;
use crate::failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(error, cli::is_run(std::env::args_os().skip(1))),
    };
    match dispatch(cli) {
        Ok(ending) => ending.exit(),
        Err(failure) => {
            failure.print();
            failure.ending().exit()
        }
    }
}

fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    let Cli {
        connection,
        verbose,
        mut command,
    } = cli;
    command.gather_names();
    if verbose {
        driver::be_verbose();
    }
    match command {
        CliCommand::Run(arguments) => run::run(&arguments, &connection),
        CliCommand::Acquire(arguments) => detach::acquire(&arguments, &connection),
        CliCommand::Hold(arguments) => detach::hold(&arguments, &connection),
        CliCommand::Guard(arguments) => run::guard(&arguments),
        CliCommand::Exec(arguments) => run::exec(&arguments),
        CliCommand::Extend(arguments) => in_runtime(extend::extend(arguments, &connection)),
        CliCommand::Completions { shell } => completions::print(shell),
        CliCommand::Ls(arguments) => in_runtime(list::ls(arguments, &connection)),
        CliCommand::Show(arguments) => in_runtime(show::show(arguments, &connection)),
        CliCommand::Log(arguments) => in_runtime(log::log(arguments, &connection)),
        CliCommand::Watch(arguments) => in_runtime(watch::watch(arguments, &connection)),
        CliCommand::Doctor(arguments) => in_runtime(doctor::doctor(arguments, &connection)),
        CliCommand::Release(arguments) => in_runtime(release::release(arguments, &connection)),
    }
}

fn in_runtime(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::io("cannot start"))?.block_on(command)
}
