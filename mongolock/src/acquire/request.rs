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
use crate::store::{AcquireReply, AcquireRequest, Admission, Claimed, LeaseId, driver_error};
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
    pub(super) _admission: Admission,
}

impl Shared {
    /// Releases the claim on one of the names in the background, and again later if one of its requests may take effect late.
    /// That of a set has no turn in the line, because no caller had its lock.
    pub(super) fn release(&self, index: usize, turn: Option<Turn>, repeats: bool) -> ClaimRelease {
        let entry = || QueueSlot::Entry {
            entry: Arc::clone(&self.entries[index]),
        };
        let slot = turn.map_or_else(entry, QueueSlot::Turn);
        let is_noted_in_line = !self.target.is_set();
        let copies = repeats.then(|| self.copies[index].clone());
        ClaimRelease::of_claim(
            self.keys[index].clone(),
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
        let (sent, shared) = (Instant::now(), &self.shared);
        let outcome = self.result().await;
        // The claims of a set may have their locks, however the query about them has failed.
        let was_claimed = matches!(outcome, Some(Ok(_)));
        let result = outcome.map(Result::flatten);
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
            let repeats = shared.target.is_set();
            let releases = due.into_iter().map(|index| shared.release(index, None, repeats));
            shared.engine.renewer.release_in_background(releases.collect());
        }
        Some(Reply {
            sent,
            limit: self.limit,
            result: result?,
        })
    }

    async fn result(&self) -> Option<Result<Claimed, LockError>> {
        let store = &self.shared.engine.store;
        let request = store.claim(&self.shared.keys, self.command, self.limit);
        if store.never_waits() {
            return Some(request.await);
        }
        task::reply_within(given_up_after(self.limit), request).await
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
