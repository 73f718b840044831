//! The completions of shells.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Ending;
use crate::failure::Failure;

pub(crate) fn print(shell: Shell) -> Result<Ending, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mongolock", &mut script);
    let written = io::stdout()
        .write_all(&script)
        .and_then(|()| io::stdout().flush());
    written.map_err(|error| Failure::output(&error))?;
    Ok(Ending::OK)
}
