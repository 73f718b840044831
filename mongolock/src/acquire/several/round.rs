use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use std::future::Future;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::super::Outcome;
use super::super::asking::{Ask, Asking, Held, Kind, LastEnd, given_up_after, is_out_of_time};
use super::super::attempt::{HANDOVERS, is_from_server, poll_first};
use crate::engine::Engine;
use crate::lease::background_release::BackgroundRelease;
use crate::lease::copies::Copies;
use crate::lease::{Entry, Lease, Member, QueueSlot, RequestPermit, SetGrant, Turn, without_margin};
use crate::options::Options;
use crate::queue::{Holder, RequestNumber};
use crate::store::{AcquireReply, AcquireRequest, Admission, AdmissionClass, Claimed, LeaseId};
use crate::timing::ACQUIRE_NO_REPLY;
use crate::{FencingToken, LockError, task, trace};

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
    /// What is sent next and when, and what follows when a request has ended.
    pub(super) asking: Asking,
    /// The number of tokens of each name that every request asks for: the reply to any of them is read with the same number.
    tokens: i64,
    /// Whether the claims are neither given back nor those of a lease, which then releases them.
    has_claims: bool,
}

struct Shared {
    engine: Arc<Engine>,
    keys: Vec<LeaseId>,
    options: Arc<Options>,
    /// The place of the name that stands for the set.
    first: usize,
    /// The name that the call has waited for, by its place, and the claim that had the lock: if it has it still, the call goes
    /// on to wait for that one.
    awaited: Option<(usize, Arc<str>)>,
    /// The queues of the names, which keep a shutdown waiting for replies.
    entries: Vec<Arc<Entry>>,
    /// What is known about the request, for each name.
    copies: Vec<Copies>,
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
    tokens: i64,
    _permit: RequestPermit,
    _admission: Admission,
}

impl Round {
    pub(super) fn new(
        engine: &Arc<Engine>,
        options: &Arc<Options>,
        first: usize,
        awaited: Option<(usize, Arc<str>)>,
        entries: &[Arc<Entry>],
        class: Option<AdmissionClass>,
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
            awaited,
            entries: entries.to_vec(),
            copies: Copies::of_set(entries.len()),
        };
        Self {
            shared: Arc::new(shared),
            numbers: Arc::default(),
            requests: Vec::new(),
            asking: Asking::new(Kind::Set, class),
            tokens: 1,
            has_claims: true,
        }
    }

    /// The id of all claims of the round.
    pub(super) fn lock_id(&self) -> &Arc<str> {
        &self.shared.keys[0].lock_id
    }

    /// Sends the request, and a copy on another connection when the reply is overdue, until one of them has an outcome;
    /// nothing is sent after the deadline. Cancel safe: the requests go on, and their claims are given back with the round.
    pub(super) async fn request(&mut self, deadline: Option<Instant>) -> Outcome {
        let shared = Arc::clone(&self.shared);
        for entry in &shared.entries {
            entry.front().request_due();
        }
        let mut asked = None;
        loop {
            match self.asking.next(Instant::now(), asked, self.requests.len()) {
                Ask::Wait(overdue) => {
                    if let Ok(outcome) = timeout_at(overdue, self.next_outcome()).await {
                        return outcome;
                    }
                }
                Ask::Send(class) => {
                    let (admission, permit) = tokio::select! {
                        biased;
                        outcome = self.next_outcome() => return outcome,
                        allowed = shared.permits(class) => allowed,
                    };
                    if asked.is_none() {
                        let entries = shared.entries.iter();
                        self.numbers = entries.map(|entry| entry.front().request_sent()).collect();
                    }
                    self.send(permit, admission, deadline);
                    asked = Some(Instant::now());
                }
            }
        }
    }

    fn send(&mut self, permit: RequestPermit, admission: Admission, deadline: Option<Instant>) {
        let is_first = self.asking.is_new();
        let limit = self
            .asking
            .admitted(Instant::now(), deadline, admission.is_crowded);
        let Some(limit) = limit else { return };
        // The set is handed over to callers that wait for its first name.
        if is_first && (self.shared.entries[0].others_wait() || !self.shared.options.await_release) {
            self.tokens = HANDOVERS;
        }
        let request = Request {
            shared: Arc::clone(&self.shared),
            numbers: Arc::clone(&self.numbers),
            limit,
            tokens: self.tokens,
            _permit: permit,
            _admission: admission,
        };
        self.shared.copies[0].sent();
        self.requests.push(task::spawn(request.run().in_current_span()));
    }

    /// The outcome of the next request in flight; waits forever if there is none.
    pub(super) async fn next_outcome(&mut self) -> Outcome {
        loop {
            match poll_fn(|cx| poll_first(&mut self.requests, |request| Pin::new(request).poll(cx))).await {
                Ok(Some(reply)) => return self.outcome(reply),
                // A request without a reply was given up; a copy may have one.
                Ok(None) if !self.requests.is_empty() || self.asking.may_repeat() => {}
                Ok(None) => {
                    return Outcome::Failed(LockError::no_reply("acquire request", ACQUIRE_NO_REPLY));
                }
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => return Outcome::RuntimeStopped,
                },
            }
        }
    }

    fn outcome(&mut self, reply: Reply) -> Outcome {
        // Copies come after a blocked document as after any error: the call gives the round back then.
        let has_failed = reply.result.is_err();
        self.asking.ended(if has_failed {
            LastEnd::Failed
        } else {
            LastEnd::Replied
        });
        match reply.result {
            Ok(replies) => self.read(reply.sent, replies),
            Err(error) if is_out_of_time(&error, reply.limit) => Outcome::OutOfTime(error),
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Turns the claims into a lease if all of them have their locks. The lease counts from before the request, and ends
    /// with the first of its claims.
    fn read(&mut self, sent: Instant, replies: Vec<AcquireReply>) -> Outcome {
        let shared = Arc::clone(&self.shared);
        if let Some((index, lock_id)) = &shared.awaited
            && let Some(AcquireReply::Held {
                holder: Some(holder),
                held_for,
                remaining,
                ..
            }) = replies.get(*index)
            && holder == lock_id
        {
            let holder = Holder::new(Instant::now(), Some(Arc::clone(holder)), *held_for, *remaining);
            return held(sent, *index, holder);
        }
        let mut lasts = shared.options.expiry;
        let mut members = Vec::with_capacity(replies.len());
        for (index, reply) in replies.into_iter().enumerate() {
            match reply {
                AcquireReply::Held {
                    holder,
                    held_for,
                    remaining,
                    ..
                } => {
                    return held(
                        sent,
                        index,
                        Holder::new(Instant::now(), holder, held_for, remaining),
                    );
                }
                AcquireReply::Acquired {
                    last_token,
                    remaining,
                    ..
                } => {
                    lasts = remaining.map_or(lasts, |remaining| lasts.min(remaining));
                    let token = FencingToken::new(last_token.get() - (self.tokens - 1));
                    members.push(shared.member(index, (token, last_token)));
                }
            }
        }
        let deadline = sent + without_margin(lasts);
        let now = Instant::now();
        if shared.engine.is_closed() || now >= deadline {
            return Outcome::AlreadyOver;
        }
        self.has_claims = false;
        shared.engine.note_acquisition(&shared.entries, now, now - sent);
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
        Outcome::Acquired(shared.engine.renewer.hold(lease))
    }

    /// Gives the claims back that may have their locks. The turns of their names pass on when that is confirmed, so that
    /// the next caller in this process does not meet the claim.
    pub(super) fn give_back(&mut self, turns: &mut [Option<Turn>]) {
        if std::mem::take(&mut self.has_claims) {
            self.release(turns.iter_mut().map(Option::take).collect());
        }
    }

    /// Whether the claims are neither given back nor those of a lease.
    pub(super) fn has_claims(&self) -> bool {
        self.has_claims
    }

    fn release(&self, turns: Vec<Option<Turn>>) {
        let shared = &self.shared;
        let mut turns = turns.into_iter();
        let releases = (0..shared.keys.len()).filter_map(|index| {
            let turn = turns.next().flatten();
            // A name whose claim cannot have its lock gets no command, and its turn passes on.
            let given_up = shared.copies[index].give_up();
            if given_up && let Some(turn) = &turn {
                turn.front().release_sent();
            }
            given_up.then(|| shared.release(index, turn))
        });
        let releases: Vec<BackgroundRelease> = releases.collect();
        if !releases.is_empty() {
            shared.engine.renewer.release_in_background(releases);
        }
    }
}

/// The outcome of a round in which the lock of the name in this place is held.
fn held(sent: Instant, index: usize, holder: Holder) -> Outcome {
    Outcome::Held(Held {
        index,
        holder,
        request: sent.elapsed(),
        dates: None,
    })
}

impl Drop for Round {
    fn drop(&mut self) {
        self.give_back(&mut []);
    }
}

impl Shared {
    fn member(&self, index: usize, tokens: (FencingToken, FencingToken)) -> Member {
        Member::new(self.keys[index].clone(), tokens, &self.copies[index])
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
            self.copies[index].clone(),
        )
    }

    /// Waits until another request for these names, and another one of the provider, may be sent. Cancel safe.
    async fn permits(&self, class: AdmissionClass) -> (Admission, RequestPermit) {
        let permit = self.entries[0].request_permit().await;
        (self.engine.store.admissions().admit(class).await, permit)
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
        if result.as_ref().is_some_and(is_from_server) {
            for (entry, number) in shared.entries.iter().zip(&*self.numbers) {
                entry.front().replied(*number);
            }
        }
        let replies = (0..shared.keys.len()).map(|index| match &result {
            Some(Ok(replies)) => replies.get(index).map(Ok),
            Some(Err(error)) if !was_claimed => Some(Err(error)),
            Some(Err(_)) | None => None,
        });
        let due = shared.copies[0].answered(sent, replies);
        if !due.is_empty() {
            let releases = due.into_iter().map(|index| shared.release(index, None));
            shared.engine.renewer.release_in_background(releases.collect());
        }
        Some(Reply {
            sent,
            limit: self.limit,
            result: result?,
        })
    }

    async fn result(&mut self) -> Option<Result<Claimed, LockError>> {
        let Shared {
            engine,
            keys,
            options,
            ..
        } = &*self.shared;
        let command = AcquireRequest {
            expiry: options.expiry,
            tokens: self.tokens,
            takeover_margin: engine.config.options.takeover_margin,
            wants_dates: false,
        };
        let request = engine.store.claim_several(keys, command, self.limit);
        task::reply_within(given_up_after(self.limit), request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockProvider;
    use crate::acquire::asking::MOST_REQUESTS;

    #[tokio::test]
    async fn a_request_is_sent_three_times_at_most() {
        let provider = LockProvider::in_memory();
        let engine = provider.engine();
        let entries = ["a", "b"].map(|name| engine.queues.join(&Arc::from(name)));
        let mut round = Round::new(engine, &Arc::default(), 0, None, &entries, None);
        for _ in 0..MOST_REQUESTS {
            assert!(round.asking.may_repeat());
            let permit = entries[0].request_permit().await;
            let admission = engine.store.admissions().admit(AdmissionClass::Copy).await;
            round.send(permit, admission, None);
        }
        assert!(!round.asking.may_repeat());
    }
}
