//! Questions to a person at a terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Whether a user can be asked.
pub(crate) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question that only `y` or `yes` answers with yes.
pub(crate) fn ask(question: &str) -> Result<bool, Failure> {
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{question} [y/N] ").and_then(|()| io::stderr().flush());
    let read = asked.and_then(|()| io::stdin().lock().read_line(&mut answer));
    read.map_err(Failure::io("cannot ask"))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
