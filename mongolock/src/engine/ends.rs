//! Makes sure that everything the core waits for ends.

use std::sync::{Arc, Weak};

use super::state::{Engine, Lease};
use crate::core::Event;

/// A command or the change stream, which must end exactly once for the core, also if its runtime ends.
pub(super) struct Ends {
    engine: Weak<Engine>,
    /// The event that is applied if it ends without another event.
    otherwise: Option<Box<dyn FnOnce() -> Event<Arc<Lease>> + Send>>,
}

impl Ends {
    pub(super) fn new(
        engine: &Arc<Engine>,
        otherwise: impl FnOnce() -> Event<Arc<Lease>> + Send + 'static,
    ) -> Self {
        Self {
            engine: Arc::downgrade(engine),
            otherwise: Some(Box::new(otherwise)),
        }
    }

    /// The core does not need this event, or gets another one.
    pub(super) fn disarm(mut self) {
        self.otherwise = None;
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if let (Some(engine), Some(event)) = (self.engine.upgrade(), self.otherwise.take()) {
            engine.apply(event());
        }
    }
}
