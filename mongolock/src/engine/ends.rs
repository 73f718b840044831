//! How what the core waits for ends.

use std::sync::{Arc, Weak};

use super::lease::Lease;
use super::shared::Engine;
use crate::core::Event;

/// What the core waits for ends once, also what its runtime has ended: a command, or the change stream.
pub(super) struct Ends {
    engine: Weak<Engine>,
    /// What has happened if it ends without another event.
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

    /// The core need not know, or learns it otherwise.
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
