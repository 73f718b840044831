//! A call and its hold: the state that its caller, its guard and its contexts share. In the core it is a cell.

mod held;
mod notices;
mod reports;

use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use tracing::Span;

use super::after::After;
use super::shared::Engine;
use crate::core::{self, Ended, Failure, Fault, Time};
use crate::few::Few;
use crate::meter::LockMeter;
use crate::options::Options;
use crate::protocol::Until;
use crate::store::LeaseId;
use crate::sync::lock;
use crate::{FencingToken, LossReason};

/// How a hold has ended, or the fault of the command that was to end it.
pub(super) type Outcome = Result<Ended, Option<Fault>>;

/// What a call is about.
pub(crate) struct About {
    /// The names of its locks, in their order; that of a semaphore.
    pub(crate) names: Few<Arc<str>>,
    /// The place of the name that stands for a set in errors and events.
    pub(crate) title: usize,
    pub(crate) template: Option<&'static str>,
    pub(crate) options: Arc<Options>,
    /// The token of the detached lease that it resumes.
    pub(crate) resumes: Option<FencingToken>,
}

/// One call, and then its hold, shared by its guard, its contexts and the core.
///
/// The mutex of its state is the last one in the lock order: the core's notifications lock it under the core's mutex.
pub(crate) struct Lease {
    pub(crate) engine: Arc<Engine>,
    pub(crate) about: About,
    /// That of the caller: what happens later belongs to it, whichever task finds it out.
    pub(super) span: Span,
    pub(super) meter: LockMeter,
    /// It is on the heap, because most waiters wait for long.
    granted: OnceLock<Box<Granted>>,
    state: Mutex<State>,
}

/// The data of a call that has its locks.
struct Granted {
    hold: core::Hold,
    /// The claims, in the order of their names.
    keys: Few<LeaseId>,
    tokens: Few<i64>,
    mark: Option<Until>,
    has_waited: bool,
    at: Time,
}

#[derive(Default)]
struct State {
    step: Step,
    /// How the hold has ended that its holder has ended.
    ended: Option<Outcome>,
    /// The number of commits on their way to the server, under this hold or a nested one: bodies are not cancelled until it is zero.
    shields: u32,
    /// The number of commits that have begun under this hold and not ended.
    commits: u32,
    /// Whether a guarded commit has succeeded.
    has_committed: bool,
    is_outcome_unknown: bool,
    /// The failure of the last command that should have ended the hold.
    fault: Option<Fault>,
    /// Whether a transaction with an unknown outcome was made; set when the outcome is final.
    committed: Option<bool>,
    wakers: Vec<Waker>,
}

#[derive(Default)]
enum Step {
    #[default]
    Waits,
    /// The caller was dropped; a hold that it would get ends.
    Left,
    Failed(Box<Failure>),
    Held {
        until: Time,
        /// The end of the lease at the server, even if a mark that may have been made ends it earlier for the holder.
        lasts: Time,
        /// Whether the lease was found to be over; it then stays over.
        is_over: bool,
    },
    /// The holder has ended the hold; the lease lasts until this time.
    Ending(How, Time),
    /// The lease is being detached with this id, and the caller was dropped.
    Discarded(Arc<str>),
    Released,
    /// The work is marked as done, or the lease is detached: nothing is left to release.
    Done,
    Lost(LossReason),
}

/// How a holder ends its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Release,
    Mark,
    Detach,
}

impl How {
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
        let mut after = After::default();
        {
            let state = &mut *lock(&self.0.state);
            state.shields -= 1;
            // A body that waits for its cancellation checks again.
            after.wake(&mut state.wakers);
        }
        after.run();
    }
}
