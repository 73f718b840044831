//! The commands that are to be sent, in the order in which they were decided, and the change stream that is wanted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::lease::Lease;
use crate::core::Effect;

/// What is to be sent, and whether a thread sends.
#[derive(Default)]
pub(super) struct Commands {
    pub(super) waiting: VecDeque<Command>,
    pub(super) are_sent: bool,
}

/// What the core wants to have done for no caller.
pub(super) type Command = Effect<Arc<Lease>>;

/// The change stream that is wanted, and what ends the one that is read.
#[derive(Default)]
pub(super) struct Watched {
    pub(super) number: Option<u32>,
    pub(super) ended: Arc<AtomicBool>,
}
