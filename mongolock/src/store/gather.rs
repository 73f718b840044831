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
use super::look::duration;
use super::{AdmissionClass, Sending, Store, driver_error};
use crate::error::failure::Failure;
use crate::few::Few;
use crate::protocol::{Order, Reply, Row};
use crate::sync::lock;
use crate::timing::{GATHER_LIMIT, LANE_GRACE, TOGETHER_LIMIT};
use crate::{FencingToken, LockError, lock_id, task, trace};

/// What requests of a group are: how one of them is sent alone, and several together.
#[derive(Clone, Copy)]
pub(super) struct Gathered {
    alone: Sending,
    together: Sending,
    /// Among which commands another one of a group is admitted.
    class: AdmissionClass,
}

impl Gathered {
    pub(super) const CLAIMS: Self = Self {
        alone: Sending::CLAIM,
        together: Sending::CLAIM,
        class: AdmissionClass::Woken,
    };
    pub(super) const RELEASES: Self = Self {
        alone: Sending::RELEASE,
        together: Sending::RELEASES,
        class: AdmissionClass::Release,
    };
}

/// The reply to a request, and the time since its command was sent. The error of a command that may have applied it is
/// [`unknown`].
pub(super) type Answer = Result<(Reply, Duration), LockError>;

/// Requests that were admitted together.
pub(super) struct Group {
    state: Mutex<GroupState>,
    /// Notified when each member has come or has been dropped.
    complete: Notify,
}

pub(super) struct GroupState {
    /// The number of members that have neither come nor been dropped.
    expected: usize,
    joined: Vec<Joined>,
    /// The permission for one command, until that has begun.
    in_flight: Option<InFlight>,
}

/// A member of a group, before it has come.
pub(crate) struct Member {
    group: Arc<Group>,
    has_come: bool,
}

/// A request that has come.
struct Joined {
    row: Row,
    /// The limit of the request at the server.
    limit: Duration,
    answer: oneshot::Sender<Answer>,
}

/// What a member does that has come.
enum Role {
    /// It sends the command for all.
    Sends(Arc<Group>, oneshot::Receiver<Answer>),
    /// Another one sends the command.
    Waits(oneshot::Receiver<Answer>),
}

/// The requests of one command, which ends when this is dropped.
struct Departure {
    rows: Vec<Row>,
    /// The limit of the command at the server.
    limit: Duration,
    answers: Vec<oneshot::Sender<Answer>>,
    in_flight: Option<InFlight>,
}

impl Group {
    /// The members of a group that may send one command.
    pub(super) fn members(in_flight: InFlight, number: usize) -> impl Iterator<Item = Member> {
        let group = Arc::new(Self {
            state: Mutex::new(GroupState {
                expected: number,
                joined: Vec::new(),
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
    async fn depart(&self) -> Departure {
        if lock(&self.state).expected > 0 {
            let _ = timeout(GATHER_LIMIT, self.complete.notified()).await;
        }
        let mut state = lock(&self.state);
        let (mut rows, mut answers) = (Vec::new(), Vec::new());
        let mut limit = TOGETHER_LIMIT;
        for joined in state.joined.drain(..) {
            limit = limit.min(joined.limit);
            rows.push(joined.row);
            answers.push(joined.answer);
        }
        Departure {
            rows,
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
    fn join(mut self, row: Row, limit: Duration) -> Role {
        let group = Arc::clone(&self.group);
        let mut state = lock(&group.state);
        let (answer, answered) = oneshot::channel();
        let is_first = state.joined.is_empty();
        state.joined.push(Joined { row, limit, answer });
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
    pub(super) async fn together(&self, of: Gathered, member: Member, row: Row, limit: Duration) -> Answer {
        let answered = match member.join(row, limit) {
            Role::Sends(group, answered) => {
                // The permission of the group was for its first command.
                let _admission = if group.has_permission() {
                    None
                } else {
                    Some(self.admissions().admit(of.class, None).await)
                };
                self.send_for_all(of, group.depart().await).await;
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
    async fn send_for_all(&self, of: Gathered, departure: Departure) {
        let Departure {
            rows,
            limit,
            answers,
            in_flight,
        } = departure;
        let most = limit + LANE_GRACE;
        let rows = Few::collected(rows);
        let sent = Instant::now();
        // A command that still waits for a connection is kept, as a command alone is.
        let mut sending = pin!(task::reply_within(most, self.send(of, &rows, limit)));
        let reply = timeout(most, sending.as_mut()).await;
        drop(in_flight);
        let is_unsent = reply.is_err();
        let reply = reply.ok().flatten();
        match reply.unwrap_or_else(|| Err(LockError::no_reply("command", most))) {
            Ok(replies) => {
                let since = sent.elapsed();
                for (answer, reply) in answers.into_iter().zip(replies.into_values()) {
                    // A caller whose task has ended needs no answer.
                    drop(answer.send(reply.map(|reply| (reply, since))));
                }
            }
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

    /// Sends the command for these requests; one of several until the server does not reject it for overload: nothing was written
    /// then.
    async fn send(
        &self,
        of: Gathered,
        rows: &Few<Row>,
        limit: Duration,
    ) -> Result<Few<Result<Reply, LockError>>, LockError> {
        if let Few::One(_) = rows {
            return self.run(of.alone, rows, Order::Each, limit).await.flatten();
        }
        self.count_gathered(of.together.kind, rows.len());
        let by = Instant::now() + limit;
        loop {
            let begun = Instant::now();
            let rest = by.saturating_duration_since(begun);
            match self.run(of.together, rows, Order::Each, rest).await {
                Err(error) if driver_error::wrote_nothing(&error) => {
                    let pause = self.admissions().pause_after_rejection();
                    // The driver may have repeated the command after pauses of its own, and would do so again: without a reply in
                    // time the outcome would be unknown.
                    if by <= Instant::now() + pause + begun.elapsed().max(pause) {
                        return Err(error);
                    }
                    sleep(pause).await;
                }
                ran => return ran?.map_err(unknown),
            }
        }
    }
}

/// Whether a claim had its lock until a release with others, which was sent so long ago, by the document after it; this is the
/// token that the document has as long as nobody else has acquired the lock. An error sends the release again, alone: the claim has
/// its lock still, or another one has acquired it since, perhaps after that release, which then counts as made. One that has
/// neither its lock nor lost it was released by that command, or by force at the same time.
pub(super) fn was_released(
    lock_id: &str,
    token: FencingToken,
    (reply, since): (Reply, Duration),
) -> Result<bool, LockError> {
    if let Some(is_applied) = reply.is_applied {
        return Ok(is_applied);
    }
    let Some(sight) = reply.sight else {
        return Ok(false);
    };
    let is_released = sight.has("") || sight.has(&lock_id::kept_of(lock_id));
    if is_released && sight.document.token.long() == Some(token.get()) {
        return Ok(true);
    }
    // Dates have milliseconds.
    let is_recent = sight
        .held_for()
        .is_some_and(|held| duration(held) <= since + Duration::from_millis(1));
    if is_recent || sight.has(lock_id) {
        return Err(unknown(LockError::no_reply("release", TOGETHER_LIMIT)));
    }
    Ok(false)
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
