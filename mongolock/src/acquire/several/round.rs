use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use std::future::Future;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument;

use super::super::attempt::{limit_until, poll_first};
use crate::engine::Engine;
use crate::lease::background_release::BackgroundRelease;
use crate::lease::copies::Copies;
use crate::lease::{Entry, Hold, Lease, Member, QueueSlot, RequestPermit, SetGrant, Turn, without_margin};
use crate::line::OwnAcquisition;
use crate::options::Options;
use crate::queue::{Admission, AdmissionClass, Holder, Overdue, RequestNumber};
use crate::store::{AcquireReply, AcquireRequest, Claimed, LeaseId, driver_error};
use crate::timing::{ACQUIRE_ALLOWED_POLL, ACQUIRE_NO_REPLY, ACQUIRE_OVERDUE, SLOW_REPLY};
use crate::{FencingToken, LockError, task, trace};

/// How many times the request of one round is sent: after that its claims are given back, so that a round whose outcome
/// stays unknown does not keep locks from others.
const MOST_REQUESTS: usize = 3;

/// One round of a set: a request that claims all names, with an id of its own.
///
/// The request is repeated with the same id only if its outcome is not known. A round that does not become a lease is given
/// back when it is dropped: the names that it has got, and all names if one of its requests may still take effect. Its id
/// is never sent again after that, because a late release of it would end a later lease.
pub(super) struct Round {
    shared: Arc<Shared>,
    /// The number of the last request in the queue of each name. Its copies share it, because a reply to one of them answers
    /// all.
    numbers: Arc<[RequestNumber]>,
    /// The requests in flight.
    requests: Vec<JoinHandle<Option<Reply>>>,
    /// The number of requests that were sent.
    sent: usize,
    /// Whether the round has become a lease, which then releases the claims.
    is_lease: bool,
}

struct Shared {
    engine: Arc<Engine>,
    keys: Vec<LeaseId>,
    options: Arc<Options>,
    /// The place of the name that stands for the set.
    first: usize,
    /// The queues of the names, which keep a shutdown waiting for replies.
    entries: Vec<Arc<Entry>>,
    /// What is known about the request, for each name.
    copies: Vec<Arc<Copies>>,
}

/// How a round ended.
pub(super) enum RoundOutcome {
    /// All locks were acquired.
    Acquired(Hold),
    /// This lock is held by another claim, and perhaps others are as well.
    Busy {
        index: usize,
        lock_id: Option<Arc<str>>,
        holder: Holder,
    },
    /// All locks were acquired, but the reply came when the lease was over.
    AlreadyOver,
    /// The server ended the request early, because the caller's deadline is near.
    OutOfTime(LockError),
    /// The outcome is not known, or the request was refused.
    Failed(LockError),
    /// The runtime is shutting down, and the provider's tasks with it.
    RuntimeStopped,
}

/// The reply to one request.
struct Reply {
    /// The time at which the request was sent.
    sent: Instant,
    /// The limit of the request at the server.
    limit: Duration,
    result: Claimed,
}

/// One request, on a task of its own.
struct Request {
    shared: Arc<Shared>,
    /// The number in the queue of each name.
    numbers: Arc<[RequestNumber]>,
    limit: Duration,
    _permit: RequestPermit,
    admission: Option<Admission>,
    /// Present if another request of the round is without a reply.
    copy: Option<Overdue>,
}

impl Round {
    pub(super) fn new(
        engine: &Arc<Engine>,
        options: &Arc<Options>,
        first: usize,
        entries: &[Arc<Entry>],
    ) -> Self {
        let lock_id = engine.mark.new_set_id(&engine.owner);
        let key = |entry: &Arc<Entry>| LeaseId {
            name: Arc::clone(entry.name()),
            lock_id: Arc::clone(&lock_id),
        };
        let shared = Shared {
            engine: Arc::clone(engine),
            keys: entries.iter().map(key).collect(),
            options: Arc::clone(options),
            first,
            entries: entries.to_vec(),
            copies: entries.iter().map(|_| Arc::new(Copies::of_set())).collect(),
        };
        Self {
            shared: Arc::new(shared),
            numbers: Arc::default(),
            requests: Vec::new(),
            sent: 0,
            is_lease: false,
        }
    }

    /// The id of all claims of the round.
    pub(super) fn lock_id(&self) -> &Arc<str> {
        &self.shared.keys[0].lock_id
    }

    /// Whether the request may be sent again.
    pub(super) fn may_repeat(&self) -> bool {
        self.sent < MOST_REQUESTS
    }

    /// Sends the request, and a copy on another connection when the reply is overdue, until one of them has an outcome;
    /// nothing is sent after the deadline. `class` says among which requests it is admitted; `None` for a single try.
    /// Cancel safe: the requests go on, and their claims are given back with the round.
    pub(super) async fn request(
        &mut self,
        deadline: Option<Instant>,
        class: Option<AdmissionClass>,
    ) -> RoundOutcome {
        let shared = Arc::clone(&self.shared);
        for entry in &shared.entries {
            entry.front().request_due();
        }
        let (admission, permit) = shared.permits(class).await;
        let entries = shared.entries.iter();
        self.numbers = entries.map(|entry| entry.front().request_sent()).collect();
        self.send(permit, admission, deadline);
        loop {
            let overdue = Instant::now() + ACQUIRE_OVERDUE;
            if let Ok(outcome) = timeout_at(overdue, self.next_outcome()).await {
                return outcome;
            }
            if self.may_repeat()
                && let Some(permit) = shared.entries[0].try_request_permit()
                && shared.engine.queues.overdue.allow_copy()
            {
                self.send(permit, None, deadline);
            }
        }
    }

    fn send(&mut self, permit: RequestPermit, admission: Option<Admission>, deadline: Option<Instant>) {
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return;
        }
        let request = Request {
            shared: Arc::clone(&self.shared),
            numbers: Arc::clone(&self.numbers),
            limit: limit_until(deadline),
            _permit: permit,
            admission,
            copy: (!self.requests.is_empty()).then(|| self.shared.engine.queues.overdue.begin()),
        };
        for copies in &self.shared.copies {
            copies.sent();
        }
        self.sent += 1;
        self.requests.push(task::spawn(request.run().in_current_span()));
    }

    /// The outcome of the next request in flight; waits forever if there is none.
    async fn next_outcome(&mut self) -> RoundOutcome {
        loop {
            match poll_fn(|cx| poll_first(&mut self.requests, |request| Pin::new(request).poll(cx))).await {
                Ok(Some(reply)) => return self.outcome(reply),
                // A request without a reply was given up; a copy may have one.
                Ok(None) if !self.requests.is_empty() || self.may_repeat() => {}
                Ok(None) => {
                    return RoundOutcome::Failed(LockError::no_reply("acquire request", ACQUIRE_NO_REPLY));
                }
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => return RoundOutcome::RuntimeStopped,
                },
            }
        }
    }

    fn outcome(&mut self, reply: Reply) -> RoundOutcome {
        match reply.result {
            Ok(replies) => self.read(reply.sent, replies),
            Err(error) if reply.limit < SLOW_REPLY && driver_error::is_blocked_document(&error) => {
                RoundOutcome::OutOfTime(error)
            }
            Err(error) => RoundOutcome::Failed(error),
        }
    }

    /// Turns the claims into a lease if all of them have their locks. The lease counts from before the request, and ends
    /// with the first of its claims.
    fn read(&mut self, sent: Instant, replies: Vec<AcquireReply>) -> RoundOutcome {
        let shared = Arc::clone(&self.shared);
        let mut lasts = shared.options.expiry;
        let mut members = Vec::with_capacity(replies.len());
        for (index, reply) in replies.into_iter().enumerate() {
            match reply {
                AcquireReply::Held {
                    holder, remaining, ..
                } => {
                    return RoundOutcome::Busy {
                        index,
                        lock_id: holder.clone(),
                        holder: Holder::new(holder, remaining),
                    };
                }
                AcquireReply::Acquired {
                    last_token,
                    remaining,
                    ..
                } => {
                    lasts = remaining.map_or(lasts, |remaining| lasts.min(remaining));
                    members.push(shared.member(index, last_token));
                }
            }
        }
        let deadline = sent + without_margin(lasts);
        if shared.engine.is_closed() || Instant::now() >= deadline {
            return RoundOutcome::AlreadyOver;
        }
        self.is_lease = true;
        shared.note_acquisition(sent.elapsed());
        let entries = shared.entries.iter().map(|entry| QueueSlot::Entry {
            entry: Arc::clone(entry),
        });
        let grant = SetGrant {
            members,
            first: shared.first,
            acquired: sent,
            deadline,
            slot: QueueSlot::Several(entries.collect()),
        };
        let lease = Lease::of_set(grant, Arc::clone(&shared.options));
        lease.report(trace::acquired);
        RoundOutcome::Acquired(shared.engine.renewer.hold(lease))
    }

    /// Gives the claims back that may have their locks. The turns of their names pass on when that is confirmed, so that
    /// the next caller in this process does not meet the claim.
    pub(super) fn give_back(mut self, turns: Vec<Option<Turn>>) {
        self.release(turns);
        self.is_lease = true;
    }

    fn release(&mut self, turns: Vec<Option<Turn>>) {
        let shared = &self.shared;
        let mut turns = turns.into_iter();
        let releases = (0..shared.keys.len()).filter_map(|index| {
            let turn = turns.next().flatten();
            // A name whose claim cannot have its lock gets no command, and its turn passes on.
            let given_up = shared.copies[index].give_up();
            given_up.then(|| shared.release(index, turn))
        });
        let releases: Vec<BackgroundRelease> = releases.collect();
        if !releases.is_empty() {
            shared.engine.renewer.release_in_background(releases);
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if !self.is_lease {
            self.release(Vec::new());
        }
    }
}

impl Shared {
    fn member(&self, index: usize, token: FencingToken) -> Member {
        Member::new(self.keys[index].clone(), token, &self.copies[index])
    }

    /// The release of one claim. A round has had no minimum hold, because no caller had the locks.
    fn release(&self, index: usize, turn: Option<Turn>) -> BackgroundRelease {
        let slot = turn.map_or_else(
            || QueueSlot::Entry {
                entry: Arc::clone(&self.entries[index]),
            },
            QueueSlot::Turn,
        );
        BackgroundRelease::of_round(
            self.keys[index].clone(),
            self.options.taken_for(),
            slot,
            Arc::clone(&self.copies[index]),
        )
    }

    /// Notes for the order of the waiters of all processes that the locks were acquired.
    fn note_acquisition(self: &Arc<Self>, request: Duration) {
        let engine = &self.engine;
        let mut retaken = false;
        for (key, entry) in self.keys.iter().zip(&self.entries) {
            entry.budget().begin_row(request, entry.waiting());
            let acquired = OwnAcquisition {
                request,
                waiting_since: entry.waiting_since(),
                user: entry.user(),
                has_stream: engine.notifier.hears_of(&key.name),
            };
            retaken |= engine.lines.acquired(&key.name, acquired);
        }
        if retaken {
            engine.enter_retaken();
        }
    }

    /// Waits until another request for these names, and another one of the provider, may be sent. Cancel safe.
    async fn permits(&self, class: Option<AdmissionClass>) -> (Option<Admission>, RequestPermit) {
        let permit = self.entries[0].request_permit().await;
        loop {
            let admission = match class {
                Some(class) => Some(self.engine.queues.admissions.admit(class).await),
                None => None,
            };
            let has_others = self.entries[0].has_other_requests();
            if self.engine.queues.overdue.allow_request(has_others) {
                return (admission, permit);
            }
            drop(admission);
            sleep(ACQUIRE_ALLOWED_POLL).await;
        }
    }
}

impl Request {
    /// Runs the request to its end; `None` if there was no reply for too long.
    async fn run(mut self) -> Option<Reply> {
        let sent = Instant::now();
        let outcome = self.result().await;
        // The claims may have their locks, however the query about them has failed.
        let was_claimed = matches!(outcome, Some(Ok(_)));
        let result = outcome.map(Result::flatten);
        let shared = &self.shared;
        let is_from_server = |result: &Result<_, LockError>| {
            result
                .as_ref()
                .map_or_else(driver_error::is_blocked_document, |_| true)
        };
        if result.as_ref().is_some_and(is_from_server) {
            shared.engine.queues.overdue.answered();
            for (entry, number) in shared.entries.iter().zip(&*self.numbers) {
                entry.front().replied(*number);
            }
        }
        let mut releases = Vec::new();
        for (index, copies) in shared.copies.iter().enumerate() {
            let answer = match &result {
                Some(Ok(replies)) => replies.get(index).map(Ok),
                Some(Err(error)) if !was_claimed => Some(Err(error)),
                Some(Err(_)) | None => None,
            };
            if copies.answered(sent, answer) {
                releases.push(shared.release(index, None));
            }
        }
        if !releases.is_empty() {
            shared.engine.renewer.release_in_background(releases);
        }
        Some(Reply {
            sent,
            limit: self.limit,
            result: result?,
        })
    }

    async fn result(&mut self) -> Option<Result<Claimed, LockError>> {
        let admission = self.admission.take();
        let Shared {
            engine,
            keys,
            options,
            ..
        } = &*self.shared;
        let command = AcquireRequest {
            expiry: options.expiry,
            tokens: 1,
            takeover_margin: engine.config.options.takeover_margin,
            wants_dates: false,
        };
        let request = engine.store.claim_several(keys, command, self.limit);
        let result = if self.copy.is_some() {
            timeout(ACQUIRE_NO_REPLY, request).await
        } else {
            let request = engine.queues.overdue.count_admitted(admission, request);
            timeout(ACQUIRE_NO_REPLY, request).await
        };
        result.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockProvider;

    #[tokio::test]
    async fn a_request_is_sent_three_times_at_most() {
        let provider = LockProvider::in_memory();
        let engine = provider.engine();
        let entries = ["a", "b"].map(|name| engine.queues.join(&Arc::from(name)));
        let mut round = Round::new(engine, &Arc::default(), 0, &entries);
        for _ in 0..MOST_REQUESTS {
            assert!(round.may_repeat());
            let permit = entries[0].request_permit().await;
            round.send(permit, None, None);
        }
        assert!(!round.may_repeat());
    }
}
