//! The commands that are to be sent, in the order in which they were decided, and the change stream that is wanted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::core::{Effect, Key, Look, Span};
use crate::protocol::{Name, Order, Row};

/// What is to be sent, and whether a thread sends.
#[derive(Default)]
pub(super) struct Commands {
    pub(super) waiting: VecDeque<Command>,
    pub(super) are_sent: bool,
}

pub(super) enum Command {
    Run(Key, Vec<Row>, Order, Span),
    Look(Key, Vec<Look>, Span),
    Watch(u32, Option<Vec<Name>>),
    Unwatch,
    Idle,
}

impl Command {
    /// The command of an effect, if it is one.
    pub(super) fn of<C>(effect: Effect<C>) -> Option<Self> {
        Some(match effect {
            Effect::Run(flight, rows, order, limit) => Self::Run(flight, rows, order, limit),
            Effect::Look(flight, looks, limit) => Self::Look(flight, looks, limit),
            Effect::Watch(number, names) => Self::Watch(number, names),
            Effect::Unwatch => Self::Unwatch,
            Effect::Idle => Self::Idle,
            Effect::Notify(..) | Effect::Report(..) => return None,
        })
    }
}

/// The change stream that is wanted, and what ends the one that is read.
#[derive(Default)]
pub(super) struct Watched {
    pub(super) number: Option<u32>,
    pub(super) ended: Arc<AtomicBool>,
}
