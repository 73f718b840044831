//! The errors of a modelled run, under the names that the files of the library use.

use std::time::Duration;

/// What has ended a command of a process or a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LockError {
    /// The command may have been applied.
    Unclear,
    /// Another operation blocks the document.
    Blocked,
    /// A timeout or a busy lock.
    Told(Box<Busy>),
}

/// What a call learns of a lock that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Busy {
    pub(crate) holder: Option<String>,
    pub(crate) in_this_process: bool,
    pub(crate) held_for: Option<Duration>,
    pub(crate) remaining: Option<Duration>,
}

impl Busy {
    pub(crate) fn new(_: &str) -> Self {
        Self {
            holder: None,
            in_this_process: false,
            held_for: None,
            remaining: None,
        }
    }
}

impl LockError {
    pub(crate) fn timeout(busy: Busy, _: Duration) -> Self {
        Self::busy(busy)
    }

    pub(crate) fn busy(busy: Busy) -> Self {
        Self::Told(Box::new(busy))
    }

    /// No server of the explorer is overloaded.
    #[expect(clippy::unused_self)]
    pub(crate) fn is_rejection(&self) -> bool {
        false
    }
}
