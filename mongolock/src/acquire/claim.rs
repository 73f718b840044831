//! One claim: its requests in flight, and what becomes of it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::coop::consume_budget;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout, timeout_at};

use super::Outcome;
use super::asking::{Ask, Asking, Held, LastEnd, is_out_of_time};
use super::call::Call;
use super::request::{Reply, Request, Shared};
use super::target::Target;
use crate::few::Few;
use crate::lease::claim_release::ClaimRelease;
use crate::lease::{Entry, RequestPermit, Turn, without_margin};
use crate::opaque::{BoxedFuture, boxed};
use crate::queue::RequestNumber;
use crate::store::{
    ACQUIRE_REQUEST, AcquireReply, AcquireRequest, Admission, AdmissionClass, ClaimEnd, Lane, LeaseId,
};
use crate::timing::{ACQUIRE_NO_REPLY, ACQUIRE_OVERDUE, RELEASE_LIMIT};
use crate::{LockError, lock_id, task, trace};

/// The number of holds that can be handed over on one claim.
const HANDOVERS: i64 = 1000;

/// One acquisition of a lock, of a permit or of all locks of a set, with an id of its own.
///
/// Its requests are copies of one another. Each is sent on a task of its own and runs to its end even if the caller is
/// cancelled. Sending it again is harmless, because the server then finds the id in the documents. A claim that is dropped
/// without having become a lease is released: each lock that it has got, and all of them as long as one of its requests may
/// still take effect. So a cancelled wait, a lost reply or a task that ends with its runtime leaves no lock held. The id of a
/// claim that was released is never sent again, because a late release of it would end a later lease.
pub(super) struct Claim {
    shared: Arc<Shared>,
    /// [`AcquireRequest::tokens`] of every copy: the reply to any of them is read with the same number.
    tokens: i64,
    /// The requests in flight.
    requests: Vec<JoinHandle<Option<Reply>>>,
    /// The number of the last request in the queue of each name, until one has an outcome. What is sent before that is a copy
    /// with the same number, because a reply to one of them answers all.
    numbers: Option<Few<RequestNumber>>,
    /// What is sent next and when, and what follows when a request has ended.
    pub(super) asking: Asking,
    /// The time at which the call ends.
    deadline: Option<Instant>,
    /// The reply of a store that never waits, until the caller takes it. It is boxed, because most stores wait.
    reply: Option<Box<Reply>>,
    /// Whether the claim is neither released nor that of a lease, which then releases it.
    is_open: bool,
    /// Whether the last reply has found a part of a detached lease whose rest is lost.
    has_rest: bool,
}

impl Claim {
    /// A claim of this call on the target, whose names have these queues. The first request has this class.
    pub(super) fn new(
        call: &Call<'_>,
        class: AdmissionClass,
        target: Target,
        entries: Few<Arc<Entry>>,
    ) -> Self {
        let (engine, lock_id) = (call.engine, target.new_lock_id(call.engine));
        let key = |entry: &Arc<Entry>| LeaseId {
            name: Arc::clone(target.permit().unwrap_or(entry.name())),
            lock_id: Arc::clone(&lock_id),
        };
        Self {
            tokens: if matches!(target, Target::Part) {
                HANDOVERS
            } else {
                1
            },
            requests: Vec::new(),
            numbers: None,
            asking: Asking::new(target.kind(), class, call.is_try),
            deadline: call.deadline,
            reply: None,
            is_open: true,
            has_rest: false,
            shared: Arc::new(Shared {
                engine: Arc::clone(engine),
                keys: entries.map(key),
                options: Arc::clone(call.options),
                copies: target.copies(entries.len()),
                target,
                entries,
            }),
        }
    }

    /// A claim of the same call with a new id.
    pub(super) fn anew(&self, call: &Call<'_>) -> Self {
        let Shared { target, entries, .. } = &*self.shared;
        let mut claim = Self::new(call, call.first_class(), target.clone(), entries.clone());
        (claim.asking, claim.tokens) = (self.asking.anew(), self.tokens);
        claim
    }

    /// The id that every request of the claim has.
    pub(super) fn lock_id(&self) -> &Arc<str> {
        &self.shared.keys[0].lock_id
    }

    /// Whether the claim is neither released nor that of a lease.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Sends the first request if that needs no waiting, and returns the time at which its reply is overdue.
    pub(super) fn try_send(&mut self) -> Option<Instant> {
        let permit = self.shared.entries[0].try_request_permit()?;
        let admissions = self.shared.engine.store.admissions();
        let class = AdmissionClass::First;
        let admission = admissions.try_admit(class, self.shared.lane(class))?;
        self.send(permit, admission);
        let overdue = Instant::now() + ACQUIRE_OVERDUE;
        Some(self.deadline.map_or(overdue, |deadline| deadline.min(overdue)))
    }

    /// The outcome of the next request, or of an earlier one in flight. It is on the heap, because a request takes more room than
    /// a pause, and does not last long.
    pub(super) fn request(&mut self) -> BoxedFuture<'_, Outcome> {
        boxed(self.send_until_outcome())
    }

    /// The same after a pause, which the reply to an earlier request ends: it may be an acquisition. (The pause is pinned by the
    /// caller, because a future that is passed on takes its room twice.)
    pub(super) async fn outcome_after(&mut self, pause: Pin<&mut impl Future<Output = ()>>) -> Outcome {
        let late = async {
            tokio::select! {
                biased;
                outcome = self.next_outcome() => Some(outcome),
                () = pause => None,
            }
        };
        if let Some(outcome) = late.await {
            return outcome;
        }
        self.request().await
    }

    /// Sends a request, and a copy on another connection when a reply is overdue, until one of them has an outcome;
    /// nothing is sent after the deadline. Cancel safe: the requests go on.
    async fn send_until_outcome(&mut self) -> Outcome {
        let shared = Arc::clone(&self.shared);
        let mut asked = None;
        loop {
            match self.asking.next(Instant::now(), asked, self.requests.len()) {
                Ask::Wait(overdue) => {
                    if let Ok(outcome) = timeout_at(overdue, self.next_outcome()).await {
                        return outcome;
                    }
                }
                Ask::Send(class) => {
                    let allowed = async {
                        // While too many commands are in flight, none is sent, and "held" must not stay the last known status.
                        if asked.is_none() {
                            shared
                                .entries
                                .iter()
                                .for_each(|entry| entry.front().request_due());
                        }
                        shared.permits(class).await
                    };
                    tokio::select! {
                        biased;
                        outcome = self.next_outcome() => return outcome,
                        (admission, permit) = allowed => self.send(permit, admission),
                    }
                    asked = Some(Instant::now());
                }
            }
        }
    }

    /// The outcome of the next request in flight; waits forever if there is none and another one may be sent.
    pub(super) async fn next_outcome(&mut self) -> Outcome {
        if self.reply.is_some() {
            // Other tasks run from time to time, even if this one never waits.
            consume_budget().await;
        }
        if let Some(reply) = self.reply.take() {
            return self.outcome(*reply);
        }
        loop {
            match poll_fn(|cx| poll_first(&mut self.requests, |request| Pin::new(request).poll(cx))).await {
                Ok(Some(reply)) => return self.outcome(reply),
                // A request without a reply was given up; another copy may have one.
                Ok(None) if !self.requests.is_empty() || self.asking.may_repeat() => {}
                Ok(None) => {
                    let store = &self.shared.engine.store;
                    return Outcome::Failed(store.no_reply(ACQUIRE_REQUEST, ACQUIRE_NO_REPLY));
                }
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => return Outcome::RuntimeStopped,
                },
            }
        }
    }

    fn send(&mut self, permit: RequestPermit, admission: Admission) {
        let limit = self
            .asking
            .admitted(Instant::now(), self.deadline, admission.is_crowded);
        let Some(limit) = limit else { return };
        let shared = &self.shared;
        let may_hand_over = shared.target.may_hand_over() && shared.entries[0].others_wait();
        if may_hand_over && !shared.copies[0].may_take_effect() {
            self.tokens = HANDOVERS;
        }
        let number = |entry: &Arc<Entry>| entry.front().request_sent();
        let numbers = self.numbers.get_or_insert_with(|| shared.entries.map(number));
        let request = Request {
            shared: Arc::clone(shared),
            command: AcquireRequest {
                expiry: shared.options.expiry,
                tokens: self.tokens,
                takeover_margin: match shared.target {
                    // A detached lease that has ended cannot be resumed, also while the margin keeps its lock taken.
                    Target::Detached(_) => Duration::ZERO,
                    _ => shared.engine.config.options.takeover_margin,
                },
                wants_dates: shared.options.once.is_some(),
            },
            numbers: numbers.clone(),
            limit,
            _permit: permit,
            admission,
        };
        shared.copies[0].sent();
        if shared.engine.store.never_waits() {
            self.reply = task::run_at_once(request.run()).map(Box::new);
        } else {
            self.requests.push(task::spawn_for_caller(request.run()));
        }
    }

    fn outcome(&mut self, reply: Reply) -> Outcome {
        self.numbers = None;
        let last = reply.result.as_ref().err().map_or(LastEnd::Replied, LastEnd::of);
        self.asking.ended(last);
        match reply.result {
            Ok(replies) => match self.shared.held(reply.sent, &replies) {
                Some(held) if self.shared.target.detached().is_some() => {
                    self.has_rest = is_rest(&replies, &self.shared.target);
                    Outcome::Held(held)
                }
                Some(held) => {
                    // The line of a permit has the name of its semaphore, and hears of acquisitions by events.
                    let Shared { engine, keys, .. } = &*self.shared;
                    let (lines, name) = (&engine.lines, &keys[held.index].name);
                    lines.found_held(name, held.holder.lock_id(), held.request);
                    Outcome::Held(held)
                }
                None => self.acquired(reply.sent, &replies),
            },
            Err(error) if is_out_of_time(&error, reply.limit) => Outcome::OutOfTime(error),
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Turns the claim into a lease, unless the lease is over: the reply may have taken longer than the lease lasts, and
    /// another holder may already have a lock. The lease counts from before the request, and ends with the first of the locks.
    fn acquired(&mut self, sent: Instant, replies: &[AcquireReply]) -> Outcome {
        let shared = Arc::clone(&self.shared);
        let mut lasts = shared.options.expiry;
        for reply in replies {
            if let AcquireReply::Acquired { remaining, .. } = reply {
                lasts = remaining.map_or(lasts, |remaining| lasts.min(remaining));
            }
        }
        let (now, deadline) = (Instant::now(), sent + without_margin(lasts));
        if shared.engine.is_closed() || now >= deadline {
            return Outcome::AlreadyOver;
        }
        self.is_open = false;
        let lease = shared.lease(self.tokens, replies, sent, lasts);
        if shared.target.detached().is_some() {
            lease.report(trace::resumed);
        } else {
            // The waiters for a permit wait for any of its semaphore.
            shared.engine.note_acquisition(&shared.entries, now, now - sent);
            lease.report(trace::acquired);
        }
        Outcome::Acquired(shared.engine.renewer.hold(lease))
    }

    /// Ends another claim, which this process has given up and which has a lock of this one: a lost reply or a cancelled call
    /// must not make the lock busy.
    pub(super) async fn clear(&self, other: &Held, end: ClaimEnd) -> Result<(), LockError> {
        let Some(lock_id) = other.holder.lock_id().cloned() else {
            return Ok(());
        };
        let Shared {
            engine,
            keys,
            entries,
            ..
        } = &*self.shared;
        let (store, entry) = (Arc::clone(&engine.store), Arc::clone(&entries[other.index]));
        let name = Arc::clone(&keys[other.index].name);
        entry.front().set_no_holder();
        let number = entry.front().release_sent();
        let release = async move {
            let key = LeaseId { name, lock_id };
            let reply = match end {
                ClaimEnd::Released { min_hold } => {
                    let released = store.release(&[key], min_hold, RELEASE_LIMIT, None).await;
                    released.map(drop)
                }
                ClaimEnd::GivenBack { .. } => store.end_given_up(&[key], &end).await,
            };
            if reply.is_ok() {
                entry.front().released(number);
            }
            reply
        };
        // Without a reply the next acquire request shows whether the claim still has the lock.
        match timeout(ACQUIRE_OVERDUE, task::start(release)).await {
            Ok(reply) => reply,
            Err(_) => Ok(()),
        }
    }

    /// Whether the last reply has found that the claim has a part of a detached lease, whose rest is lost.
    pub(super) fn has_rest(&self) -> bool {
        self.has_rest
    }

    /// Gives the claim back: each lock that it may have. The turns of these names pass on when that is confirmed, so that the
    /// next caller in this process does not meet the claim.
    pub(super) fn give_back(&mut self, turns: &mut [Option<Turn>]) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        let mut turns = turns.iter_mut().map(Option::take);
        let releases = (0..self.shared.keys.len()).filter_map(|index| {
            let turn = turns.next().flatten();
            // A name whose claim cannot have its lock gets no command, and its turn passes on.
            let given_up = self.shared.copies[index].give_up();
            if given_up && let Some(turn) = &turn {
                turn.front().release_sent();
            }
            given_up.then(|| self.shared.release(index, turn, true))
        });
        let releases: Vec<ClaimRelease> = releases.collect();
        if !releases.is_empty() {
            self.shared.engine.renewer.release_in_background(releases);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_back(&mut []);
    }
}

impl Shared {
    /// The lane of a request of this class that may go in one command with those of other calls: not one that has failed, or
    /// may be overdue, because it could delay the others.
    fn lane(&self, class: AdmissionClass) -> Option<Lane> {
        let is_single = matches!(self.keys, Few::One(_)) && self.options.once.is_none();
        let is_single = is_single && self.target.detached().is_none();
        let is_fresh = matches!(class, AdmissionClass::First | AdmissionClass::Woken);
        self.engine.store.lane().filter(|_| is_single && is_fresh)
    }

    /// Waits until another request for the first of these names, and another command of the provider, may be sent. Cancel safe.
    /// What waits for the request of its own name keeps no command waiting.
    async fn permits(&self, class: AdmissionClass) -> (Admission, RequestPermit) {
        let permit = self.entries[0].request_permit().await;
        let admissions = self.engine.store.admissions();
        (admissions.admit(class, self.lane(class)).await, permit)
    }
}

/// Whether these replies say that the claim has a part of a detached lease, and that the rest is lost. It is not lost if another
/// call is about to resume it, or has given up and gives it back.
fn is_rest(replies: &[AcquireReply], target: &Target) -> bool {
    let handle_id = target.detached().map(|lease| lease.handle.lock_id());
    let is_lost = |reply: &AcquireReply| match reply {
        AcquireReply::Acquired { .. } => false,
        AcquireReply::Held {
            holder, remaining, ..
        } => match holder {
            Some(holder) if Some(holder) == handle_id => remaining.is_none_or(|left| left.is_zero()),
            Some(holder) => !lock_id::is_resumed(holder),
            None => true,
        },
    };
    replies.iter().any(AcquireReply::is_acquired) && replies.iter().any(is_lost)
}

/// Takes out the first task that has ended, and returns its output.
fn poll_first<T>(
    tasks: &mut Vec<JoinHandle<T>>,
    mut poll: impl FnMut(&mut JoinHandle<T>) -> Poll<Result<T, JoinError>>,
) -> Poll<Result<T, JoinError>> {
    for index in 0..tasks.len() {
        if let Poll::Ready(output) = poll(&mut tasks[index]) {
            drop(tasks.swap_remove(index));
            return Poll::Ready(output);
        }
    }
    Poll::Pending
}

#[cfg(test)]
mod tests;
