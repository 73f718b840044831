//! A call and its hold: the state that its caller, its guard and its contexts share. In the core it is a cell.

use std::sync::{Arc, Mutex, OnceLock};

use tracing::Span;

use super::after;
use super::state::{About, Engine, How, Lease};
use crate::core::Ending;
use crate::sync::lock;

impl How {
    pub(super) fn of(ending: &Ending) -> Self {
        match ending {
            Ending::Release | Ending::Untaken => Self::Release,
            Ending::Done => Self::Mark,
            Ending::Detach(..) => Self::Detach,
        }
    }

    /// The name of its request in errors and events.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Mark => "mark",
            Self::Detach => "detachment",
        }
    }
}

impl Lease {
    pub(super) fn new(engine: &Arc<Engine>, about: About) -> Arc<Self> {
        Arc::new(Self {
            engine: Arc::clone(engine),
            span: Span::current(),
            meter: engine.meter.of(about.template),
            about,
            granted: OnceLock::new(),
            state: Mutex::default(),
        })
    }

    pub(crate) fn shield(self: &Arc<Self>) -> CancelShield {
        lock(&self.state).shields += 1;
        CancelShield(Arc::clone(self))
    }
}

/// Keeps the bodies under a hold from being cancelled for as long as it lives.
pub(crate) struct CancelShield(Arc<Lease>);

impl Drop for CancelShield {
    fn drop(&mut self) {
        {
            let state = &mut *lock(&self.0.state);
            state.shields -= 1;
            // A body that waits for its cancellation checks again.
            after::wake(&mut state.wakers);
        }
        after::run();
    }
}
