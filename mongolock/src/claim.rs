use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::Instrument;
use uuid::Uuid;

use crate::copies::Copies;
use crate::engine::Engine;
use crate::lease::{ClaimKey, Grant, Lease, Terms, counted};
use crate::queue::{Place, SLOW_ANSWER};
use crate::silent::SILENT_AFTER;
use crate::store::{Answer, Ask};
use crate::withdrawal::Withdrawal;
use crate::{FencingToken, LockError, LockGuard, fault, trace};

/// The server gives up a request after this time, for instance at a document that a foreign transaction blocks.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// The least limit at the server: a shorter one would end healthy requests.
const LEAST_COMMAND_LIMIT: Duration = Duration::from_millis(200);

/// The longest time after which a reply counts as overdue and another copy is sent.
const LONGEST_OVERDUE: Duration = Duration::from_secs(8);

/// A request without a reply is given up after this time, which closes its connection: a few of them must not use up
/// the requests of the name until the server is back. The server has ended it after [`COMMAND_LIMIT`], and what it may
/// have done is released by the claim's id.
const GIVE_UP_AFTER: Duration = Duration::from_secs(20);

/// The pause before another look whether a request may be sent, while too many are silent.
const UNTIL_ALLOWED: Duration = Duration::from_millis(100);

/// Tokens reserved when others wait in this process: one for each hold that can be handed over.
const HANDOVERS: i64 = 1000;

/// One logical acquisition of a lock, with an id that is its own.
///
/// Each request is sent on a task of its own and runs to its end whatever becomes of the caller. Sending it again is
/// harmless: the server finds the id there. A claim that is dropped without having become a lease is released, as long
/// as it may stand: that is how a cancelled wait, a lost reply or a task that ends with its runtime leave nothing behind.
pub(crate) struct Claim {
    engine: Arc<Engine>,
    key: ClaimKey,
    terms: Terms,
    place: Arc<Place>,
    /// Asked for with every request of this claim: the reply to a copy is read with the same number.
    tokens: i64,
    copies: Arc<Copies>,
    replies: Vec<JoinHandle<Option<Reply>>>,
    /// The server works, and another operation blocks the document: copies would only wait beside the first request.
    is_blocked: bool,
    /// Requests that were sent since the last reply.
    unanswered: u32,
    /// From then on the lease releases the claim.
    is_lease: bool,
}

/// How one request ended.
pub(crate) enum Attempt {
    Won(LockGuard),
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
    engine: Arc<Engine>,
    key: ClaimKey,
    expiry: Duration,
    /// Keeps a shutdown waiting for the reply.
    place: Arc<Place>,
    copies: Arc<Copies>,
    ask: Ask,
    limit: Duration,
    /// One of the few requests of the name that may be without a reply.
    _permit: OwnedSemaphorePermit,
}

impl Claim {
    pub(crate) fn new(engine: &Arc<Engine>, name: &Arc<str>, terms: Terms, place: &Arc<Place>) -> Self {
        let lock_id = format!("{}#{}", engine.owner, Uuid::new_v4());
        Self {
            engine: Arc::clone(engine),
            key: ClaimKey {
                name: Arc::clone(name),
                lock_id: lock_id.into(),
            },
            terms,
            place: Arc::clone(place),
            tokens: 1,
            copies: Arc::default(),
            replies: Vec::new(),
            is_blocked: false,
            unanswered: 0,
            is_lease: false,
        }
    }

    /// Sends the first request if that needs no waiting, and says until when to wait for its reply.
    pub(crate) fn try_send(&mut self, deadline: Option<Instant>) -> Option<Instant> {
        if !self.engine.silent.allow_first() {
            return None;
        }
        let permit = self.place.try_request_permit()?;
        self.send(permit, deadline);
        let overdue = Instant::now() + SILENT_AFTER;
        Some(deadline.map_or(overdue, |deadline| deadline.min(overdue)))
    }

    /// Asks the server, and again on another connection when a reply is overdue; nothing is sent after the deadline.
    /// Cancel safe: the requests go on.
    pub(crate) async fn ask(&mut self, deadline: Option<Instant>) -> Attempt {
        // A request that may not even be sent, because too many others are silent, is no sign that the lock is held.
        self.place.asked();
        while !self.engine.silent.allow_first() {
            sleep(UNTIL_ALLOWED).await;
        }
        let place = Arc::clone(&self.place);
        tokio::select! {
            biased;
            attempt = self.reply() => return attempt,
            permit = place.request_permit() => self.send(permit, deadline),
        }
        loop {
            let overdue = Instant::now() + self.overdue_after();
            if let Ok(attempt) = timeout_at(overdue, self.reply()).await {
                return attempt;
            }
            if self.engine.silent.allow_copy()
                && let Some(permit) = self.place.try_request_permit()
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
        if !self.copies.may_take_effect() && self.place.others_wait() {
            self.tokens = HANDOVERS;
        }
        let request = Request {
            engine: Arc::clone(&self.engine),
            key: self.key.clone(),
            expiry: self.terms.expiry,
            place: Arc::clone(&self.place),
            copies: Arc::clone(&self.copies),
            ask: Ask {
                expiry: self.terms.expiry,
                tokens: self.tokens,
            },
            limit: limit_until(deadline),
            _permit: permit,
        };
        self.place.asked();
        self.copies.sent();
        self.unanswered += 1;
        self.replies
            .push(crate::task::spawn(request.run().in_current_span()));
    }

    /// The pauses between copies grow, so that a server that comes back is asked soon, with few requests under way.
    fn overdue_after(&self) -> Duration {
        if self.is_blocked {
            COMMAND_LIMIT + SILENT_AFTER
        } else {
            let doubled = 2_u32.saturating_pow(self.unanswered.saturating_sub(1));
            (SILENT_AFTER * doubled).min(LONGEST_OVERDUE)
        }
    }

    fn attempt(&mut self, reply: Reply) -> Attempt {
        let is_blocked = reply.answer.as_ref().is_err_and(fault::is_blocked_document);
        self.is_blocked = is_blocked;
        self.unanswered = 0;
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
        let lasts = remaining.map_or(self.terms.expiry, |left| left.min(self.terms.expiry));
        if self.engine.is_closed() || Instant::now() >= sent + counted(lasts) {
            return Attempt::TooLate;
        }
        self.is_lease = true;
        let grant = Grant {
            token: FencingToken::new(last_token.get() - (self.tokens - 1)),
            last_token,
            copies: self.copies.may_take_effect().then(|| Arc::clone(&self.copies)),
            sent,
            lasts,
        };
        let (engine, place) = (Arc::clone(&self.engine), Arc::clone(&self.place));
        let lease = Lease::new(engine, self.key.clone(), grant, self.terms, place);
        trace::acquired(&lease);
        Attempt::Won(LockGuard::new(Arc::new(lease)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_lease && self.copies.give_up(Duration::ZERO) {
            let (key, expiry) = (self.key.clone(), self.terms.expiry);
            self.engine.keeper.withdraw(vec![
                Withdrawal::of_claim(key.clone(), expiry, Arc::clone(&self.place)),
                Withdrawal::late(key, expiry, Arc::clone(&self.copies)),
            ]);
        }
    }
}

impl Request {
    /// The reply; `None` if there was none for too long.
    async fn run(self) -> Option<Reply> {
        let sent = Instant::now();
        let answer = self.answer().await;
        if answer.as_ref().is_some_and(is_from_server) {
            self.engine.silent.answered();
        }
        if self.copies.answered(sent, answer.as_ref()) {
            let mut release = Withdrawal::of_claim(self.key.clone(), self.expiry, Arc::clone(&self.place));
            release.min_hold = self.copies.min_hold();
            self.engine.keeper.withdraw(vec![release]);
        }
        Some(Reply {
            sent,
            limit: self.limit,
            answer: answer?,
        })
    }

    async fn answer(&self) -> Option<Result<Answer, LockError>> {
        let mut asked = pin!(self.engine.store.claim(&self.key, self.ask, self.limit));
        if let Ok(answer) = timeout(SILENT_AFTER, asked.as_mut()).await {
            return Some(answer);
        }
        let _silent = self.engine.silent.begin();
        timeout(GIVE_UP_AFTER.saturating_sub(SILENT_AFTER), asked)
            .await
            .ok()
    }
}

fn is_from_server(answer: &Result<Answer, LockError>) -> bool {
    answer.as_ref().map_or_else(fault::is_blocked_document, |_| true)
}

/// A part of the time that is left: the reply has to come back before the caller's time is up.
fn limit_until(deadline: Option<Instant>) -> Duration {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(COMMAND_LIMIT, |left| {
        left.mul_f64(0.8).clamp(LEAST_COMMAND_LIMIT, COMMAND_LIMIT)
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
