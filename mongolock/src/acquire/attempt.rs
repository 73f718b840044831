use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::coop::consume_budget;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::Outcome;
use super::asking::{Ask, Asking, Held, Kind, LastEnd, given_up_after, is_out_of_time};
use crate::engine::Engine;
use crate::lease::background_release::BackgroundRelease;
use crate::lease::copies::Copies;
use crate::lease::{Entry, Grant, Lease, RequestPermit, without_margin};
use crate::options::Options;
use crate::queue::{Holder, RequestNumber};
use crate::store::{AcquireReply, AcquireRequest, Admission, AdmissionClass, Dates, LeaseId, driver_error};
use crate::timing::ACQUIRE_OVERDUE;
use crate::{FencingToken, LockError, task, trace};

/// The number of tokens that are reserved when others wait in this process: one for each hold that can be handed over.
pub(super) const HANDOVERS: i64 = 1000;

/// One logical acquisition of a lock, with an id of its own.
///
/// Its requests are copies of one another. Each is sent on a task of its own and runs to its end even if the caller is
/// cancelled. Sending it again is harmless, because the server then finds the id in the document. An attempt that is
/// dropped without having become a lease releases its id, as long as one of its requests may have acquired the lock: so
/// a cancelled wait, a lost reply or a task that ends with its runtime leaves no lock held.
pub(crate) struct Attempt {
    shared: Arc<Shared>,
    /// The number of tokens that every copy asks for: the reply to any of them is read with the same number.
    tokens: i64,
    /// The requests in flight.
    requests: Vec<JoinHandle<Option<Reply>>>,
    /// The number of the last request, until one has an outcome. What is sent before that is a copy with the same number,
    /// because a reply to one of them answers all.
    number: Option<RequestNumber>,
    /// What is sent next and when, and what follows when a request has ended.
    pub(super) asking: Asking,
    /// The reply of a store that never waits, until the caller takes it. It is boxed, because most stores wait.
    reply: Option<Box<Reply>>,
    /// Whether the attempt has become a lease, which then releases the claim.
    is_lease: bool,
}

/// What an attempt and its requests have in common.
struct Shared {
    engine: Arc<Engine>,
    key: LeaseId,
    options: Arc<Options>,
    /// The entry in the queue, which keeps a shutdown waiting for replies.
    entry: Arc<Entry>,
    copies: Copies,
    /// The name of the semaphore, if the lock is one of its permits.
    semaphore: Option<Arc<str>>,
}

/// The reply to one request.
struct Reply {
    /// The time at which the request was sent.
    sent: Instant,
    /// The limit of the request at the server.
    limit: Duration,
    result: Result<AcquireReply, LockError>,
}

/// One request, on a task of its own.
struct Request {
    shared: Arc<Shared>,
    command: AcquireRequest,
    number: RequestNumber,
    /// The limit of the request at the server.
    limit: Duration,
    /// The permit bounds how many requests of the name are without a reply.
    _permit: RequestPermit,
    /// The permission bounds how many commands of the provider are in flight.
    _admission: Admission,
}

impl Attempt {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        name: &Arc<str>,
        options: &Arc<Options>,
        entry: &Arc<Entry>,
    ) -> Self {
        Self::of(engine, name, options, entry, None)
    }

    /// An attempt to acquire the permit of this semaphore that has this name.
    pub(crate) fn of_permit(
        engine: &Arc<Engine>,
        name: &Arc<str>,
        semaphore: &Arc<str>,
        options: &Arc<Options>,
        entry: &Arc<Entry>,
    ) -> Self {
        Self::of(engine, name, options, entry, Some(Arc::clone(semaphore)))
    }

    fn of(
        engine: &Arc<Engine>,
        name: &Arc<str>,
        options: &Arc<Options>,
        entry: &Arc<Entry>,
        semaphore: Option<Arc<str>>,
    ) -> Self {
        let kind = if semaphore.is_some() {
            Kind::Permit
        } else {
            Kind::Lock
        };
        let shared = Shared {
            engine: Arc::clone(engine),
            key: LeaseId {
                name: Arc::clone(name),
                lock_id: engine.mark.new_lock_id(&engine.owner),
            },
            options: Arc::clone(options),
            entry: Arc::clone(entry),
            copies: Copies::default(),
            semaphore,
        };
        Self {
            shared: Arc::new(shared),
            tokens: 1,
            requests: Vec::new(),
            number: None,
            asking: Asking::new(kind, Some(AdmissionClass::First)),
            reply: None,
            is_lease: false,
        }
    }

    /// Reserves tokens for hand-overs also if no other caller in this process waits.
    pub(crate) fn with_handovers(mut self) -> Self {
        self.tokens = HANDOVERS;
        self
    }

    /// The same attempt for a single try, whose request does not wait behind the first ones of waiting calls.
    pub(crate) fn unlimited(self) -> Self {
        self.in_class(None)
    }

    /// The same attempt, whose requests are admitted among those of this class; `None` for a single try.
    pub(crate) fn in_class(mut self, class: Option<AdmissionClass>) -> Self {
        self.asking.set_class(class);
        self
    }

    /// The same attempt for a call that can go on with another permit: its first request has a short limit at the server.
    pub(crate) fn with_short_limit(mut self) -> Self {
        self.asking.limit_shortly();
        self
    }

    /// An attempt of the same call with a new id.
    pub(crate) fn anew(&self) -> Self {
        let Shared {
            engine,
            key,
            options,
            entry,
            semaphore,
            ..
        } = &*self.shared;
        let mut attempt = Self::of(engine, &key.name, options, entry, semaphore.clone());
        attempt.asking = self.asking.anew();
        attempt.tokens = self.tokens;
        attempt
    }

    /// Sends the first request if that needs no waiting, and returns the time at which its reply is overdue.
    pub(crate) fn try_send(&mut self, deadline: Option<Instant>) -> Option<Instant> {
        let permit = self.shared.entry.try_request_permit()?;
        let admissions = self.shared.engine.store.admissions();
        let admission = admissions.try_admit(AdmissionClass::First)?;
        self.send(permit, admission, deadline);
        let overdue = Instant::now() + ACQUIRE_OVERDUE;
        Some(deadline.map_or(overdue, |deadline| deadline.min(overdue)))
    }

    /// Sends a request, and a copy on another connection when a reply is overdue, until one of them has an outcome;
    /// nothing is sent after the deadline. Cancel safe: the requests go on.
    pub(crate) async fn request(&mut self, deadline: Option<Instant>) -> Outcome {
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
                            shared.entry.front().request_due();
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

    /// The id that every request of the attempt has.
    pub(crate) fn lock_id(&self) -> &Arc<str> {
        &self.shared.key.lock_id
    }

    /// Whether the reply of a store that never waits is there.
    pub(crate) fn has_reply(&self) -> bool {
        self.reply.is_some()
    }

    /// The outcome of the next request in flight; waits forever if there is none.
    pub(crate) async fn next_outcome(&mut self) -> Outcome {
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
                Ok(None) => {}
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
        // A permit is never handed over.
        let is_lock = self.shared.semaphore.is_none();
        if is_lock && !self.shared.copies.may_take_effect() && self.shared.entry.others_wait() {
            self.tokens = HANDOVERS;
        }
        let entry = &self.shared.entry;
        let request = Request {
            shared: Arc::clone(&self.shared),
            command: AcquireRequest {
                expiry: self.shared.options.expiry,
                tokens: self.tokens,
                takeover_margin: self.shared.engine.config.options.takeover_margin,
                wants_dates: self.shared.options.once.is_some(),
            },
            number: *self.number.get_or_insert_with(|| entry.front().request_sent()),
            limit,
            _permit: permit,
            _admission: admission,
        };
        self.shared.copies.sent();
        if self.shared.engine.store.never_waits() {
            self.reply = task::run_at_once(request.run()).map(Box::new);
        } else {
            self.requests.push(task::spawn(request.run().in_current_span()));
        }
    }

    fn outcome(&mut self, reply: Reply) -> Outcome {
        self.number = None;
        let last = reply.result.as_ref().err().map_or(LastEnd::Replied, LastEnd::of);
        self.asking.ended(last);
        match reply.result {
            Ok(AcquireReply::Acquired {
                last_token,
                remaining,
                dates,
            }) => self.acquired(reply.sent, last_token, remaining, dates),
            Ok(AcquireReply::Held {
                holder,
                held_for,
                remaining,
                dates,
            }) => {
                let now = Instant::now();
                Outcome::Held(Held {
                    index: 0,
                    holder: Holder::new(now, holder, held_for, remaining),
                    request: now - reply.sent,
                    dates,
                })
            }
            Err(error) if is_out_of_time(&error, reply.limit) => Outcome::OutOfTime(error),
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Turns the claim into a lease, unless the lease is over: the reply may have taken longer than the lease lasts,
    /// and another holder may already have the lock.
    fn acquired(
        &mut self,
        sent: Instant,
        last_token: FencingToken,
        remaining: Option<Duration>,
        dates: Option<Dates>,
    ) -> Outcome {
        let lasts = remaining.map_or(self.shared.options.expiry, |left| {
            left.min(self.shared.options.expiry)
        });
        let now = Instant::now();
        if self.shared.engine.is_closed() || now >= sent + without_margin(lasts) {
            return Outcome::AlreadyOver;
        }
        self.is_lease = true;
        // The waiters for a permit wait for any of its semaphore.
        let entries = std::slice::from_ref(&self.shared.entry);
        self.shared.engine.note_acquisition(entries, now, now - sent);
        let grant = Grant {
            token: FencingToken::new(last_token.get() - (self.tokens - 1)),
            last_token,
            copies: self.shared.copies.if_unsettled(),
            sent,
            lasts,
            semaphore: self.shared.semaphore.clone(),
            once: dates.and_then(|dates| Some(self.shared.options.once?.grant(dates.acquired_at, dates.now))),
        };
        let entry = Arc::clone(&self.shared.entry);
        let options = Arc::clone(&self.shared.options);
        let lease = Lease::new(self.shared.key.clone(), grant, options, entry);
        trace::acquired(&lease.fields());
        Outcome::Acquired(self.shared.engine.renewer.hold(lease))
    }
}

impl Shared {
    /// Waits until another request for this name, and another command of the provider, may be sent. Cancel safe. What
    /// waits for the request of its own name keeps no command waiting.
    async fn permits(&self, class: AdmissionClass) -> (Admission, RequestPermit) {
        let permit = self.entry.request_permit().await;
        (self.engine.store.admissions().admit(class).await, permit)
    }

    /// Releases the claim in the background, and again later if one of the copies may take effect late.
    fn release(&self, copies: Option<Copies>) {
        let (key, entry) = (self.key.clone(), Arc::clone(&self.entry));
        let release = BackgroundRelease::of_claim(key, self.options.taken_for(), entry, copies);
        self.engine.renewer.release_in_background(vec![release]);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_lease && self.shared.copies.give_up() {
            self.shared.release(Some(self.shared.copies.clone()));
        }
    }
}

impl Request {
    /// Runs the request to its end; `None` if there was no reply for too long.
    async fn run(mut self) -> Option<Reply> {
        let sent = Instant::now();
        let result = self.result().await;
        if result.as_ref().is_some_and(is_from_server) {
            self.shared.entry.front().replied(self.number);
        }
        let reply = result.as_ref().map(Result::as_ref);
        if !self.shared.copies.answered(sent, [reply]).is_empty() {
            self.shared.release(None);
        }
        Some(Reply {
            sent,
            limit: self.limit,
            result: result?,
        })
    }

    async fn result(&mut self) -> Option<Result<AcquireReply, LockError>> {
        let Shared { engine, key, .. } = &*self.shared;
        let request = engine.store.claim(key, self.command, self.limit);
        if engine.store.never_waits() {
            return Some(request.await);
        }
        task::reply_within(given_up_after(self.limit), request).await
    }
}

/// Whether the server has answered: a document that another operation blocks is an answer as well.
pub(super) fn is_from_server<T>(result: &Result<T, LockError>) -> bool {
    result
        .as_ref()
        .map_or_else(driver_error::is_blocked_document, |_| true)
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
pub(super) fn poll_first<T>(
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
mod tests {
    use super::*;
    use crate::timing::{ACQUIRE_LIMIT_MIN, SLOW_REPLY};

    fn blocked() -> LockError {
        driver_error::blocked("n", mongodb::error::Error::custom("blocked"))
    }

    /// A broken connection does not show that the server works; a document that a transaction blocks does.
    #[test]
    fn an_error_is_from_the_server_if_it_names_a_blocked_document() {
        let held = AcquireReply::Held {
            holder: None,
            held_for: None,
            remaining: None,
            dates: None,
        };
        let blocked = blocked();
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(is_from_server(&Ok(held)) && is_from_server(&Err::<(), _>(blocked)));
        assert!(!is_from_server(&Err::<(), _>(LockError::Mongo(broken.into()))));
    }

    /// Near the deadline of its call a request has too little time at the server to show that a document is blocked for long.
    #[tokio::test]
    async fn a_request_with_a_short_limit_is_out_of_time_and_not_failed() {
        let provider = crate::LockProvider::in_memory();
        let (engine, name) = (provider.engine(), Arc::from("n"));
        let entry = engine.queues.join(&name);
        let mut attempt = Attempt::new(engine, &name, &Arc::default(), &entry);
        let mut outcome = |limit| {
            attempt.outcome(Reply {
                sent: Instant::now(),
                limit,
                result: Err(blocked()),
            })
        };
        assert!(matches!(outcome(ACQUIRE_LIMIT_MIN), Outcome::OutOfTime(_)));
        assert!(matches!(outcome(SLOW_REPLY), Outcome::Failed(_)));
    }
}
