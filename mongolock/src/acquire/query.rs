//! A query about locks that a call sends beside its acquire requests.

use std::future::Future;
use std::sync::Arc;

use tokio::time::timeout;

use crate::engine::Engine;
use crate::lease::Entry;
use crate::timing::ACQUIRE_OVERDUE;
use crate::{LockError, task};

/// Starts a query, which runs to its end on a task of its own, and returns its result; after a lost reply the caller sends
/// another one, instead of waiting for the end of the connection. The reply is noted in the queue even if the caller has left:
/// others may wait there. Cancel safe: the query goes on.
pub(super) fn start<T, Q>(
    engine: &Engine,
    entry: &Arc<Entry>,
    query: Q,
) -> impl Future<Output = Result<T, LockError>> + use<T, Q>
where
    T: Send + 'static,
    Q: Future<Output = Result<T, LockError>> + Send + 'static,
{
    let (overdue, asked) = (Arc::clone(&engine.queues.overdue), Arc::clone(entry));
    let number = entry.front().request_sent();
    let running = task::start(async move {
        let reply = overdue.count(query).await;
        if reply.is_ok() {
            asked.front().replied(number);
        }
        reply
    });
    async move {
        timeout(ACQUIRE_OVERDUE, running)
            .await
            .unwrap_or_else(|_| Err(LockError::no_reply("query", ACQUIRE_OVERDUE)))
    }
}
