//! The completions of shells.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) fn print(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(), "mongolock", &mut script);
    let written = io::stdout()
        .write_all(&script)
        .and_then(|()| io::stdout().flush());
    written.map_err(|error| Failure::output(&error))?;
    Ok(Exit::OK)
}

/// The command line without the commands that this program uses for itself.
fn visible() -> Command {
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set());
    Command::new("mongolock")
        .args(all.get_arguments())
        .subcommands(shown)
}
