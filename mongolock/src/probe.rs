use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::store::Store;
use crate::timing::{COMMAND_LIMIT, PROBE_LIMIT};
use crate::{LockError, task};

/// Finds out whether a server replies. All callers at a time share one request, so that frequent health checks use up no
/// connections while the server does not reply.
pub(crate) struct Probe {
    store: Arc<Store>,
    /// It is locked while a request is in flight.
    last: Arc<Mutex<Option<ProbeReply>>>,
}

/// When a request has ended, and whether the server that replied is a primary.
type ProbeReply = (Instant, Result<bool, LockError>);

impl Probe {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        let last = Arc::default();
        Self { store, last }
    }

    /// Whether a primary replies; an error if no server replies within [`PROBE_LIMIT`]. If the server has refused the
    /// last acquire or renewal, it is asked again first. Cancel safe: the request continues.
    pub(crate) async fn finds_primary(&self) -> Result<bool, LockError> {
        let reply = timeout(PROBE_LIMIT, self.ask(Instant::now())).await;
        reply.unwrap_or_else(|_| Err(self.store.unanswered("`hello` command", PROBE_LIMIT)))
    }

    /// The reply to a request that has ended since this time, or to a new one.
    async fn ask(&self, begun: Instant) -> Result<bool, LockError> {
        let (store, mut last) = (Arc::clone(&self.store), Arc::clone(&self.last).lock_owned().await);
        if let Some((at, reply)) = &*last
            && *at >= begun
        {
            return reply.clone();
        }
        let asking = async move {
            // Nothing depends on the result of this command later: dropping it closes a connection that may be dead.
            let asking = async {
                let (has_primary, _) = store.hello().await?;
                // The reply to `hello` is valid even without a reply to this request.
                let _ = timeout(PROBE_LIMIT / 2, store.ask_again()).await;
                Ok(has_primary)
            };
            let reply = timeout(COMMAND_LIMIT, asking).await;
            let unanswered = |_| Err(store.unanswered("`hello` command", COMMAND_LIMIT));
            let reply = reply.unwrap_or_else(unanswered);
            *last = Some((Instant::now(), reply.clone()));
            reply
        };
        task::start(asking).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_reply_is_shared_and_then_replaced() {
        let probe = Probe::new(Arc::new(Store::Memory(Arc::new(MemoryStore::new()))));
        let mut in_flight = Arc::clone(&probe.last).lock_owned().await;
        let begun = Instant::now();
        let (one, other) = tokio::join!(probe.finds_primary(), probe.finds_primary());
        assert!(one.is_err() && other.is_err());
        assert_eq!(begun.elapsed(), PROBE_LIMIT);
        let replies = async {
            *in_flight = Some((Instant::now(), Ok(false)));
            drop(in_flight);
        };
        let (shared, ()) = tokio::join!(probe.finds_primary(), replies);
        assert!(!shared.unwrap(), "its reply counts");
        tokio::time::advance(PROBE_LIMIT).await;
        assert!(probe.finds_primary().await.unwrap(), "a new request is sent");
    }
}
