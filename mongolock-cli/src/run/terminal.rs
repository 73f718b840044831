//! The foreground of the terminal, from the side of `run`.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::Pid;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::group::own_group;

/// The terminal that the command uses for both its input and its output.
pub(super) struct Foreground {
    /// The group of `run`.
    own: Pid,
}

impl Foreground {
    /// The terminal, if standard input and output are the same one, and `run` is in its foreground. In a pipeline the
    /// foreground stays with the other programs, such as a pager.
    pub(super) fn find() -> Option<Self> {
        let (input, output) = (io::stdin(), io::stdout());
        let device = |fd: &dyn AsFd| rustix::fs::fstat(fd.as_fd()).map(|stat| stat.st_rdev);
        let is_one = input.is_terminal() && output.is_terminal() && device(&input) == device(&output);
        // A group outside the PID namespace could not be put back.
        let foreground = Self { own: own_group()? };
        (is_one && foreground.is_own()).then_some(foreground)
    }

    /// The group of `run`.
    pub(super) fn own(&self) -> Pid {
        self.own
    }

    /// Whether the group of `run` is in the foreground.
    pub(super) fn is_own(&self) -> bool {
        tcgetpgrp(io::stdin()) == Ok(self.own)
    }

    /// Puts a group into the foreground; `run` must be in it.
    pub(super) fn give_to(group: Pid) -> io::Result<()> {
        Ok(tcsetpgrp(io::stdin(), group)?)
    }

    /// Puts the group of `run` back, if this group is in the foreground.
    pub(super) fn take_back_from(&self, group: Pid) {
        if tcgetpgrp(io::stdin()) != Ok(group) {
            return;
        }
        // A background process that changes the foreground is stopped, unless it blocks this signal.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        if stop.thread_block().is_ok() {
            let _ = tcsetpgrp(io::stdin(), self.own);
            let _ = stop.thread_unblock();
        }
    }
}
