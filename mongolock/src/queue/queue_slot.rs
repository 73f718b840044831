use std::sync::Arc;

use super::{Entry, Turn};

/// What a hold keeps of the queue of one name until the server has confirmed the release.
#[derive(Default)]
pub(crate) enum QueueSlot<H> {
    /// The turn: when it is dropped, the next waiter in this process has it.
    Turn(Turn<H>),
    /// The entry alone: only a shutdown waits until it is dropped.
    Entry { entry: Arc<Entry<H>> },
    #[default]
    Nothing,
}

impl<H> QueueSlot<H> {
    /// Notes that the server has confirmed the release. In the queue of a semaphore another caller may wait while the permit
    /// was held.
    pub(crate) fn note_freed(&self) {
        match self {
            Self::Entry { entry } => entry.freed.notify_one(),
            Self::Turn(turn) => turn.front().release_confirmed(),
            Self::Nothing => {}
        }
    }

    /// Another slot for the same queue, for which only a shutdown waits.
    pub(crate) fn entry(&self) -> Self {
        match self {
            Self::Turn(Turn { entry, .. }) | Self::Entry { entry } => Self::Entry {
                entry: Arc::clone(entry),
            },
            Self::Nothing => Self::Nothing,
        }
    }

    /// Passes the turn on, so that the next waiter in this process sends requests of its own; a shutdown still waits for
    /// the entry.
    pub(crate) fn pass_turn_on(&mut self) {
        if let Self::Turn(turn) = self {
            let entry = Arc::clone(&turn.entry);
            *self = Self::Entry { entry };
        }
    }
}
