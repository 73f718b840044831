//! A query about locks that a call sends beside its acquire requests.

use std::future::Future;
use std::sync::Arc;

use tokio::time::timeout;

use crate::lease::Entry;
use crate::store::{AdmissionClass, Store};
use crate::timing::ACQUIRE_OVERDUE;
use crate::{LockError, task};

/// Starts a query, which runs to its end on a task of its own, and returns its result; after a lost reply the caller sends
/// another one, instead of waiting for the end of the connection. The reply is noted in the queue even if the caller has left:
/// others may wait there. Cancel safe: the query goes on.
pub(super) async fn start<T, Q>(
    store: &Store,
    entry: &Arc<Entry>,
    query: impl FnOnce() -> Q,
) -> Result<T, LockError>
where
    T: Send + 'static,
    Q: Future<Output = Result<T, LockError>> + Send + 'static,
{
    entry.front().request_due();
    // A caller that gives up here leaves nothing that waits for room.
    let admission = store.admissions().admit(AdmissionClass::Woken, None).await;
    let asked = Arc::clone(entry);
    let number = entry.front().request_sent();
    let query = query();
    let running = task::start(async move {
        let reply = query.await;
        drop(admission);
        if reply.is_ok() {
            asked.front().replied(number);
        }
        reply
    });
    timeout(ACQUIRE_OVERDUE, running)
        .await
        .unwrap_or_else(|_| Err(store.no_reply("query", ACQUIRE_OVERDUE)))
}
