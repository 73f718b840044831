//! One claim on a lock, on a permit, or on all locks of a set: its requests in flight, and what becomes of it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::task::coop::consume_budget;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::Outcome;
use super::asking::{Ask, Asking, LastEnd, is_out_of_time};
use super::call::Call;
use super::request::{Reply, Request, Shared};
use super::target::Target;
use crate::engine::Engine;
use crate::few::Few;
use crate::lease::claim_release::ClaimRelease;
use crate::lease::{Entry, RequestPermit, Turn, without_margin};
use crate::options::Options;
use crate::queue::RequestNumber;
use crate::store::{AcquireReply, AcquireRequest, Admission, AdmissionClass, Lane, LeaseId};
use crate::timing::{ACQUIRE_NO_REPLY, ACQUIRE_OVERDUE};
use crate::{LockError, task, trace};

/// The number of tokens that are reserved when others wait in this process: one for each hold that can be handed over.
const HANDOVERS: i64 = 1000;

/// One logical acquisition, with an id of its own.
///
/// Its requests are copies of one another. Each is sent on a task of its own and runs to its end even if the caller is
/// cancelled. Sending it again is harmless, because the server then finds the id in the documents. A claim that is dropped
/// without having become a lease is released: each lock that it has got, and all of them as long as one of its requests may
/// still take effect. So a cancelled wait, a lost reply or a task that ends with its runtime leaves no lock held. The id of a
/// claim that was released is never sent again, because a late release of it would end a later lease.
pub(super) struct Claim {
    shared: Arc<Shared>,
    /// The number of tokens of each name that every copy asks for: the reply to any of them is read with the same number.
    tokens: i64,
    /// The requests in flight.
    requests: Vec<JoinHandle<Option<Reply>>>,
    /// The number of the last request in the queue of each name, until one has an outcome. What is sent before that is a copy
    /// with the same number, because a reply to one of them answers all.
    numbers: Option<Few<RequestNumber>>,
    /// What is sent next and when, and what follows when a request has ended.
    pub(super) asking: Asking,
    /// The reply of a store that never waits, until the caller takes it. It is boxed, because most stores wait.
    reply: Option<Box<Reply>>,
    /// Whether the claim is neither released nor that of a lease, which then releases it.
    is_open: bool,
}

impl Claim {
    /// A claim on the lock of this queue. `class` says among which commands its first request is admitted; `None` for a single
    /// try, whose request does not wait behind the first ones of waiting calls.
    pub(super) fn of_lock(call: &Call<'_>, class: Option<AdmissionClass>, entry: &Arc<Entry>) -> Self {
        let (names, entries) = (Few::one(Arc::clone(entry.name())), Few::one(Arc::clone(entry)));
        Self::new(call.engine, call.options, class, Target::Lock, &names, entries)
    }

    /// A claim on the permit with this name of the semaphore of this queue.
    pub(super) fn of_permit(
        call: &Call<'_>,
        class: Option<AdmissionClass>,
        name: &Arc<str>,
        entry: &Arc<Entry>,
    ) -> Self {
        let (names, entries) = (Few::one(Arc::clone(name)), Few::one(Arc::clone(entry)));
        Self::new(call.engine, call.options, class, Target::Permit, &names, entries)
    }

    /// A claim on all locks of these queues.
    pub(super) fn of_set(
        call: &Call<'_>,
        class: Option<AdmissionClass>,
        target: Target,
        entries: &[Arc<Entry>],
    ) -> Self {
        let entries = Few::from(entries.to_vec());
        let names = entries.map(|entry| Arc::clone(entry.name()));
        Self::new(call.engine, call.options, class, target, &names, entries)
    }

    fn new(
        engine: &Arc<Engine>,
        options: &Arc<Options>,
        class: Option<AdmissionClass>,
        target: Target,
        names: &Few<Arc<str>>,
        entries: Few<Arc<Entry>>,
    ) -> Self {
        let (asking, lock_id) = (Asking::new(target.kind(), class), target.new_lock_id(engine));
        let key = |name: &Arc<str>| LeaseId {
            name: Arc::clone(name),
            lock_id: Arc::clone(&lock_id),
        };
        let shared = Shared {
            engine: Arc::clone(engine),
            copies: target.copies(names.len()),
            target,
            keys: names.map(key),
            options: Arc::clone(options),
            entries,
        };
        Self {
            shared: Arc::new(shared),
            tokens: 1,
            requests: Vec::new(),
            numbers: None,
            asking,
            reply: None,
            is_open: true,
        }
    }

    /// The same claim for a part of a set: it reserves tokens, with which the whole set can be handed over.
    pub(super) fn with_handovers(mut self) -> Self {
        self.tokens = HANDOVERS;
        self
    }

    /// A claim of the same call with a new id.
    pub(super) fn anew(&self) -> Self {
        let shared = &*self.shared;
        let names = shared.keys.map(|key| Arc::clone(&key.name));
        let (target, entries) = (shared.target.clone(), shared.entries.clone());
        let class = self.asking.class();
        let mut claim = Self::new(&shared.engine, &shared.options, class, target, &names, entries);
        claim.tokens = self.tokens;
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
    pub(super) fn try_send(&mut self, deadline: Option<Instant>) -> Option<Instant> {
        let permit = self.shared.entries[0].try_request_permit()?;
        let admissions = self.shared.engine.store.admissions();
        let admission =
            admissions.try_admit(AdmissionClass::First, self.shared.lane(AdmissionClass::First))?;
        self.send(permit, admission, deadline);
        let overdue = Instant::now() + ACQUIRE_OVERDUE;
        Some(deadline.map_or(overdue, |deadline| deadline.min(overdue)))
    }

    /// Sends a request, and a copy on another connection when a reply is overdue, until one of them has an outcome;
    /// nothing is sent after the deadline. Cancel safe: the requests go on.
    pub(super) async fn request(&mut self, deadline: Option<Instant>) -> Outcome {
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
                        (admission, permit) = allowed => self.send(permit, admission, deadline),
                    }
                    asked = Some(Instant::now());
                }
            }
        }
    }

    /// Whether the reply of a store that never waits is there.
    pub(super) fn has_reply(&self) -> bool {
        self.reply.is_some()
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
                Ok(None) => return Outcome::Failed(LockError::no_reply("acquire request", ACQUIRE_NO_REPLY)),
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => return Outcome::RuntimeStopped,
                },
            }
        }
    }

    fn send(&mut self, permit: RequestPermit, admission: Admission, deadline: Option<Instant>) {
        let limit = self
            .asking
            .admitted(Instant::now(), deadline, admission.is_crowded);
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
                takeover_margin: shared.engine.config.options.takeover_margin,
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
            self.requests.push(task::spawn(request.run().in_current_span()));
        }
    }

    fn outcome(&mut self, reply: Reply) -> Outcome {
        self.numbers = None;
        let last = reply.result.as_ref().err().map_or(LastEnd::Replied, LastEnd::of);
        self.asking.ended(last);
        match reply.result {
            Ok(replies) => match self.shared.held(reply.sent, &replies) {
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
        // The waiters for a permit wait for any of its semaphore.
        shared.engine.note_acquisition(&shared.entries, now, now - sent);
        let lease = shared.lease(self.tokens, replies, sent, lasts);
        lease.report(trace::acquired);
        Outcome::Acquired(shared.engine.renewer.hold(lease))
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

/// Waits for this pause between two requests of a claim. The reply to an earlier one ends it: it may be an acquisition. (Both
/// futures are pinned by the caller, because a future that is passed on takes its room twice.)
pub(super) fn late_outcome<T>(
    mut outcome: Pin<&mut impl Future<Output = T>>,
    mut pause: Pin<&mut impl Future<Output = ()>>,
) -> impl Future<Output = Option<T>> {
    poll_fn(move |cx| match outcome.as_mut().poll(cx) {
        Poll::Ready(late) => Poll::Ready(Some(late)),
        Poll::Pending => pause.as_mut().poll(cx).map(|()| None),
    })
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
