use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument;
use uuid::Uuid;

use crate::engine::Engine;
use crate::lease::background_release::Withdrawal;
use crate::lease::copies::Copies;
use crate::lease::{Grant, Hold, Lease, Place, Terms, counted};
use crate::queue::Silent;
use crate::timing::{
    ACQUIRE_ALLOWED_POLL, ACQUIRE_LIMIT, ACQUIRE_LIMIT_MIN, ACQUIRE_NO_REPLY, ACQUIRE_OVERDUE, SLOW_ANSWER,
};

use crate::store::LeaseId;
use crate::store::driver_error;
use crate::store::{Answer, Ask};
use crate::{FencingToken, LockError, trace};

/// Tokens reserved when others wait in this process: one for each hold that can be handed over.
const HANDOVERS: i64 = 1000;

/// One logical acquisition of a lock, with an id that is its own.
///
/// Each request is sent on a task of its own and runs to its end whatever becomes of the caller. Sending it again is
/// harmless: the server finds the id there. A claim that is dropped without having become a lease is released, as long
/// as it may stand: that is how a cancelled wait, a lost reply or a task that ends with its runtime leave nothing behind.
pub(crate) struct Claim {
    shared: Arc<Shared>,
    /// Asked for with every request of this claim: the reply to a copy is read with the same number.
    tokens: i64,
    replies: Vec<JoinHandle<Option<Reply>>>,
    /// The server works, and another operation blocks the document: copies would only wait beside the first request.
    is_blocked: bool,
    /// From then on the lease releases the claim.
    is_lease: bool,
}

/// What a claim and its requests have in common.
struct Shared {
    engine: Arc<Engine>,
    key: LeaseId,
    terms: Terms,
    /// Keeps a shutdown waiting for replies.
    place: Arc<Place>,
    copies: Arc<Copies>,
}

/// How one request ended.
pub(crate) enum Attempt {
    Won(Hold),
    /// Held by another for as long as the server says.
    Held {
        holder: Option<Arc<str>>,
        remaining: Option<Duration>,
    },
    /// Won, but the reply came when the lease was over: a claim with a new id has to go on.
    TooLate,
    Failed(LockError),
    /// The server gave up before it could have said more than that it is slow.
    OutOfTime(LockError),
    /// The runtime is going down, and the provider's tasks with it.
    Stopped,
}

/// The reply to one request.
struct Reply {
    sent: Instant,
    limit: Duration,
    answer: Result<Answer, LockError>,
}

/// One request, on its own task.
struct Request {
    shared: Arc<Shared>,
    ask: Ask,
    limit: Duration,
    /// One of the few requests of the name that may be without a reply.
    _permit: OwnedSemaphorePermit,
    /// Given if another request of the claim is without a reply: this one counts among the silent requests at once.
    copy: Option<Silent>,
}

impl Claim {
    pub(crate) fn new(engine: &Arc<Engine>, name: &Arc<str>, terms: Terms, place: &Arc<Place>) -> Self {
        let lock_id = format!("{}#{}", engine.owner, Uuid::new_v4());
        let shared = Shared {
            engine: Arc::clone(engine),
            key: LeaseId {
                name: Arc::clone(name),
                lock_id: lock_id.into(),
            },
            terms,
            place: Arc::clone(place),
            copies: Arc::default(),
        };
        Self {
            shared: Arc::new(shared),
            tokens: 1,
            replies: Vec::new(),
            is_blocked: false,
            is_lease: false,
        }
    }

    /// Sends the first request if that needs no waiting, and says until when to wait for its reply.
    pub(crate) fn try_send(&mut self, deadline: Option<Instant>) -> Option<Instant> {
        if !self.shared.may_send() {
            return None;
        }
        let permit = self.shared.place.try_request_permit()?;
        self.send(permit, deadline);
        let overdue = Instant::now() + ACQUIRE_OVERDUE;
        Some(deadline.map_or(overdue, |deadline| deadline.min(overdue)))
    }

    /// Asks the server, and again on another connection when a reply is overdue; nothing is sent after the deadline.
    /// Cancel safe: the requests go on.
    pub(crate) async fn ask(&mut self, deadline: Option<Instant>) -> Attempt {
        let shared = Arc::clone(&self.shared);
        // A request that may not even be sent, because too many others are silent, is no sign that the lock is held.
        shared.place.front().asked();
        tokio::select! {
            biased;
            attempt = self.reply() => return attempt,
            permit = shared.permit() => self.send(permit, deadline),
        }
        loop {
            let overdue = Instant::now() + self.overdue_after();
            if let Ok(attempt) = timeout_at(overdue, self.reply()).await {
                return attempt;
            }
            if let Some(permit) = shared.place.try_request_permit()
                && shared.engine.queues.silent.allow_copy()
            {
                self.send(permit, deadline);
            }
        }
    }

    /// The next reply to a request that is under way; waits for ever if there is none.
    pub(crate) async fn reply(&mut self) -> Attempt {
        loop {
            match poll_fn(|cx| poll_first(&mut self.replies, |reply| Pin::new(reply).poll(cx))).await {
                Ok(Some(reply)) => return self.attempt(reply),
                // Given up: another copy is the only hope.
                Ok(None) => {}
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => return Attempt::Stopped,
                },
            }
        }
    }

    fn send(&mut self, permit: OwnedSemaphorePermit, deadline: Option<Instant>) {
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return;
        }
        if !self.shared.copies.may_take_effect() && self.shared.place.others_wait() {
            self.tokens = HANDOVERS;
        }
        let request = Request {
            shared: Arc::clone(&self.shared),
            ask: Ask {
                expiry: self.shared.terms.expiry,
                tokens: self.tokens,
            },
            limit: limit_until(deadline),
            _permit: permit,
            copy: (!self.replies.is_empty()).then(|| self.shared.engine.queues.silent.begin()),
        };
        self.shared.place.front().asked();
        self.shared.copies.sent();
        self.replies
            .push(crate::task::spawn(request.run().in_current_span()));
    }

    fn overdue_after(&self) -> Duration {
        if self.is_blocked {
            ACQUIRE_LIMIT + ACQUIRE_OVERDUE
        } else {
            ACQUIRE_OVERDUE
        }
    }

    fn attempt(&mut self, reply: Reply) -> Attempt {
        let is_blocked = reply
            .answer
            .as_ref()
            .is_err_and(driver_error::is_blocked_document);
        self.is_blocked = is_blocked;
        match reply.answer {
            Ok(Answer::Mine {
                last_token,
                remaining,
            }) => self.won(reply.sent, last_token, remaining),
            Ok(Answer::Other { holder, remaining }) => Attempt::Held { holder, remaining },
            Err(error) if is_blocked && reply.limit < SLOW_ANSWER => Attempt::OutOfTime(error),
            Err(error) => Attempt::Failed(error),
        }
    }

    /// A win counts only before its deadline: the reply may have been on its way for longer than the lease lasts, and
    /// somebody else has the lock already.
    fn won(&mut self, sent: Instant, last_token: FencingToken, remaining: Option<Duration>) -> Attempt {
        let lasts = remaining.map_or(self.shared.terms.expiry, |left| {
            left.min(self.shared.terms.expiry)
        });
        if self.shared.engine.is_closed() || Instant::now() >= sent + counted(lasts) {
            return Attempt::TooLate;
        }
        self.is_lease = true;
        let grant = Grant {
            token: FencingToken::new(last_token.get() - (self.tokens - 1)),
            last_token,
            copies: self
                .shared
                .copies
                .may_take_effect()
                .then(|| Arc::clone(&self.shared.copies)),
            sent,
            lasts,
        };
        let place = Arc::clone(&self.shared.place);
        let lease = Lease::new(self.shared.key.clone(), grant, self.shared.terms, place);
        trace::acquired(&lease.fields());
        Attempt::Won(self.shared.engine.keeper.hold(lease))
    }
}

impl Shared {
    async fn permit(&self) -> OwnedSemaphorePermit {
        while !self.may_send() {
            sleep(ACQUIRE_ALLOWED_POLL).await;
        }
        self.place.request_permit().await
    }

    fn may_send(&self) -> bool {
        self.engine.queues.silent.allow_request(self.place.has_requests())
    }

    /// Releases the claim in the background, and once more where a request of it may take effect late.
    fn release(&self, copies: Option<Arc<Copies>>) {
        let (key, place) = (self.key.clone(), Arc::clone(&self.place));
        let release = Withdrawal::of_claim(key, self.terms.expiry, place, copies);
        self.engine.keeper.withdraw(vec![release]);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_lease && self.shared.copies.give_up() {
            self.shared.release(Some(Arc::clone(&self.shared.copies)));
        }
    }
}

impl Request {
    /// The reply; `None` if there was none for too long.
    async fn run(self) -> Option<Reply> {
        let sent = Instant::now();
        let answer = self.answer().await;
        if answer.as_ref().is_some_and(is_from_server) {
            self.shared.engine.queues.silent.answered();
        }
        if self.shared.copies.answered(sent, answer.as_ref()) {
            self.shared.release(None);
        }
        Some(Reply {
            sent,
            limit: self.limit,
            answer: answer?,
        })
    }

    async fn answer(&self) -> Option<Result<Answer, LockError>> {
        let Shared { engine, key, .. } = &*self.shared;
        let asked = engine.store.claim(key, self.ask, self.limit);
        let answer = if self.copy.is_some() {
            timeout(ACQUIRE_NO_REPLY, asked).await
        } else {
            timeout(ACQUIRE_NO_REPLY, engine.queues.silent.count(asked)).await
        };
        answer.ok()
    }
}

fn is_from_server(answer: &Result<Answer, LockError>) -> bool {
    answer
        .as_ref()
        .map_or_else(driver_error::is_blocked_document, |_| true)
}

/// A part of the time that is left: the reply has to come back before the caller's time is up.
fn limit_until(deadline: Option<Instant>) -> Duration {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(ACQUIRE_LIMIT, |left| {
        left.mul_f64(0.8).clamp(ACQUIRE_LIMIT_MIN, ACQUIRE_LIMIT)
    })
}

/// Takes out the first of them that is ready.
fn poll_first<T>(
    replies: &mut Vec<JoinHandle<T>>,
    mut poll: impl FnMut(&mut JoinHandle<T>) -> Poll<Result<T, JoinError>>,
) -> Poll<Result<T, JoinError>> {
    for index in 0..replies.len() {
        if let Poll::Ready(reply) = poll(&mut replies[index]) {
            drop(replies.swap_remove(index));
            return Poll::Ready(reply);
        }
    }
    Poll::Pending
}
