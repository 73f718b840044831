//! Requests that have waited for the same room become one command: claims, and releases.
//!
//! What is in flight costs the server and this process a price for each command, hardly for each request. So requests that
//! wait anyway are admitted together ([`Admissions`](super::Admissions)), and the first of them that arrives here sends the
//! command for all. No request waits for others that have not been admitted.
//!
//! A command with several requests delays all of them if one document is blocked. So it has a short limit, and requests whose
//! common command has failed go alone after that, with the same ids ([`Failure::Together`]).

#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::admission::InFlight;
use super::{AcquireReply, AcquireRequest, AdmissionClass, Claimed, LeaseId, Store, driver_error};
use crate::error::failure::Failure;
use crate::few::Few;
use crate::meter::CommandKind;
use crate::sync::lock;
use crate::timing::{GATHER_LIMIT, LANE_GRACE, TOGETHER_LIMIT};
use crate::{FencingToken, LockError, lock_id, task, trace};

/// A claim on one lock.
#[derive(Debug, Clone)]
pub(crate) struct ClaimItem {
    pub(crate) key: LeaseId,
    pub(crate) request: AcquireRequest,
}

/// A release of one lock.
#[derive(Debug, Clone)]
pub(crate) struct ReleaseItem {
    pub(crate) key: LeaseId,
    /// The token that the document has as long as nobody else has acquired the lock.
    pub(crate) token: FencingToken,
    pub(crate) min_hold: Duration,
}

/// What a query after a release of several claims finds in the document of one of them.
#[derive(Debug, Clone)]
pub(crate) struct AfterRelease {
    pub(crate) lock_id: String,
    pub(crate) token: i64,
    /// The time since the last acquisition, by the server's clock.
    pub(crate) held_for: Duration,
}

impl ReleaseItem {
    /// Whether the claim had its lock until a release of several claims that began so long ago, by the document after it. An
    /// error sends the release again, alone: the claim has its lock still, or another one has acquired it since, perhaps after
    /// that release, which then counts as made. One that has neither its lock nor lost it was released by that command, or by
    /// force at the same time.
    pub(crate) fn outcome(&self, found: Option<&AfterRelease>, since: Duration) -> Result<bool, LockError> {
        let Some(found) = found else {
            return Ok(false);
        };
        let is_released = found.lock_id.is_empty() || found.lock_id == lock_id::kept_of(&self.key.lock_id);
        if is_released && found.token == self.token.get() {
            return Ok(true);
        }
        // Dates have milliseconds.
        let is_recent = found.held_for <= since + Duration::from_millis(1);
        if is_recent || *found.lock_id == *self.key.lock_id {
            return Err(unknown(LockError::no_reply("release", TOGETHER_LIMIT)));
        }
        Ok(false)
    }
}

/// Requests that were admitted together.
pub(super) struct Group {
    state: Mutex<GroupState>,
    /// Notified when each member has come or has been dropped.
    complete: Notify,
}

pub(super) struct GroupState {
    /// The number of members that have neither come nor been dropped.
    expected: usize,
    claims: Vec<Joined<ClaimItem>>,
    releases: Vec<Joined<ReleaseItem>>,
    /// The permission for one command, until that has begun.
    in_flight: Option<InFlight>,
}

/// A member of a group, before it has come.
pub(crate) struct Member {
    group: Arc<Group>,
    has_come: bool,
}

/// A request that has come.
pub(super) struct Joined<T: Gathered> {
    item: T,
    /// The limit of the request at the server.
    limit: Duration,
    answer: oneshot::Sender<Answer<T>>,
}

pub(super) type Answer<T> = Result<<T as Gathered>::Outcome, LockError>;

/// A request that can be one of several in a command.
pub(super) trait Gathered: Sized + Send + Sync {
    type Outcome: Send;

    /// What the command is for.
    const KIND: CommandKind;

    /// Among which commands another one of a group is admitted.
    const CLASS: AdmissionClass;

    /// Those of a group that have come.
    fn joined(state: &mut GroupState) -> &mut Vec<Joined<Self>>;

    /// Sends one command for all, which has an answer for each. An error is that of the command.
    fn send_together(
        items: &[Self],
        store: &Store,
        limit: Duration,
    ) -> impl Future<Output = Result<Vec<Answer<Self>>, LockError>> + Send;

    /// Sends a command for this request alone.
    fn send_alone(&self, store: &Store, limit: Duration) -> impl Future<Output = Answer<Self>> + Send;
}

impl Gathered for ClaimItem {
    type Outcome = Claimed;

    const KIND: CommandKind = CommandKind::Acquire;
    const CLASS: AdmissionClass = AdmissionClass::Woken;

    fn joined(state: &mut GroupState) -> &mut Vec<Joined<Self>> {
        &mut state.claims
    }

    async fn send_together(
        items: &[Self],
        store: &Store,
        limit: Duration,
    ) -> Result<Vec<Answer<Self>>, LockError> {
        let replies = store.claim_each(items, limit).await?.map_err(unknown)?;
        let outcome = |reply: Result<AcquireReply, LockError>| Ok(Ok(Few::one(reply?)));
        Ok(replies.into_iter().map(outcome).collect())
    }

    async fn send_alone(&self, store: &Store, limit: Duration) -> Answer<Self> {
        let key = Few::one(self.key.clone());
        store.claim_alone(&key, self.request, limit).await
    }
}

impl Gathered for ReleaseItem {
    type Outcome = bool;

    const KIND: CommandKind = CommandKind::Release;
    const CLASS: AdmissionClass = AdmissionClass::Release;

    fn joined(state: &mut GroupState) -> &mut Vec<Joined<Self>> {
        &mut state.releases
    }

    async fn send_together(
        items: &[Self],
        store: &Store,
        limit: Duration,
    ) -> Result<Vec<Answer<Self>>, LockError> {
        store.release_each(items, limit).await?.map_err(unknown)
    }

    async fn send_alone(&self, store: &Store, limit: Duration) -> Answer<Self> {
        let keys = std::slice::from_ref(&self.key);
        store.release_alone(keys, self.min_hold, limit).await
    }
}

/// The outcome of each request of a command in their order; the inner error is that of the query for them.
pub(crate) type Outcomes<T> = Result<Vec<Result<T, LockError>>, LockError>;

/// What a member does that has come.
enum Role<T: Gathered> {
    /// It sends the command for all.
    Sends(Arc<Group>, oneshot::Receiver<Answer<T>>),
    /// Another one sends the command.
    Waits(oneshot::Receiver<Answer<T>>),
}

/// The requests of one command, which ends when this is dropped.
struct Departure<T: Gathered> {
    items: Vec<T>,
    /// The limit of the command at the server.
    limit: Duration,
    answers: Vec<oneshot::Sender<Answer<T>>>,
    in_flight: Option<InFlight>,
}

impl Group {
    /// The members of a group that may send one command.
    pub(super) fn members(in_flight: InFlight, number: usize) -> impl Iterator<Item = Member> {
        let group = Arc::new(Self {
            state: Mutex::new(GroupState {
                expected: number,
                claims: Vec::new(),
                releases: Vec::new(),
                in_flight: Some(in_flight),
            }),
            complete: Notify::new(),
        });
        (0..number).map(move |_| Member {
            group: Arc::clone(&group),
            has_come: false,
        })
    }

    /// Waits for the members on their way here, and takes the requests of those that have come. One whose thread is kept busy
    /// by other code keeps the others for [`GATHER_LIMIT`] at most; those that come later become another command.
    async fn depart<T: Gathered>(&self) -> Departure<T> {
        if lock(&self.state).expected > 0 {
            let _ = timeout(GATHER_LIMIT, self.complete.notified()).await;
        }
        let mut state = lock(&self.state);
        let (mut items, mut answers) = (Vec::new(), Vec::new());
        let mut limit = TOGETHER_LIMIT;
        for joined in T::joined(&mut state).drain(..) {
            limit = limit.min(joined.limit);
            items.push(joined.item);
            answers.push(joined.answer);
        }
        Departure {
            items,
            limit,
            answers,
            in_flight: state.in_flight.take(),
        }
    }

    /// Whether no command of the group has begun.
    fn has_permission(&self) -> bool {
        lock(&self.state).in_flight.is_some()
    }

    fn one_less(&self, state: &mut GroupState) {
        state.expected -= 1;
        if state.expected == 0 {
            self.complete.notify_one();
        }
    }
}

impl Member {
    fn join<T: Gathered>(mut self, item: T, limit: Duration) -> Role<T> {
        let group = Arc::clone(&self.group);
        let mut state = lock(&group.state);
        let (answer, answered) = oneshot::channel();
        let joined = T::joined(&mut state);
        let is_first = joined.is_empty();
        joined.push(Joined { item, limit, answer });
        self.has_come = true;
        group.one_less(&mut state);
        drop(state);
        if is_first {
            Role::Sends(group, answered)
        } else {
            Role::Waits(answered)
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.has_come {
            self.group.one_less(&mut lock(&self.group.state));
        }
    }
}

impl Store {
    /// Sends a request with the others that were admitted together with it.
    pub(super) async fn together<T: Gathered>(&self, member: Member, item: T, limit: Duration) -> Answer<T> {
        let answered = match member.join(item, limit) {
            Role::Sends(group, answered) => {
                // The permission of the group was for its first command.
                let _admission = if group.has_permission() {
                    None
                } else {
                    Some(self.admissions().admit(T::CLASS, None).await)
                };
                self.send_for_all(group.depart::<T>().await).await;
                answered
            }
            Role::Waits(answered) => answered,
        };
        // The task that sends the command ends without an answer only with its runtime.
        answered
            .await
            .unwrap_or_else(|_| Err(Failure::RuntimeEnded.into_error()))
    }

    /// Sends the command and gives each request its answer, [`LANE_GRACE`] after the limit of the command at the latest.
    async fn send_for_all<T: Gathered>(&self, departure: Departure<T>) {
        let Departure {
            items,
            limit,
            answers,
            in_flight,
        } = departure;
        let most = limit + LANE_GRACE;
        // A command that still waits for a connection is kept, as a command alone is.
        let mut sending = pin!(task::reply_within(most, self.send(&items, limit)));
        let reply = timeout(most, sending.as_mut()).await;
        drop(in_flight);
        let is_unsent = reply.is_err();
        let reply = reply.ok().flatten();
        match reply.unwrap_or_else(|| Err(LockError::no_reply("command", most))) {
            Ok(outcomes) => answers
                .into_iter()
                .zip(outcomes)
                // A caller whose task has ended needs no answer.
                .for_each(|(answer, outcome)| drop(answer.send(outcome))),
            Err(error) => {
                if answers.len() > 1 {
                    trace::split(answers.len(), &error);
                }
                for answer in answers {
                    drop(answer.send(Err(of_each(error.clone()))));
                }
            }
        }
        if is_unsent {
            drop(sending.await);
        }
    }

    /// Sends the command for these requests.
    async fn send<T: Gathered>(&self, items: &[T], limit: Duration) -> Result<Vec<Answer<T>>, LockError> {
        if let [item] = items {
            return Ok(vec![Ok(item.send_alone(self, limit).await?)]);
        }
        self.count_gathered(T::KIND, items.len());
        self.send_until(items, limit).await
    }

    /// Sends the command until the server does not reject it for overload: nothing was written then.
    async fn send_until<T: Gathered>(
        &self,
        items: &[T],
        limit: Duration,
    ) -> Result<Vec<Answer<T>>, LockError> {
        let by = Instant::now() + limit;
        loop {
            let begun = Instant::now();
            match T::send_together(items, self, by.saturating_duration_since(begun)).await {
                Err(error) if driver_error::wrote_nothing(&error) => {
                    let pause = self.admissions().pause_after_rejection();
                    // The driver may have repeated the command after pauses of its own, and would do so again: without a reply in
                    // time the outcome would be unknown.
                    if by <= Instant::now() + pause + begun.elapsed().max(pause) {
                        return Err(error);
                    }
                    sleep(pause).await;
                }
                reply => return reply,
            }
        }
    }
}

/// The error of a command for each of its requests: one that the command may have made goes alone, and one that it cannot
/// have made has failed.
fn of_each(error: LockError) -> LockError {
    let is_known = driver_error::was_not_applied(&error) || driver_error::is_closed(&error);
    if is_known || driver_error::failed_together(&error) {
        return error;
    }
    unknown(error)
}

/// The error for requests of a command that may have made them: each goes alone. It is also that of a query for their
/// outcomes, whatever its own error says: the command before it was confirmed.
fn unknown(error: LockError) -> LockError {
    Failure::Together { error }.into_error()
}
