//! Standard output: lines are buffered, and the program ends without an error when the reader has closed the pipe.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use mongolock::{LeaseHandle, LockInfo, LockState};

use crate::failure::Failure;
use crate::text::{escaped, short};

/// Standard output of this process.
pub(crate) struct StandardOutput {
    out: BufWriter<StdoutLock<'static>>,
    is_terminal: bool,
}

impl StandardOutput {
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

    /// The columns of the terminal; `None` if the output is not a terminal, or its width is unknown.
    pub(crate) fn columns(&self) -> Option<usize> {
        let size = self
            .is_terminal
            .then(|| rustix::termios::tcgetwinsize(io::stdout()));
        let columns = usize::from(size?.ok()?.ws_col);
        (columns > 0).then_some(columns)
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

/// The name, and the number of a permit.
pub(crate) fn name_of(info: &LockInfo) -> String {
    match info.permit {
        Some(number) => format!("{} #{number}", escaped(&info.name)),
        None => escaped(&info.name).into_owned(),
    }
}

/// The names of a detached lease, and the number of a permit.
pub(crate) fn names_of(handle: &LeaseHandle) -> String {
    let names = handle.names().map(escaped).collect::<Vec<_>>().join(", ");
    match handle.permit() {
        Some(number) => format!("{names} #{number}"),
        None => names,
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

/// The reason why a lock is taken: a hold, a mark of finished work, or the rest of a minimum hold.
pub(crate) fn taken(info: &LockInfo) -> String {
    let owner = info.owner.as_deref().unwrap_or("an unknown owner");
    let (owner, left) = (escaped(owner), short(info.remaining));
    match info.state {
        LockState::Held if info.detached => format!("held by {owner}, detached, for another {left}"),
        LockState::Done => format!("done by {owner}, for another {left}"),
        LockState::Held => format!("held by {owner}, lease valid for another {left}"),
        _ => format!("{}, and kept for another {left}", state(info.state)),
    }
}
