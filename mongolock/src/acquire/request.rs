//! One request of a claim: it runs to its end, whatever becomes of the call.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::asking::given_up_after;
use super::target::Target;
use crate::engine::Engine;
use crate::few::Few;
use crate::lease::claim_release::ClaimRelease;
use crate::lease::copies::Copies;
use crate::lease::{Entry, QueueSlot, RequestPermit, Turn};
use crate::options::Options;
use crate::queue::RequestNumber;
use crate::store::{
    AcquireReply, AcquireRequest, Admission, AdmissionClass, Claimed, LeaseId, Trouble, driver_error,
};
use crate::timing::{ACQUIRE_LIMIT_MIN, CROWDED_LIMIT, SLOW_REPLY};
use crate::{LockError, task};

/// What a claim and its requests have in common. Each list has a value for each name.
pub(super) struct Shared {
    pub(super) engine: Arc<Engine>,
    pub(super) target: Target,
    pub(super) keys: Few<LeaseId>,
    pub(super) options: Arc<Options>,
    /// The queues, which keep a shutdown waiting for replies.
    pub(super) entries: Few<Arc<Entry>>,
    pub(super) copies: Few<Copies>,
}

/// The reply to one request.
pub(super) struct Reply {
    /// The time at which the request was sent.
    pub(super) sent: Instant,
    /// The limit of the request at the server.
    pub(super) limit: Duration,
    pub(super) result: Result<Few<AcquireReply>, LockError>,
}

/// The outcome of a request; `None` without a reply.
type Sent = Option<Result<Claimed, LockError>>;

/// One request, on a task of its own.
pub(super) struct Request {
    pub(super) shared: Arc<Shared>,
    pub(super) command: AcquireRequest,
    pub(super) numbers: Few<RequestNumber>,
    /// The limit of the request at the server.
    pub(super) limit: Duration,
    /// The permit bounds how many requests of the name are without a reply.
    pub(super) _permit: RequestPermit,
    /// The permission bounds how many commands of the provider are in flight.
    pub(super) admission: Admission,
}

impl Shared {
    /// Releases the claim on one of the names in the background, and again later if one of its requests may take effect late.
    pub(super) fn release(&self, index: usize, turn: Option<Turn>, repeats: bool) -> ClaimRelease {
        let entry = || QueueSlot::Entry {
            entry: Arc::clone(&self.entries[index]),
        };
        let slot = turn.map_or_else(entry, QueueSlot::Turn);
        let is_noted_in_line = self.target.is_noted_in_line();
        let copies = repeats.then(|| self.copies[index].clone());
        ClaimRelease::of_claim(
            self.keys[index].clone(),
            self.target.end(),
            self.options.taken_for(),
            slot,
            copies,
            is_noted_in_line,
        )
    }
}

impl Request {
    /// Runs the request to its end; `None` if there was no reply for too long.
    pub(super) async fn run(self) -> Option<Reply> {
        let (mut sent, shared) = (Instant::now(), &self.shared);
        let mut outcome = shared.send(self.command, self.limit, self.admission).await;
        if matches!(&outcome, Some(Err(error)) if driver_error::failed_together(error)) {
            shared.note(sent, &outcome);
            // It is on the heap, because it is rare.
            (sent, outcome) = Box::pin(shared.send_alone(self.command, self.limit, sent)).await?;
        }
        shared.note(sent, &outcome);
        let result = outcome?.flatten();
        if is_from_server(&result) {
            for (entry, number) in shared.entries.iter().zip(&*self.numbers) {
                entry.front().replied(*number);
            }
        }
        Some(Reply {
            sent,
            limit: self.limit,
            result,
        })
    }
}

impl Shared {
    async fn send(&self, command: AcquireRequest, limit: Duration, admission: Admission) -> Sent {
        let store = &self.engine.store;
        if let Some(lease) = self.target.detached() {
            let handle_id = lease.handle.lock_id();
            // It is on the heap, so that the task of a claim has no room for it.
            let request = Box::pin(store.resume(&self.keys, handle_id, command, limit, admission));
            return self.reply(request, limit).await;
        }
        self.reply(store.claim(&self.keys, command, limit, admission), limit)
            .await
    }

    async fn reply(
        &self,
        request: impl Future<Output = Result<Claimed, LockError>>,
        limit: Duration,
    ) -> Sent {
        if self.engine.store.never_waits() {
            return Some(request.await);
        }
        task::reply_within(given_up_after(limit), request).await
    }

    /// Sends a request alone, with the rest of its limit, after one command with others has failed; `None` if the claim was
    /// given up in the meantime.
    async fn send_alone(
        &self,
        command: AcquireRequest,
        limit: Duration,
        begun: Instant,
    ) -> Option<(Instant, Sent)> {
        let admissions = self.engine.store.admissions();
        let admission = admissions.admit(AdmissionClass::Woken, None).await;
        let rest = limit.saturating_sub(begun.elapsed()).max(ACQUIRE_LIMIT_MIN);
        let limit = if admission.is_crowded {
            rest.min(CROWDED_LIMIT)
        } else {
            rest
        };
        if !self.copies[0].sent_again() {
            return None;
        }
        // The reply says what is left of the lease from now on, so the lease does not count from the common command.
        let sent = Instant::now();
        Some((sent, self.send(command, limit, admission).await))
    }

    /// Notes what a request that was sent then has brought for each name, and releases what it has acquired for a claim that
    /// was given up.
    fn note(&self, sent: Instant, outcome: &Sent) {
        // The driver sends what was rejected for overload again, after pauses: such a reply is not late.
        let rejects = || self.engine.store.admissions().overload().trouble() == Trouble::Rejections;
        // Few replies are slow, and only for them the answer matters.
        let is_paused = sent.elapsed() >= SLOW_REPLY && rejects();
        let sent = if is_paused { Instant::now() } else { sent };
        let due = self.copies[0].note(sent, self.keys.len(), outcome.as_ref());
        if !due.is_empty() {
            let repeats = self.target.is_set();
            let releases = due.into_iter().map(|index| self.release(index, None, repeats));
            self.engine.renewer.release_in_background(releases.collect());
        }
    }
}

/// Whether the server has answered: a document that another operation blocks is an answer as well.
fn is_from_server<T>(result: &Result<T, LockError>) -> bool {
    result
        .as_ref()
        .map_or_else(driver_error::is_blocked_document, |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broken connection does not show that the server works; a document that a transaction blocks does.
    #[test]
    fn an_error_is_from_the_server_if_it_names_a_blocked_document() {
        let blocked = driver_error::blocked("n", mongodb::error::Error::custom("blocked"));
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(is_from_server(&Ok(())) && is_from_server(&Err::<(), _>(blocked)));
        assert!(!is_from_server(&Err::<(), _>(LockError::Mongo(broken.into()))));
    }
}
