//! Makes sure that everything the core waits for ends.

use std::sync::{Arc, Weak};

use super::state::{Engine, Event};

/// A command, the change stream or a shutdown, which must end exactly once for the core, also if its runtime ends or its future is
/// dropped: if it ends without another event, this one is applied.
pub(super) struct Ends<F: FnOnce() -> Event>(Weak<Engine>, Option<F>);

impl<F: FnOnce() -> Event> Ends<F> {
    pub(super) fn new(engine: &Arc<Engine>, otherwise: F) -> Self {
        Self(Arc::downgrade(engine), Some(otherwise))
    }

    /// The core does not need this event, or gets another one.
    pub(super) fn disarm(mut self) {
        self.1 = None;
    }
}

impl<F: FnOnce() -> Event> Drop for Ends<F> {
    fn drop(&mut self) {
        if let (Some(engine), Some(event)) = (self.0.upgrade(), self.1.take()) {
            engine.apply(event());
        }
    }
}
