//! What may happen next.

use crate::lease::EndOfHold;
use crate::network::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A caller calls: its process, and its number there.
    Call(usize, usize),
    /// The call of such a caller is cancelled.
    Cancel(usize, usize),
    /// Such a caller ends its hold.
    End(usize, usize, EndOfHold),
    /// The message of this number arrives.
    Deliver(usize),
    Lose(usize),
    /// The command ends with this error.
    Fail(usize, Failure),
    /// The connection of an acquire request ends with an unclear error, and the request may still arrive.
    Cut(usize),
    /// The driver repeats the command.
    Repeat(usize),
    StopStream(usize),
    Crash(usize),
    /// It is the next time at which something is due.
    TimePasses,
}

impl Step {
    /// Whether a random run takes it seldom.
    pub(crate) fn is_fault(self) -> bool {
        matches!(
            self,
            Self::Cancel(..)
                | Self::Lose(_)
                | Self::Fail(..)
                | Self::Cut(_)
                | Self::Repeat(_)
                | Self::StopStream(_)
                | Self::Crash(_)
        )
    }

    /// The message that it concerns.
    pub(crate) fn message(self) -> Option<usize> {
        match self {
            Self::Deliver(at) | Self::Lose(at) | Self::Fail(at, _) | Self::Cut(at) | Self::Repeat(at) => {
                Some(at)
            }
            _ => None,
        }
    }
}
