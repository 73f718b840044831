use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::timeout;

use crate::LockError;
use crate::error::meaning::Meaning;
use crate::store::Store;
use crate::sync::lock;
use crate::task;
use crate::timing::{PROBE_LIMIT, PROBE_NO_REPLY};

/// The result of a request: whether the server that replied is a primary; `None` until there is a result.
type Outcome = Option<Result<bool, LockError>>;

/// Finds out whether a server replies. All callers at a time share one request, so that frequent health checks use up no
/// connections while the server does not reply.
pub(crate) struct Probe {
    store: Arc<Store>,
    /// The request that was sent last.
    latest: Mutex<Option<watch::Receiver<Outcome>>>,
}

impl Probe {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            latest: Mutex::default(),
        }
    }

    /// Whether a primary replies; an error if no server replies within [`PROBE_LIMIT`]. If the server has refused the
    /// last acquire or renewal, it is asked again first. Cancel safe: the request continues.
    pub(crate) async fn finds_primary(&self) -> Result<bool, LockError> {
        let mut request = self.request();
        match timeout(PROBE_LIMIT, request.wait_for(Option::is_some)).await {
            Ok(Ok(outcome)) => outcome.clone().unwrap_or(Ok(false)),
            Ok(Err(_)) => Err(Meaning::RuntimeEnded.error()),
            Err(_) => Err(self.store.unanswered("`hello` command", PROBE_LIMIT)),
        }
    }

    /// The request in flight, or a new one.
    fn request(&self) -> watch::Receiver<Outcome> {
        let mut latest = lock(&self.latest);
        // An error says that the task has ended, with or without an outcome.
        let in_flight = latest.as_ref().filter(|request| request.has_changed().is_ok());
        match in_flight {
            Some(request) => request.clone(),
            None => latest.insert(send(Arc::clone(&self.store))).clone(),
        }
    }
}

fn send(store: Arc<Store>) -> watch::Receiver<Outcome> {
    let (sender, request) = watch::channel(None);
    task::spawn(async move {
        // Nothing depends on the result of this command later: dropping it closes a connection that may be dead.
        let asking = async {
            let (has_primary, _) = store.hello().await?;
            // The reply to `hello` is valid even without a reply to this request.
            let _ = timeout(PROBE_LIMIT / 2, store.ask_again()).await;
            Ok(has_primary)
        };
        let reply = timeout(PROBE_NO_REPLY, asking).await;
        let unanswered = |_| Err(store.unanswered("`hello` command", PROBE_NO_REPLY));
        sender.send_replace(Some(reply.unwrap_or_else(unanswered)));
    });
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn probe() -> Probe {
        Probe::new(Arc::new(Store::Memory(Arc::new(MemoryStore::new()))))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_reply_is_shared_and_then_replaced() {
        let probe = probe();
        let (silent, request) = watch::channel(None);
        *lock(&probe.latest) = Some(request);
        let begun = tokio::time::Instant::now();
        let (one, other) = tokio::join!(probe.finds_primary(), probe.finds_primary());
        assert!(one.is_err() && other.is_err());
        assert_eq!(begun.elapsed(), PROBE_LIMIT);
        assert_eq!(silent.receiver_count(), 1, "no other request was sent");
        drop(silent);
        assert!(probe.finds_primary().await.unwrap(), "a new request is sent");
    }
}
