//! A call and its hold: what its caller, its guard and its contexts ask and do. In the core it is a cell.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use scopeguard::ScopeGuard;
use tracing::Span;
use tracing::level_filters::LevelFilter;

use super::after;
use super::clock::duration;
use super::state::{About, Engine, Event, Granted, How, Lease, State, Step};
use crate::core::{self, CallFailure, Ending, Key, Time};
use crate::store::LeaseId;
use crate::sync::lock;
use crate::trace::HoldFields;
use crate::{Busy, FencingToken, LockError, LossReason, lock_id, permit_id};

impl Step {
    /// The time until which the holder relies on the lease.
    fn until(&self) -> Option<Time> {
        match self {
            Self::Held { until, .. } => *until,
            Self::Ending(How::Mark | How::Detach, until, _) => Some(*until),
            _ => None,
        }
    }

    /// The time for which the holder can rely on the lease, from now on. Once it is over, it stays over.
    pub(super) fn left(&mut self, now: Time) -> core::Span {
        let left = self.until().map_or(0, |until| (until - now).max(0));
        if let Self::Held { until, .. } = self {
            *until = until.filter(|_| left > 0);
        }
        left
    }
}

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
        scopeguard::guard(Arc::clone(self), |lease| lease.unshield())
    }

    fn unshield(&self) {
        {
            let state = &mut *lock(&self.state);
            state.shields -= 1;
            // A body that waits for its cancellation checks again.
            after::wake(&mut state.wakers);
        }
        after::run();
    }

    /// What the call has got.
    pub(crate) fn granted(&self) -> &Granted {
        let granted = self.granted.get();
        granted.expect("only a call that has got its lock has a guard")
    }

    /// The claims of the lease: one for each name, in their order.
    pub(crate) fn keys(&self) -> &[LeaseId] {
        &self.granted().keys
    }

    /// The claim of the only lock; of a set that of the name which stands for it.
    pub(crate) fn key(&self) -> &LeaseId {
        &self.keys()[self.about.title]
    }

    /// The owner in the documents of the locks: that of the provider, or that of a detached lease which was resumed.
    pub(crate) fn owner(&self) -> &str {
        lock_id::owner(&self.key().lock_id).unwrap_or_default()
    }

    /// The fencing token for the name of [`key`](Self::key). A permit has none, because tokens of different permits cannot be
    /// compared.
    pub(crate) fn token(&self) -> FencingToken {
        match permit_id::number(&self.key().name) {
            Some(_) => FencingToken::NONE,
            None => FencingToken::from(self.granted().tokens[self.about.title]),
        }
    }

    /// The ids of the locks and their tokens.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&Arc<str>, FencingToken)> {
        let Granted { keys, tokens, .. } = self.granted();
        let tokens = tokens.iter().map(|token| FencingToken::from(*token));
        keys.iter().map(|key| &key.name).zip(tokens)
    }

    /// The fencing token of this hold for one of its names.
    pub(crate) fn token_of(&self, name: &str) -> Option<FencingToken> {
        let mut tokens = self.tokens();
        tokens.find(|(own, _)| ***own == *name).map(|(_, token)| token)
    }

    /// The name that users know: for a permit that of its semaphore.
    pub(crate) fn name(&self) -> &str {
        permit_id::shown(&self.about.names[self.about.title])
    }

    /// The time since the hold began.
    pub(crate) fn held_for(&self) -> Duration {
        self.held_until(self.engine.now())
    }

    /// The time from the begin of the hold to this time.
    pub(super) fn held_until(&self, end: Time) -> Duration {
        duration(end - self.granted().at)
    }

    /// Whether the lease is over: it was released or lost, or its deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.remaining().is_zero()
    }

    pub(crate) fn remaining(&self) -> Duration {
        duration(self.left(&mut lock(&self.state)))
    }

    /// The clock is read under the mutex, so that a hold that was over never becomes valid again.
    fn left(&self, state: &mut State) -> core::Span {
        state.step.left(self.engine.now())
    }

    pub(crate) fn ensure_held(&self) -> Result<(), LockError> {
        if self.is_over() {
            Err(self.lost_error())
        } else {
            Ok(())
        }
    }

    /// The same for a commit in progress. A mark that the commit may make ends the lease earlier only for other uses.
    pub(crate) fn ensure_may_commit(&self) -> Result<(), LockError> {
        let lasts = match &lock(&self.state).step {
            Step::Held { lasts, .. } => *lasts > self.engine.now(),
            _ => false,
        };
        if lasts { Ok(()) } else { Err(self.lost_error()) }
    }

    /// The error for a lease that is over; it keeps the reason of an earlier loss.
    pub(crate) fn lost_error(&self) -> LockError {
        let reason = match lock(&self.state).step {
            Step::Lost(reason) => reason,
            Step::Held { .. } => LossReason::Expired,
            // After its end the server no longer has the claim.
            _ => LossReason::Gone,
        };
        LockError::lost(self.name(), self.token(), reason)
    }

    /// What a caller learns of a lock with this name that this hold has.
    pub(crate) fn busy(&self, name: &str) -> Busy {
        let mut busy = Busy::new(name);
        busy.holder = Some(self.owner().to_owned());
        busy.in_this_process = true;
        busy.held_for = Some(self.held_for());
        busy
    }

    /// Whether the lease has ended without a release.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(lock(&self.state).step, Step::Lost(_))
    }

    /// Whether the hold has ended, also with the mark of a transaction, so that nothing is left to release.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(lock(&self.state).step, Step::Ended(_))
    }

    /// Whether a guarded commit has succeeded under this hold.
    pub(crate) fn has_committed(&self) -> bool {
        lock(&self.state).has_committed
    }

    /// Resolves once one of these leases is over.
    pub(crate) async fn until_one_over(leases: impl Iterator<Item = &Arc<Self>> + Clone) {
        let is_over = |lease: &Self, state: &mut State| lease.left(state) == 0;
        poll_fn(|cx| poll_any(leases.clone(), cx, is_over)).await;
    }

    /// Whether a body under this hold has to be cancelled. It is not cancelled during a commit, because the outcome of
    /// the commit would remain unknown, and not after a commit that has ended the hold.
    pub(crate) fn should_cancel(&self) -> bool {
        self.has_to_cancel(&mut lock(&self.state))
    }

    fn has_to_cancel(&self, state: &mut State) -> bool {
        let has_ended_well = matches!(state.step, Step::Ended(Ok(_)));
        !has_ended_well && state.shields == 0 && self.left(state) == 0
    }

    /// Waits until a body under these holds has to be cancelled.
    pub(crate) fn poll_cancelled<'a>(
        leases: impl Iterator<Item = &'a Arc<Self>>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        poll_any(leases, cx, Self::has_to_cancel)
    }

    /// Resolves when `find` returns a value for the state.
    pub(super) async fn until<T>(&self, find: impl Fn(&mut State) -> Option<T>) -> T {
        poll_fn(|cx| self.poll(cx, &find)).await
    }

    fn poll<T>(&self, cx: &Context<'_>, find: impl Fn(&mut State) -> Option<T>) -> Poll<T> {
        let state = &mut *lock(&self.state);
        if let Some(found) = find(state) {
            return Poll::Ready(found);
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            // Usually there is one waker.
            state.wakers.reserve_exact(1);
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Notes that a commit begins under the hold.
    pub(crate) fn commit_begins(&self) {
        lock(&self.state).commits += 1;
    }

    /// Notes that a commit has ended, and whether it was made if that is known.
    pub(crate) fn commit_ends(&self, was_made: Option<bool>, marks: bool) {
        let state = &mut *lock(&self.state);
        state.commits -= 1;
        state.has_committed |= was_made == Some(true);
        state.is_outcome_unknown |= was_made.is_none() && marks;
    }

    /// Whether the outcome of a transaction with a mark is not known.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        lock(&self.state).is_outcome_unknown
    }

    /// Whether a transaction whose outcome was unknown is found to be made.
    pub(crate) async fn was_committed(&self) -> bool {
        self.until(|state| state.committed.take()).await
    }

    /// A guarding statement did not find the claim. Another commit under way may have ended it: its outcome decides.
    pub(crate) fn claim_is_gone(self: &Arc<Self>) {
        {
            let state = &mut *lock(&self.state);
            if matches!(state.step, Step::Held { .. }) && state.commits <= 1 {
                self.lose(state, self.engine.now(), LossReason::Gone);
                after::wake(&mut state.wakers);
            }
        }
        after::run();
        if self.is_lost() {
            self.engine
                .apply(Event::End(self.granted().hold, Ending::Release, None));
        }
    }

    /// The fields of the name at this place.
    pub(crate) fn fields(&self, place: usize) -> HoldFields<'_> {
        let Granted { keys, tokens, .. } = self.granted();
        HoldFields {
            id: &keys[place].name,
            lock_id: &keys[place].lock_id,
            token: FencingToken::from(tokens[place]),
            held: self.held_for(),
        }
    }

    /// Reports an event for each name of the lease.
    pub(crate) fn report(&self, event: impl Fn(&HoldFields<'_>)) {
        if LevelFilter::current() == LevelFilter::OFF {
            return;
        }
        (0..self.keys().len()).for_each(|place| event(&self.fields(place)));
    }

    /// The outcome of the call, when it has one.
    pub(super) fn poll_call(&self, cx: &Context<'_>) -> Poll<Result<(), CallFailure>> {
        self.poll(cx, |state| match &state.step {
            Step::Waits | Step::Left => None,
            Step::Failed(failure) => Some(Err(CallFailure::clone(failure))),
            _ => Some(Ok(())),
        })
    }

    /// The caller was dropped: it no longer waits, or ends the hold that it has got.
    pub(super) fn leave(&self, waiter: Option<Key>) -> Option<Event> {
        match std::mem::replace(&mut lock(&self.state).step, Step::Left) {
            Step::Waits => waiter.map(Event::Leave),
            Step::Held { .. } => Some(Event::End(self.granted().hold, Ending::Untaken, None)),
            _ => None,
        }
    }

    /// How the holder is ending the hold, while the result is unknown.
    pub(super) fn how_it_ends(&self) -> Option<How> {
        match lock(&self.state).step {
            Step::Ending(how, ..) => Some(how),
            _ => None,
        }
    }
}

/// Keeps the bodies under a hold from being cancelled for as long as it lives.
pub(crate) type CancelShield = ScopeGuard<Arc<Lease>, fn(Arc<Lease>)>;

/// Waits until this holds for one of the leases.
fn poll_any<'a>(
    mut leases: impl Iterator<Item = &'a Arc<Lease>>,
    cx: &Context<'_>,
    holds: impl Fn(&Lease, &mut State) -> bool,
) -> Poll<()> {
    let polled = |lease: &Lease| lease.poll(cx, |state| holds(lease, state).then_some(()));
    if leases.any(|lease| polled(lease).is_ready()) {
        Poll::Ready(())
    } else {
        Poll::Pending
    }
}
