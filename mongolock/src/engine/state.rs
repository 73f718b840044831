//! The state of a provider, of its commands, and of each call with its hold.

use std::any::Any;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Span;

use super::clock::Clock;
use crate::core::{self, CallFailure, Core, Effect, EndResult, Time};
use crate::few::Few;
use crate::home::Home;
use crate::meter::{LockMeter, Meter};
use crate::options::{Config, OnBusy, Options};
use crate::probe::Probe;
use crate::protocol::Until;
use crate::store::{LeaseId, Store};
use crate::{FencingToken, LossReason};

/// The state that all clones of a provider, its locks and its leases share.
pub(crate) struct Engine {
    pub(super) core: Mutex<Decider>,
    pub(crate) store: Arc<Store>,
    pub(crate) probe: Probe,
    pub(crate) config: Config,
    pub(crate) owner: Arc<str>,
    /// The mark of this provider, which is in the id of each of its claims.
    pub(super) mark: [u8; 6],
    pub(crate) meter: Meter,
    /// The number of calls that wait for a lock.
    pub(crate) waiting: AtomicUsize,
    /// What every hold from then on keeps alive: the blocking provider. There is one at most.
    pub(crate) keeper: OnceLock<Weak<dyn Any + Send + Sync>>,
    pub(super) clock: Clock,
    /// The runtime of its tasks; without one, they run on the runtimes of its callers.
    pub(super) home: Option<Handle>,
    /// The thread of a provider that has made its client. Its runtime lives as long as this.
    pub(super) thread: Option<Arc<Home>>,
    /// The time of the timer in microseconds of the clock; the greatest number if no timer is set.
    pub(super) armed: AtomicI64,
    pub(super) rearmed: Arc<Notify>,
    pub(super) tasks: Mutex<Tasks>,
    /// The commands that wait to be sent.
    pub(super) commands: Mutex<SerialQueue<Command>>,
    /// Notified when nothing is held, awaited or being released.
    pub(super) idle: Notify,
    /// The first and the last of the refusals of the user that follow each other.
    pub(super) refusals: Mutex<Option<(Instant, Instant)>>,
    /// The id of the process that created this provider. In a forked process there are no tasks, and a mutex may stay locked for
    /// ever.
    pub(super) process: u32,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockProvider")
            .field("owner", &self.owner)
            .field("options", &self.config.options)
            .finish_non_exhaustive()
    }
}

/// The core, and data that is used with it under its mutex.
pub(super) struct Decider {
    pub(super) core: Core<Arc<Lease>>,
    /// The names for which the warning was reported.
    pub(super) warned: HashSet<Arc<str>>,
    /// The time of the last confirmed renewal.
    pub(super) renewed: Option<Time>,
}

/// The tasks of a provider. They end with their runtimes, and a later call starts them again.
#[derive(Default)]
pub(super) struct Tasks {
    pub(super) timer: Option<JoinHandle<()>>,
    /// The task that keeps the TTL index.
    pub(super) index: Option<JoinHandle<()>>,
}

/// The operating system as the source of random numbers, so that a copied process never repeats an id.
pub(super) struct System;

/// An event of the core.
pub(super) type Event = core::Event<Arc<Lease>>;

/// An effect of the core that concerns no caller.
pub(super) type Command = Effect<Arc<Lease>>;

/// Values that are handled in their order, by one loop at a time.
pub(super) struct SerialQueue<T> {
    pub(super) waiting: VecDeque<T>,
    /// Whether a loop handles them.
    is_handled: bool,
}

impl<T> SerialQueue<T> {
    pub(super) const EMPTY: Self = Self {
        waiting: VecDeque::new(),
        is_handled: false,
    };

    /// The next value of a loop; `None` also for one that begins while another one handles the values.
    pub(super) fn next(&mut self, is_begin: bool) -> Option<T> {
        if is_begin && self.is_handled {
            return None;
        }
        let next = self.waiting.pop_front();
        self.is_handled = next.is_some();
        next
    }

    /// Ends the loop, which cannot handle this value.
    pub(super) fn put_back(&mut self, value: T) {
        self.waiting.push_front(value);
        self.is_handled = false;
    }
}

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
    /// Whether the call is made under a hold, which a shutdown lets finish its work.
    pub(crate) is_inside_hold: bool,
    pub(crate) on_busy: OnBusy,
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
    /// It is on the heap, because most waiters wait for long. A set has it when it has all of its locks.
    pub(super) granted: OnceLock<Box<Granted>>,
    pub(super) state: Mutex<State>,
}

/// The data of a call that has its locks.
pub(crate) struct Granted {
    /// The hold as the core knows it.
    pub(crate) hold: core::Key,
    /// The claims, in the order of their names.
    pub(super) keys: Few<LeaseId>,
    pub(super) tokens: Few<i64>,
    /// Until when the mark of the work stands, if it may succeed only once.
    pub(crate) mark: Option<Until>,
    /// Whether the call has waited for another holder.
    pub(crate) has_waited: bool,
    pub(super) at: Time,
}

/// The part of a lease that changes.
#[derive(Default)]
pub(super) struct State {
    pub(super) step: Step,
    /// The number of commits on their way to the server, under this hold or a nested one: bodies are not cancelled until it is zero.
    pub(super) shields: u32,
    /// The number of commits that have begun under this hold and not ended.
    pub(super) commits: u32,
    /// Whether a guarded commit has succeeded.
    pub(super) has_committed: bool,
    pub(super) is_outcome_unknown: bool,
    /// Whether a transaction with an unknown outcome was made; set when the outcome is final.
    pub(super) committed: Option<bool>,
    pub(super) wakers: Vec<Waker>,
}

/// How far a call has come, and then its hold.
#[derive(Default)]
pub(super) enum Step {
    #[default]
    Waits,
    /// The caller was dropped; a hold that it would get ends.
    Left,
    Failed(Box<CallFailure>),
    Held {
        /// The time until which the holder relies on the lease; `None` if it was found to be over, and then it stays over.
        until: Option<Time>,
        /// The end of the lease at the server, even if a mark that may have been made ends it earlier for the holder.
        lasts: Time,
    },
    /// The holder has ended the hold; the lease lasts until this time. With the id with which the hold is being
    /// detached, if no caller will get its handle.
    Ending(How, Time, Option<Arc<str>>),
    Ended(EndResult),
    Lost(LossReason),
}

/// How a holder ends its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Release,
    Mark,
    Detach,
}
