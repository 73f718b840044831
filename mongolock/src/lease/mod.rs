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
//! A lease whose work has succeeded, and whose mark is requested, ends only by the reply to that request: [`completion`]. So does
//! one that is being detached: [`detaching`].
//!
//! A release that finds the claim gone is reported as "gone" by [`release`], after the lease has ended.

mod book;
pub(crate) mod claim_release;
mod commits;
mod completion;
pub(crate) mod copies;
pub(crate) mod detaching;
pub(crate) mod given_up;
mod hold;
pub(crate) mod release;
mod renewal;
pub(crate) mod renewer;
pub(crate) mod repeated;
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
use state::{LeaseState, Work};

use crate::few::Few;
use crate::lease::copies::Copies;
use crate::meter::LockMeter;
use crate::once::OnceGrant;
use crate::options::Options;
use crate::protocol::Until;
use crate::store::{ClaimEnd, LeaseId};
use crate::sync::lock;
use crate::trace::HoldFields;
use crate::{FencingToken, LockError, LossReason, lock_id, permit_id};

/// The queues of this process, in which waiters hand holds over.
pub(crate) type Queues = crate::queue::Queues<Hold>;
pub(crate) type Entry = crate::queue::Entry<Hold>;
pub(crate) type Turn = crate::queue::Turn<Hold>;
pub(crate) type QueueSlot = crate::queue::QueueSlot<Hold>;
pub(crate) type RequestPermit = crate::queue::RequestPermit<Hold>;

/// What the server has granted to an acquire request: a lock, or each lock of a set. The lists have a value for each name.
pub(crate) struct Grant {
    /// The claims, in the order of their names.
    pub(crate) keys: Few<LeaseId>,
    pub(crate) parts: Few<Part>,
    /// The place of the name that stands for a set in errors and events: the first one as the caller has written it.
    pub(crate) title: usize,
    /// The time at which the hold began: before the request was sent, because the lease cannot have begun earlier.
    pub(crate) acquired: Instant,
    /// The time at which the holder stops relying on the lease.
    pub(crate) deadline: Instant,
    /// What decides when the work under the lease is due again, if it may succeed only once.
    pub(crate) once: Option<OnceGrant>,
    /// How the claims end if no caller gets the hold; `None` is a release.
    pub(crate) back: Option<Box<ClaimEnd>>,
    /// The slots in the queues. They are kept in the lease and not in the guard, so that a lost lease passes its turns on at
    /// once.
    pub(crate) slots: Few<QueueSlot>,
}

/// What the server has granted for one name.
#[derive(Clone)]
pub(crate) struct Part {
    /// The first of the tokens, which is that of the hold.
    pub(crate) token: FencingToken,
    /// The last of the tokens that were reserved for hand-overs in this process.
    pub(crate) last_token: FencingToken,
    /// The acquire requests of the claim, if one of them may still take effect: then its id is released late as well.
    pub(crate) copies: Option<Copies>,
}

/// One hold of a lock in this process, shared by its guard, its contexts and the renewer.
///
/// A lease is live until it is released or lost, or until its deadline passes on the monotonic clock. It never becomes
/// live again: clock and state are read together, and a renewal that is confirmed after the deadline is ignored.
pub(crate) struct Lease {
    /// The claims, in the order of their names.
    keys: Few<LeaseId>,
    /// What each claim was granted.
    parts: Few<Part>,
    /// The place of the name that stands for a set in errors and events.
    title: usize,
    pub(crate) options: Arc<Options>,
    /// The time at which this hold began.
    pub(crate) acquired: Instant,
    /// What decides when the work under the lease is due again, if it may succeed only once.
    pub(crate) once: Option<OnceGrant>,
    /// How the claims end if no caller gets the hold; `None` is a release.
    back: Option<Box<ClaimEnd>>,
    /// Whether the hold was handed over by another caller in this process, without a command.
    is_handed_over: bool,
    state: Mutex<LeaseState>,
    /// Notified when the lease ends, or when a body may be cancelled.
    changed: Notify,
    slots: Mutex<Few<QueueSlot>>,
    /// Whether a renewal was sent and not confirmed: the claim may last longer than this process knows.
    unconfirmed: AtomicBool,
    /// Whether a caller has received the hold: from then on a minimum hold applies.
    delivered: AtomicBool,
    /// Whether a shutdown has begun to release the claim.
    released_by_shutdown: AtomicBool,
    /// When the work has ended, if its mark or its detachment was requested then.
    work_ended: OnceLock<Instant>,
    /// The error of a release that another operation blocks.
    blocked_release: OnceLock<Box<LockError>>,
    /// The template of the name that the caller has used, for the context that a guard makes when it is asked for it.
    template: OnceLock<&'static str>,
    /// The metrics of the caller that has received the hold; they are set while the lease is live.
    meter: OnceLock<LockMeter>,
    commits: Commits,
}

impl Lease {
    pub(crate) fn new(grant: Grant, options: Arc<Options>) -> Self {
        Self {
            keys: grant.keys,
            parts: grant.parts,
            title: grant.title,
            options,
            acquired: grant.acquired,
            once: grant.once,
            back: grant.back,
            is_handed_over: false,
            state: Mutex::new(LeaseState::Live {
                deadline: grant.deadline,
                work: Work::UnderWay,
            }),
            changed: Notify::new(),
            slots: Mutex::new(grant.slots),
            unconfirmed: AtomicBool::new(false),
            delivered: AtomicBool::new(false),
            released_by_shutdown: AtomicBool::new(false),
            work_ended: OnceLock::new(),
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
        let mut parts = self.parts.iter();
        let has_tokens_left = parts.all(|part| part.token < part.last_token);
        has_tokens_left.then(|| self.following(deadline, 1, self.title))
    }

    /// A hold on the same claims with the rest of the lease, whose tokens are greater by this number, and for which this name
    /// stands.
    fn following(&self, deadline: Instant, more: i64, title: usize) -> Self {
        let grant = Grant {
            keys: self.keys.clone(),
            parts: self.parts.map(|part| Part {
                token: FencingToken::new(part.token.get() + more),
                ..part.clone()
            }),
            title,
            acquired: Instant::now(),
            deadline,
            once: self.once,
            back: None,
            slots: self.take_slots(),
        };
        Self {
            is_handed_over: true,
            unconfirmed: AtomicBool::new(self.unconfirmed.load(Ordering::Relaxed)),
            ..Self::new(grant, Arc::clone(&self.options))
        }
    }

    /// The claims of the lease: one for each name, in their order.
    pub(crate) fn keys(&self) -> &[LeaseId] {
        &self.keys
    }

    /// The place of the name that stands for a set.
    pub(crate) fn title(&self) -> usize {
        self.title
    }

    /// The claim of the only lock; of a set that of the name which stands for it.
    pub(crate) fn key(&self) -> &LeaseId {
        &self.keys[self.title]
    }

    /// The owner in the documents of the locks: that of the provider, or that of a detached lease which was resumed.
    pub(crate) fn owner(&self) -> &str {
        lock_id::owner(&self.key().lock_id).unwrap_or_default()
    }

    /// The fencing token for the name of [`key`](Self::key). A permit has none, because tokens of different permits do not order
    /// each other.
    pub(crate) fn token(&self) -> FencingToken {
        match permit_id::number(&self.key().name) {
            Some(_) => FencingToken::NONE,
            None => self.parts[self.title].token,
        }
    }

    /// The token in the document of the claim.
    pub(super) fn document_token(&self) -> FencingToken {
        self.parts[self.title].last_token
    }

    /// The ids of the locks and the tokens in their documents.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&Arc<str>, FencingToken)> {
        let parts = self.keys.iter().zip(&*self.parts);
        parts.map(|(key, part)| (&key.name, part.token))
    }

    /// The fencing token of this hold for one of its names.
    pub(crate) fn token_of(&self, name: &str) -> Option<FencingToken> {
        let mut tokens = self.tokens();
        tokens.find(|(own, _)| ***own == *name).map(|(_, token)| token)
    }

    /// Whether the lease is that of a set of exactly these names; of a single lock if there are none.
    pub(crate) fn is_set_of(&self, names: &[Arc<str>]) -> bool {
        match &self.keys {
            Few::One(_) => names.is_empty(),
            Few::Several(keys) => keys.iter().map(|key| &key.name).eq(names),
        }
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

    /// Notes that a caller has received the hold, and keeps the caller's turns until the hold ends: that of the first name alone
    /// if the set was handed over, because the lease has the others, and none for a permit, because other permits may be free.
    pub(crate) fn deliver(&self, turns: impl IntoIterator<Item = Turn>, meter: Option<&LockMeter>) {
        self.delivered.store(true, Ordering::Relaxed);
        self.measure(meter);
        for (slot, turn) in lock(&self.slots).iter_mut().zip(turns) {
            *slot = QueueSlot::Turn(turn);
        }
        if self.deadline().is_none() {
            drop(self.take_slots());
        }
    }

    /// The name that users know: for a permit that of its semaphore.
    pub(crate) fn name(&self) -> &str {
        permit_id::shown(&self.key().name)
    }

    /// The metrics of the caller that has received the hold.
    pub(crate) fn meter(&self) -> Option<&LockMeter> {
        self.meter.get()
    }

    /// Takes the turn of the first name out, so that the hold can pass to the next caller of that queue; the slots of the other
    /// names stay with the lease. `None` if one of the turns is missing.
    pub(super) fn take_turn(&self) -> Option<Turn> {
        let mut slots = lock(&self.slots);
        let have_turns = slots.iter().all(|slot| matches!(slot, QueueSlot::Turn(_)));
        match slots.first_mut().filter(|_| have_turns).map(std::mem::take) {
            Some(QueueSlot::Turn(turn)) => Some(turn),
            _ => None,
        }
    }

    /// Puts the turn of the first name back.
    pub(super) fn put_turn(&self, turn: Turn) {
        lock(&self.slots)[0] = QueueSlot::Turn(turn);
    }

    /// Notes in the queues that a release is sent whose call has returned.
    pub(crate) fn note_release_sent(&self) {
        for slot in lock(&self.slots).iter() {
            if let QueueSlot::Turn(turn) = slot {
                turn.front().release_sent();
            }
        }
    }

    /// Takes the slots in the queues.
    pub(crate) fn take_slots(&self) -> Few<QueueSlot> {
        let mut slots = lock(&self.slots);
        let none = slots.map(|_| QueueSlot::Nothing);
        std::mem::replace(&mut slots, none)
    }

    /// How the claims end.
    pub(super) fn end(&self) -> ClaimEnd {
        match &self.back {
            Some(back) if !self.delivered.load(Ordering::Relaxed) => ClaimEnd::clone(back),
            _ => ClaimEnd::Released {
                min_hold: self.min_hold(),
            },
        }
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
        let may_return = || self.copies().any(Copies::may_take_effect);
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
        self.copies().for_each(Copies::begin_release);
    }

    fn copies(&self) -> impl Iterator<Item = &Copies> {
        self.parts.iter().filter_map(|part| part.copies.as_ref())
    }

    /// Whether the hold was handed over by another caller in this process, without a command.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    /// The time since the hold began.
    pub(crate) fn held_for(&self) -> Duration {
        self.acquired.elapsed()
    }

    /// Until when the mark of the work under the lease stands, if it may succeed only once.
    pub(crate) fn mark_end(&self) -> Option<Until> {
        self.once.map(|once| once.mark_end)
    }

    /// Whether the work under the lease may succeed only once.
    pub(crate) fn is_once(&self) -> bool {
        self.once.is_some()
    }

    /// Whether a renewal may be sent now.
    pub(crate) fn is_renewable_now(&self) -> bool {
        self.is_renewable(Instant::now())
    }

    /// A guarding statement has found no claim. Another commit under way may have ended the claim: then its outcome decides whether
    /// the lease is lost.
    pub(crate) fn claim_is_gone(&self) {
        if self.open_commits() == 1 {
            self.cancel_completion();
        }
        self.lose(LossReason::Gone);
    }

    /// Whether a renewal may be sent at this time: not after the maximum hold of the work, and for [`Options::end_limit`] after its
    /// end.
    pub(crate) fn is_renewable(&self, at: Instant) -> bool {
        match self.work_ended.get() {
            Some(ended) => at < *ended + self.options.end_limit(),
            None => self.options.max_hold.is_none_or(|cap| at < self.acquired + cap),
        }
    }

    pub(crate) fn fields(&self) -> HoldFields<'_> {
        self.fields_of(self.title)
    }

    fn fields_of(&self, index: usize) -> HoldFields<'_> {
        HoldFields {
            id: &self.keys[index].name,
            lock_id: &self.keys[index].lock_id,
            token: self.parts[index].token,
            acquired: self.acquired,
        }
    }

    /// Reports an event for each name of the lease.
    pub(crate) fn report(&self, event: impl Fn(&HoldFields<'_>)) {
        (0..self.keys.len()).for_each(|index| event(&self.fields_of(index)));
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
