use std::sync::Arc;

use super::{Entry, Turn};

/// What a hold keeps of its queue until the server has confirmed the release.
pub(crate) enum QueueSlot<H> {
    /// The turn: when it is dropped, the next waiter in this process has it.
    Turn(Turn<H>),
    /// The entry alone: only a shutdown waits until it is dropped.
    Entry {
        entry: Arc<Entry<H>>,
    },
    /// The slots of the names of a set, in their order.
    Several(Vec<QueueSlot<H>>),
    Nothing,
}

impl<H> QueueSlot<H> {
    /// The turns among the slots.
    pub(crate) fn turns(&self) -> impl Iterator<Item = &Turn<H>> {
        let slots = match self {
            Self::Several(slots) => &slots[..],
            _ => std::slice::from_ref(self),
        };
        slots.iter().filter_map(|slot| match slot {
            Self::Turn(turn) => Some(turn),
            _ => None,
        })
    }

    /// Takes the turn of the first name out, so that the hold can pass to the next caller of that queue; the slots of the
    /// other names stay with the hold. The whole slot comes back if one of the turns is missing.
    pub(crate) fn take_first_turn(self) -> Result<(Turn<H>, Self), Self> {
        let is_turn = |slot: &Self| matches!(slot, Self::Turn(_));
        match self {
            Self::Turn(turn) => Ok((turn, Self::Nothing)),
            Self::Several(mut slots) if slots.iter().all(is_turn) => {
                let first = slots
                    .first_mut()
                    .map(|slot| std::mem::replace(slot, Self::Nothing));
                match first {
                    Some(Self::Turn(turn)) => Ok((turn, Self::Several(slots))),
                    _ => Err(Self::Several(slots)),
                }
            }
            other => Err(other),
        }
    }

    /// Puts the turn of the first name, or of the only one, into its place.
    pub(crate) fn put_first_turn(&mut self, turn: Turn<H>) {
        let first = match self {
            Self::Several(slots) => slots.first_mut(),
            one => Some(one),
        };
        if let Some(first) = first {
            *first = Self::Turn(turn);
        }
    }

    /// Notes that the server has confirmed the release. In the queue of a semaphore another caller may wait while the permit
    /// was held.
    pub(crate) fn note_freed(&self) {
        match self {
            Self::Entry { entry } => entry.freed.notify_one(),
            Self::Turn(turn) => turn.front().release_confirmed(),
            Self::Several(slots) => slots.iter().for_each(Self::note_freed),
            Self::Nothing => {}
        }
    }

    /// One slot for each of this number of names.
    pub(crate) fn split(self, names: usize) -> Vec<Self> {
        let mut slots = match self {
            Self::Several(slots) => slots,
            one => vec![one],
        };
        slots.resize_with(names, || Self::Nothing);
        slots
    }

    /// Passes the turn on, so that the next waiter in this process sends requests of its own; a shutdown still waits for
    /// the entry.
    pub(crate) fn without_turn(self) -> Self {
        match self {
            Self::Turn(turn) => Self::Entry {
                entry: Arc::clone(&turn.entry),
            },
            Self::Several(slots) => Self::Several(slots.into_iter().map(Self::without_turn).collect()),
            other => other,
        }
    }
}
