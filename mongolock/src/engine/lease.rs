//! A call and its hold: the state that its caller, its guard and its contexts share. In the core it is a cell.

mod held;
mod notices;
mod reports;

use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use super::after::After;

use super::clock::Moment;
use crate::core::{self, Ended, Failure, Fault, Time};
use crate::few::Few;
use crate::meter::LockMeter;
use crate::options::Options;
use crate::protocol::Until;
use crate::store::LeaseId;
use crate::sync::lock;
use crate::{FencingToken, LossReason};

/// The fixed data of a call.
pub(crate) struct About {
    /// The names of its locks, in their order; for permits the name of the semaphore.
    pub(super) names: Few<Arc<str>>,
    /// The index of the name that represents a set in errors and events.
    pub(super) title: usize,
    pub(super) template: Option<&'static str>,
    pub(super) options: Arc<Options>,
    /// The token of the detached lease that it resumes.
    pub(super) resumes: Option<FencingToken>,
    /// The span of the caller: later events belong to it, whichever task reports them.
    pub(super) span: tracing::Span,
    pub(super) meter: LockMeter,
}

/// One call, and then its hold, shared by its guard, its contexts and the core.
///
/// The mutex of its state is the last one in the lock order: the core's notifications lock it under the core's mutex.
pub(crate) struct Lease {
    about: About,
    /// The data is on the heap, because most waiters wait for long without it.
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
    at: Moment,
}

#[derive(Default)]
struct State {
    step: Step,
    /// The result, after its holder has ended the hold.
    ended: Option<Result<Ended, Option<Fault>>>,
    /// The number of commits in flight, under this hold or a nested one: bodies are not cancelled until it is zero.
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
    pub(super) fn new(about: About) -> Arc<Self> {
        Arc::new(Self {
            about,
            granted: OnceLock::new(),
            state: Mutex::default(),
        })
    }
}

/// While it exists, the bodies under a hold are not cancelled.
pub(crate) struct CancelShield(Arc<Lease>);

impl Lease {
    pub(crate) fn shield(self: &Arc<Self>) -> CancelShield {
        lock(&self.state).shields += 1;
        CancelShield(Arc::clone(self))
    }
}

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
