//! One hold of a lock, from its grant to its end.
//!
//! What decides that a lease is lost, and the reason that is reported:
//!
//! | reason | decided by | when |
//! |---|---|---|
//! | expired | [`renewer`] | the deadline passes on this process's clock without a confirmed renewal |
//! | gone | [`renewal`], a guarded commit | the server no longer has the claim |
//! | shut down | [`renewer`] | the provider is shut down |
//!
//! A lease whose work has succeeded, and whose mark is requested, ends only by the reply to that request: [`completion`].
//!
//! A release that finds the claim gone is reported as "gone" by [`release`], after the lease has ended.

pub(crate) mod background_release;
mod book;
mod commits;
mod completion;
pub(crate) mod copies;
pub(crate) mod given_up;
mod hold;
pub(crate) mod release;
mod renewal;
pub(crate) mod renewer;
mod schedule;
mod set;
mod state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use commits::Commits;
pub(crate) use commits::{CancelShield, OpenCommit};
pub(crate) use hold::Hold;
pub(crate) use set::{Member, SetGrant};
use state::{LeaseState, Work};

use crate::lease::copies::Copies;
use crate::meter::LockMeter;
use crate::once::OnceGrant;
use crate::options::Options;
use crate::store::LeaseId;
use crate::sync::lock;
use crate::trace::HoldFields;
use crate::{FencingToken, LockError, slot};

/// The queues of this process, in which waiters hand holds over.
pub(crate) type Queues = crate::queue::Queues<Hold>;
pub(crate) type Entry = crate::queue::Entry<Hold>;
pub(crate) type Turn = crate::queue::Turn<Hold>;
pub(crate) type QueueSlot = crate::queue::QueueSlot<Hold>;
pub(crate) type RequestPermit = crate::queue::RequestPermit<Hold>;

/// What the server has granted to an acquire request.
pub(crate) struct Grant {
    /// The fencing token of the first hold.
    pub(crate) token: FencingToken,
    /// The last of the tokens that were reserved for hand-overs in this process.
    pub(crate) last_token: FencingToken,
    /// The acquire requests of the claim, if one of them may still take effect: then its id is released late as well.
    pub(crate) copies: Option<Copies>,
    /// The time before the request was sent: the lease cannot have begun earlier.
    pub(crate) sent: Instant,
    /// The time from `sent` for which the lease lasts.
    pub(crate) lasts: Duration,
    /// What decides when the work under the lease is due again, if it may succeed only once.
    pub(crate) once: Option<OnceGrant>,
    /// The name of the semaphore, if the lock is one of its permits.
    pub(crate) semaphore: Option<Arc<str>>,
}

/// One hold of a lock in this process, shared by its guard, its contexts and the renewer.
///
/// A lease is live until it is released or lost, or until its deadline passes on the monotonic clock. It never becomes
/// live again: clock and state are read together, and a renewal that is confirmed after the deadline is ignored.
pub(crate) struct Lease {
    /// The claim; of a set that of the name which the caller has written first.
    pub(crate) key: LeaseId,
    pub(crate) token: FencingToken,
    pub(crate) options: Arc<Options>,
    /// The time at which this hold began.
    pub(crate) acquired: Instant,
    /// The names of a set; empty for the lease of a single lock.
    members: Box<[Member]>,
    /// The name of the semaphore, if the lock is one of its permits.
    semaphore: Option<Arc<str>>,
    /// What decides when the work under the lease is due again, if it may succeed only once.
    pub(crate) once: Option<OnceGrant>,
    /// The last of the tokens that were reserved for hand-overs in this process.
    last_token: FencingToken,
    /// Whether the hold was handed over by another caller in this process, without a command.
    is_handed_over: bool,
    state: Mutex<LeaseState>,
    /// Notified when the lease ends, or when a body may be cancelled.
    changed: Notify,
    /// The slot in the queue. It is kept here and not in the guard, so that a lost lease passes its turn on at once.
    slot: Mutex<QueueSlot>,
    /// The acquire requests of the claim, if one of them may still take effect.
    copies: Option<Copies>,
    /// Whether a renewal was sent and not confirmed: the claim may last longer than this process knows.
    unconfirmed: AtomicBool,
    /// Whether a caller has received the hold: from then on a minimum hold applies.
    delivered: AtomicBool,
    /// Whether a shutdown has begun to release the claim.
    released_by_shutdown: AtomicBool,
    /// The error of a release that another operation blocks.
    blocked_release: OnceLock<Box<LockError>>,
    /// The template of the name that the caller has used, for the context that a guard makes when it is asked for it.
    template: OnceLock<&'static str>,
    /// The metrics of the caller that has received the hold; they are set while the lease is live.
    meter: OnceLock<LockMeter>,
    commits: Commits,
}

impl Lease {
    pub(crate) fn new(key: LeaseId, grant: Grant, options: Arc<Options>, entry: Arc<Entry>) -> Self {
        let deadline = grant.sent + without_margin(grant.lasts);
        let slot = QueueSlot::Entry { entry };
        Self {
            once: grant.once,
            semaphore: grant.semaphore,
            last_token: grant.last_token,
            copies: grant.copies,
            ..Self::beginning(key, grant.token, options, grant.sent, deadline, slot)
        }
    }

    /// A lease whose hold has just begun, without tokens for hand-overs.
    fn beginning(
        key: LeaseId,
        token: FencingToken,
        options: Arc<Options>,
        acquired: Instant,
        deadline: Instant,
        slot: QueueSlot,
    ) -> Self {
        Self {
            key,
            token,
            options,
            acquired,
            once: None,
            members: Box::default(),
            semaphore: None,
            last_token: token,
            is_handed_over: false,
            state: Mutex::new(LeaseState::Live {
                deadline,
                work: Work::UnderWay,
            }),
            changed: Notify::new(),
            slot: Mutex::new(slot),
            copies: None,
            unconfirmed: AtomicBool::new(false),
            delivered: AtomicBool::new(false),
            released_by_shutdown: AtomicBool::new(false),
            blocked_release: OnceLock::new(),
            template: OnceLock::new(),
            meter: OnceLock::new(),
            commits: Commits::default(),
        }
    }

    /// The template of the name that the caller has used.
    pub(crate) fn template(&self) -> Option<&'static str> {
        self.template.get().copied()
    }

    /// Sets the template, when the caller gets the hold.
    pub(crate) fn set_template(&self, template: Option<&'static str>) {
        if let Some(template) = template {
            self.template.get_or_init(|| template);
        }
    }

    /// The next hold on the same claims, for another caller in this process: it has tokens of its own and the rest of the
    /// lease. `None` if no reserved token is left for one of the names.
    pub(crate) fn successor(&self, deadline: Instant) -> Option<Self> {
        self.has_token_left().then(|| self.following(deadline, 1))
    }

    /// A hold on the same claims with the rest of the lease, whose tokens are greater by this number.
    fn following(&self, deadline: Instant, more: i64) -> Self {
        let later = |token: FencingToken| FencingToken::new(token.get() + more);
        let member = |member: &Member| Member {
            token: later(member.token),
            ..member.clone()
        };
        Self {
            once: self.once,
            members: self.members.iter().map(member).collect(),
            last_token: self.last_token,
            is_handed_over: true,
            copies: self.copies.clone(),
            unconfirmed: AtomicBool::new(self.unconfirmed.load(Ordering::Relaxed)),
            ..Self::beginning(
                self.key.clone(),
                later(self.token),
                Arc::clone(&self.options),
                Instant::now(),
                deadline,
                QueueSlot::Nothing,
            )
        }
    }

    /// The token in the document of the claim.
    pub(super) fn document_token(&self) -> FencingToken {
        self.last_token
    }

    /// Whether a reserved token is left for another hold on the same claim; of a set for each of its names.
    fn has_token_left(&self) -> bool {
        if self.members.is_empty() {
            return self.token < self.last_token;
        }
        self.members.iter().all(|member| member.token < member.last_token)
    }

    /// Notes that a renewal is sent.
    pub(crate) fn renewal_sent(&self) {
        self.unconfirmed.store(true, Ordering::Relaxed);
    }

    /// Whether the claim may last at the server after the lease has ended in this process: a renewal may have taken
    /// effect without a reply, or others leave the lock a margin.
    pub(crate) fn may_outlive_deadline(&self) -> bool {
        self.unconfirmed.load(Ordering::Relaxed) || !self.options.takeover_margin.is_zero()
    }

    /// Notes that a caller has received the hold, and keeps the caller's turns until the hold ends. One turn stands beside those
    /// of the other names of a set that was handed over. That of a permit has passed on, because other permits may be free.
    pub(crate) fn deliver(&self, slot: QueueSlot, meter: Option<&LockMeter>) {
        self.delivered.store(true, Ordering::Relaxed);
        self.measure(meter);
        match slot {
            QueueSlot::Turn(turn) => self.put_turn(turn),
            QueueSlot::Several(_) => self.put_slot(slot),
            QueueSlot::Entry { .. } | QueueSlot::Nothing => return,
        }
        if self.deadline().is_none() {
            drop(self.take_slot());
        }
    }

    /// The name that users know: for a permit that of its semaphore.
    pub(crate) fn name(&self) -> &str {
        self.semaphore.as_deref().unwrap_or(&self.key.name)
    }

    /// The semaphore, if the lock is one of its permits.
    pub(crate) fn semaphore(&self) -> Option<&Arc<str>> {
        self.semaphore.as_ref()
    }

    /// The number of the permit, if the lock is one.
    pub(crate) fn permit(&self) -> Option<u32> {
        self.semaphore.as_ref()?;
        slot::parts(&self.key.name).map(|(_, number)| number)
    }

    /// The fencing token; a permit has none, because tokens of different permits do not order each other.
    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.semaphore.is_none().then_some(self.token)
    }

    /// The metrics of the caller that has received the hold.
    pub(crate) fn meter(&self) -> Option<&LockMeter> {
        self.meter.get()
    }

    pub(crate) fn put_slot(&self, slot: QueueSlot) {
        *lock(&self.slot) = slot;
    }

    /// Keeps the turn of the first name, or of the only one.
    pub(crate) fn put_turn(&self, turn: Turn) {
        lock(&self.slot).put_first_turn(turn);
    }

    /// Notes in the queue that a release is sent whose call has returned.
    pub(crate) fn note_release_sent(&self) {
        for turn in lock(&self.slot).turns() {
            turn.front().release_sent();
        }
    }

    /// Takes the slot in the queue, to be dropped when the server has confirmed the release.
    pub(crate) fn take_slot(&self) -> QueueSlot {
        std::mem::replace(&mut *lock(&self.slot), QueueSlot::Nothing)
    }

    /// The minimum hold, which is zero as long as no caller has received the hold.
    pub(crate) fn min_hold(&self) -> Duration {
        if self.delivered.load(Ordering::Relaxed) {
            self.options.min_hold
        } else {
            Duration::ZERO
        }
    }

    /// Notes that a shutdown releases the claim.
    pub(super) fn note_shutdown_release(&self) {
        self.released_by_shutdown.store(true, Ordering::Relaxed);
    }

    /// Whether the claim may still have its lock after a loss. It has not if the server no longer has the claim and no
    /// acquire request can bring it back, and after a shutdown something else releases it.
    pub(super) fn may_have_claim(&self) -> bool {
        let copies = self.copies.as_ref();
        let may_return = || copies.is_some_and(Copies::may_take_effect);
        (!self.is_gone() || may_return()) && !self.released_by_shutdown.load(Ordering::Relaxed)
    }

    /// Notes that another operation blocks the release.
    pub(super) fn note_blocked_release(&self, error: &LockError) {
        self.blocked_release.get_or_init(|| Box::new(error.clone()));
    }

    pub(super) fn blocked_release(&self) -> Option<LockError> {
        self.blocked_release.get().map(|error| (**error).clone())
    }

    /// Notes that a release of the claim begins, so that an acquire request that takes effect later is noticed.
    pub(crate) fn begin_claim_release(&self) {
        let members = self.members.iter().filter_map(|member| member.copies.as_ref());
        for copies in self.copies.iter().chain(members) {
            copies.begin_release();
        }
    }

    /// Whether the hold was handed over by another caller in this process, without a command.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    /// Whether a renewal may be sent at this time: not after the maximum hold.
    pub(crate) fn is_renewable(&self, at: Instant) -> bool {
        self.options.max_hold.is_none_or(|cap| at < self.acquired + cap)
    }

    pub(crate) fn fields(&self) -> HoldFields<'_> {
        HoldFields {
            name: self.name(),
            permit: self.permit(),
            lock_id: &self.key.lock_id,
            token: self.fencing_token(),
            acquired: self.acquired,
        }
    }
}

/// The part of a lease that its holder relies on.
pub(crate) fn without_margin(lasts: Duration) -> Duration {
    lasts.saturating_sub(margin(lasts))
}

/// The part of a lease that its holder does not rely on: one percent, because clocks run at different speeds, and two
/// milliseconds, because the server's times are whole milliseconds.
pub(crate) fn margin(lasts: Duration) -> Duration {
    lasts / 100 + Duration::from_millis(2)
}

#[cfg(test)]
mod tests;
