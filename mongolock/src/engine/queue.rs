//! The queue of commands that are to be sent, in the order of the decisions, and the change stream that is to be open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::lease::Lease;
use crate::core::Effect;

/// What the core wants to have done for no caller.
pub(super) type Command = Effect<Arc<Lease>>;

/// What is to be sent.
#[derive(Default)]
pub(super) struct Commands {
    pub(super) waiting: VecDeque<Command>,
    /// Whether a thread sends.
    pub(super) are_sent: bool,
    /// The number of the change stream that is wanted.
    pub(super) stream: Option<u32>,
    /// Ends the change stream that is read.
    pub(super) stream_ended: Arc<AtomicBool>,
}
