//! Standard output: lines that are buffered, and end quietly when nobody reads them any more.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use mongolock::{LockInfo, LockState};

use crate::failure::Failure;
use crate::text::{escaped, short};

/// Standard output of this process.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    is_terminal: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        let out = io::stdout();
        Self {
            is_terminal: out.is_terminal(),
            out: BufWriter::new(out.lock()),
        }
    }

    /// Whether a person reads it.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes a line. To a terminal it is written at once.
    pub(crate) fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        let written = writeln!(self.out, "{line}");
        let written = written.and_then(|()| {
            if self.is_terminal {
                self.out.flush()
            } else {
                Ok(())
            }
        });
        written.map_err(|error| Failure::output(&error))
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::output(&error))
    }
}

/// The heading of a list of locks. The widths are fixed, because a list is printed while it is read.
pub(crate) fn heading() -> String {
    columns("STATE", "REMAINING", "WAITERS", "OWNER", "NAME")
}

/// A lock as a line of a list.
pub(crate) fn row(info: &LockInfo) -> String {
    let owner = info.owner.as_deref().map_or_else(|| "-".into(), escaped);
    let remaining = if info.remaining.is_zero() {
        "-".to_owned()
    } else {
        short(info.remaining)
    };
    let waiters = match info.waiters.len() {
        0 => "-".to_owned(),
        number => number.to_string(),
    };
    columns(state(info.state), &remaining, &waiters, &owner, &name_of(info))
}

/// A document that cannot be read, as a line of a list.
pub(crate) fn damaged_row(name: &str, problem: &str) -> String {
    let name = format!("{}: {}", escaped(name), escaped(problem));
    columns("damaged", "-", "-", "-", &name)
}

/// The name, and the number of a permit.
pub(crate) fn name_of(info: &LockInfo) -> String {
    match info.permit {
        Some(number) => format!("{} #{number}", escaped(&info.name)),
        None => escaped(&info.name).into_owned(),
    }
}

/// The word for a state, as `--json` has it.
pub(crate) fn state(state: LockState) -> &'static str {
    match state {
        LockState::Held => "held",
        LockState::Expired => "expired",
        LockState::Released => "released",
        LockState::Done => "done",
        _ => "unknown",
    }
}

fn columns(state: &str, remaining: &str, waiters: &str, owner: &str, name: &str) -> String {
    format!("{state:<8}  {remaining:>9}  {waiters:>7}  {owner:<24}  {name}")
}
