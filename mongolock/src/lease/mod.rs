//! One hold of a lock, from its grant to its end.
//!
//! Who decides that a lease is lost, and what is told:
//!
//! | reason | decided by | when |
//! |---|---|---|
//! | expired | [`renewer`] | the deadline passes on this process's clock without a confirmed renewal |
//! | gone | [`renewal`], a guarded commit | the server no longer has the claim |
//! | shut down | [`renewer`] | the provider is shut down |
//!
//! A release that finds the claim gone is reported as "gone" by [`release`], after the lease has ended.

pub(crate) mod background_release;
mod commits;
pub(crate) mod copies;
pub(crate) mod given_up;
mod hold;
pub(crate) mod release;
mod renewal;
pub(crate) mod renewer;
mod schedule;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use commits::Commits;
pub(crate) use commits::{CancelShield, OpenCommit};
pub(crate) use hold::Hold;

use crate::lease::copies::Copies;
use crate::store::LeaseId;
use crate::sync::lock;
use crate::trace::{self, HoldFields};
use crate::{FencingToken, LockError};

/// The waiters of this process hand holds on to one another.
pub(crate) type Queues = crate::queue::Queues<Hold>;
pub(crate) type Entry = crate::queue::Entry<Hold>;
pub(crate) type Turn = crate::queue::Turn<Hold>;
pub(crate) type QueueSlot = crate::queue::QueueSlot<Hold>;

/// What the server granted.
pub(crate) struct Grant {
    pub(crate) token: FencingToken,
    /// The last of the tokens that were reserved for holds that are handed over in this process.
    pub(crate) last_token: FencingToken,
    /// Given if a request of the claim may still take effect: its id is released late as well then.
    pub(crate) copies: Option<Arc<Copies>>,
    /// Read before the request was sent: the lease cannot have begun earlier.
    pub(crate) sent: Instant,
    /// How long from `sent` the holder may count on the lease.
    pub(crate) lasts: Duration,
}

/// The part of the options that a lease needs while it is held.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LeaseOptions {
    pub(crate) expiry: Duration,
    pub(crate) renew_interval: Duration,
    pub(crate) min_hold: Duration,
    pub(crate) max_hold: Option<Duration>,
}

/// Why a lease ended without a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossReason {
    Expired,
    Gone,
    ShutDown,
}

impl LossReason {
    /// As events spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::ShutDown => "shut_down",
        }
    }
}

/// One hold of a lock in this process: shared by its guard, its contexts and the renewal.
///
/// A lease is live until it is released or lost, or until its deadline passes on the monotonic clock. It never comes
/// back: clock and state are read together, and a renewal that is confirmed after the deadline is refused.
pub(crate) struct Lease {
    pub(crate) key: LeaseId,
    pub(crate) token: FencingToken,
    pub(crate) options: LeaseOptions,
    /// When this hold began.
    pub(crate) acquired: Instant,
    last_token: FencingToken,
    /// When the claim was won: this hold's own beginning, or that of the first in a row that was handed over.
    claimed: Instant,
    state: Mutex<State>,
    changed: Notify,
    /// The slot is here and not in the guard: a lease that is lost must not keep the name from this process's other callers.
    slot: Mutex<QueueSlot>,
    copies: Option<Arc<Copies>>,
    /// A renewal was sent and not confirmed: the claim may stand longer than this process knows.
    unconfirmed: AtomicBool,
    /// A caller has got the guard: from then on a minimum hold applies.
    delivered: AtomicBool,
    commits: Commits,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Live {
        /// When the holder stops counting on the lease.
        deadline: Instant,
    },
    Released,
    Lost,
}

impl Lease {
    pub(crate) fn new(key: LeaseId, grant: Grant, options: LeaseOptions, entry: Arc<Entry>) -> Self {
        Self {
            key,
            token: grant.token,
            options,
            acquired: grant.sent,
            last_token: grant.last_token,
            claimed: grant.sent,
            state: Mutex::new(State::Live {
                deadline: grant.sent + counted(grant.lasts),
            }),
            changed: Notify::new(),
            slot: Mutex::new(QueueSlot::Entry { _entry: entry }),
            copies: grant.copies,
            unconfirmed: AtomicBool::new(false),
            delivered: AtomicBool::new(false),
            commits: Commits::default(),
        }
    }

    /// The next hold on the same claim, by another caller in this process: with a token of its own, and with what is
    /// left of the lease.
    pub(crate) fn successor(&self, deadline: Instant) -> Option<Self> {
        let token = FencingToken::new(self.token.get() + 1);
        (token <= self.last_token).then(|| Self {
            key: self.key.clone(),
            token,
            options: self.options,
            acquired: Instant::now(),
            last_token: self.last_token,
            claimed: self.claimed,
            state: Mutex::new(State::Live { deadline }),
            changed: Notify::new(),
            slot: Mutex::new(QueueSlot::Nothing),
            copies: self.copies.clone(),
            unconfirmed: AtomicBool::new(self.may_outlive_deadline()),
            delivered: AtomicBool::new(false),
            commits: Commits::default(),
        })
    }

    pub(crate) fn claimed(&self) -> Instant {
        self.claimed
    }

    /// The part of the id before the last `#`.
    pub(crate) fn owner(&self) -> &str {
        let id = &*self.key.lock_id;
        id.rsplit_once('#').map_or(id, |(owner, _)| owner)
    }

    /// When the request was sent that last confirmed the lease.
    pub(crate) fn confirmed(&self) -> Instant {
        let deadline = self.deadline().unwrap_or(self.acquired);
        deadline
            .checked_sub(counted(self.options.expiry))
            .unwrap_or(self.acquired)
    }

    /// When the holder stops counting on the lease; `None` once it has ended.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match *lock(&self.state) {
            State::Live { deadline } => Some(deadline),
            State::Released | State::Lost => None,
        }
    }

    /// Whether the lease is over: by release, by loss, or because its deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Whether it has ended without a release.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(*lock(&self.state), State::Lost)
    }

    pub(crate) fn remaining(&self) -> Duration {
        let state = lock(&self.state);
        // The clock is read under the lock, so that what was over once stays over.
        match *state {
            State::Live { deadline } => deadline.saturating_duration_since(Instant::now()),
            State::Released | State::Lost => Duration::ZERO,
        }
    }

    pub(crate) fn ensure_held(&self) -> Result<(), LockError> {
        if self.is_over() {
            Err(self.lost_error())
        } else {
            Ok(())
        }
    }

    pub(crate) fn lost_error(&self) -> LockError {
        LockError::Lost {
            name: self.key.name.to_string(),
            token: self.token,
        }
    }

    /// Resolves once the lease is over.
    pub(crate) async fn until_over(&self) {
        self.until(Self::is_over).await;
    }

    /// A renewal is sent.
    pub(crate) fn renewal_sent(&self) {
        self.unconfirmed.store(true, Ordering::Relaxed);
    }

    /// Whether the claim may stand at the server after the lease has run out here.
    pub(crate) fn may_outlive_deadline(&self) -> bool {
        self.unconfirmed.load(Ordering::Relaxed)
    }

    /// Counts from the moment in which the confirmed renewal was sent; of two renewals the one that was sent later
    /// decides. A lease that is over stays over.
    pub(crate) fn extend(&self, sent: Instant) {
        let mut state = lock(&self.state);
        if let State::Live { deadline } = &mut *state
            && *deadline > Instant::now()
        {
            *deadline = (*deadline).max(sent + counted(self.options.expiry));
            self.unconfirmed.store(false, Ordering::Relaxed);
        }
    }

    /// Ends the lease if its deadline has passed, and says whether it is lost now.
    pub(crate) fn expire(&self) -> bool {
        if self.is_over() {
            self.end(LossReason::Expired);
        }
        self.is_lost()
    }

    /// Ends a live lease without a release: wakes those who wait for its end, passes the turn on, and reports the loss.
    pub(crate) fn end(&self, reason: LossReason) {
        if self.finish(State::Lost).is_none() {
            return;
        }
        self.changed.notify_waiters();
        let is_awaited = reason == LossReason::Expired && self.may_outlive_deadline();
        let mut slot = lock(&self.slot);
        let ended = std::mem::replace(&mut *slot, QueueSlot::Nothing);
        if is_awaited {
            // A shutdown waits until the claim is released. Not a moment without it: the renewer may come to take it.
            *slot = ended.without_turn();
            drop(slot);
        } else {
            drop(slot);
            drop(ended);
        }
        trace::lost(&self.fields(), reason.name());
    }

    /// Ends the lease for a release and returns the deadline it had; `None` when it was over before.
    pub(crate) fn begin_release(&self) -> Option<Instant> {
        if self.is_over() {
            self.end(LossReason::Expired);
            return None;
        }
        let deadline = self.finish(State::Released)?;
        self.changed.notify_waiters();
        Some(deadline)
    }

    /// The caller has the lock now, and keeps its turn for as long as it holds it.
    pub(crate) fn deliver(&self, turn: Turn) {
        self.delivered.store(true, Ordering::Relaxed);
        self.put_slot(QueueSlot::Turn(turn));
        if self.deadline().is_none() {
            drop(self.take_slot());
        }
    }

    pub(crate) fn put_slot(&self, slot: QueueSlot) {
        *lock(&self.slot) = slot;
    }

    /// What is to be given up once the server has been told.
    pub(crate) fn take_slot(&self) -> QueueSlot {
        std::mem::replace(&mut *lock(&self.slot), QueueSlot::Nothing)
    }

    /// A hold that no caller has got has no minimum.
    pub(crate) fn min_hold(&self) -> Duration {
        if self.delivered.load(Ordering::Relaxed) {
            self.options.min_hold
        } else {
            Duration::ZERO
        }
    }

    /// The requests of the claim, if one of them may take effect after the claim has ended.
    pub(crate) fn copies(&self) -> Option<&Arc<Copies>> {
        self.copies.as_ref()
    }

    /// The claim is released from now on, and a request of it that takes effect later has to be noticed.
    pub(crate) fn claim_ends(&self) {
        if let Some(copies) = &self.copies {
            copies.begin_release();
        }
    }

    /// Whether the hold came from another caller in this process, without a word to the server.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.claimed < self.acquired
    }

    /// Whether a renewal may be sent at this moment: not beyond the cap.
    pub(crate) fn is_renewable(&self, at: Instant) -> bool {
        self.options.max_hold.is_none_or(|cap| at < self.acquired + cap)
    }

    pub(crate) fn fields(&self) -> HoldFields<'_> {
        HoldFields {
            name: &self.key.name,
            owner: self.owner(),
            token: self.token,
            acquired: self.acquired,
        }
    }

    /// Looks again at every change, and at the deadline.
    async fn until(&self, ended: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if ended(self) {
                return;
            }
            match self.deadline().filter(|deadline| *deadline > Instant::now()) {
                Some(deadline) => drop(tokio::time::timeout_at(deadline, changed).await),
                None => changed.await,
            }
        }
    }

    /// Ends a live lease and returns the deadline it had.
    fn finish(&self, end: State) -> Option<Instant> {
        let mut state = lock(&self.state);
        let State::Live { deadline } = *state else {
            return None;
        };
        *state = end;
        Some(deadline)
    }
}

/// The part of a lease that its holder counts on.
pub(crate) fn counted(lasts: Duration) -> Duration {
    lasts.saturating_sub(margin(lasts))
}

/// How much less than the server gives that is: one percent and two milliseconds, for clocks that do not run alike and
/// for the server's times, which are whole milliseconds.
pub(crate) fn margin(lasts: Duration) -> Duration {
    lasts / 100 + Duration::from_millis(2)
}
