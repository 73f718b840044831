//! The queue of commands that are to be sent, in the order of the decisions, and the change stream that is to be open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::lease::Lease;
use crate::core::Effect;

/// The commands that are to be sent, and whether a thread is sending them.
#[derive(Default)]
pub(super) struct Commands {
    pub(super) waiting: VecDeque<Command>,
    pub(super) are_sent: bool,
}

/// An effect of the core that is a command, and not a notification of a caller.
pub(super) type Command = Effect<Arc<Lease>>;

/// The change stream that is to be open, and the flag that ends the present one.
#[derive(Default)]
pub(super) struct Watched {
    pub(super) number: Option<u32>,
    pub(super) ended: Arc<AtomicBool>,
}
