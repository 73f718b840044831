//! How the library starts its tasks: the simulation stops and crashes them with the process that they belong to.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::JoinError;
use tracing::Instrument;

use crate::LockError;
use crate::error::failure::Failure;
#[cfg(test)]
pub(crate) use crate::simulation::spawn;
use crate::timing::DEAD_CONNECTION;
#[cfg(not(test))]
pub(crate) use tokio::spawn;

/// Runs a request to its end on a task of its own, even if the caller is cancelled.
pub(crate) async fn run_to_end<T: Send + 'static>(
    request: impl Future<Output = Result<T, LockError>> + Send + 'static,
) -> Result<T, LockError> {
    start(request).await
}

/// Starts a request at once, on a task of its own. The returned future waits for its end and does not contain it.
pub(crate) fn start<T: Send + 'static>(
    request: impl Future<Output = Result<T, LockError>> + Send + 'static,
) -> impl Future<Output = Result<T, LockError>> + Send + Sync {
    let task = spawn(request.in_current_span());
    async move { joined(task.await) }
}

/// Runs a request that never waits, without a task.
pub(crate) fn run_at_once<T>(request: impl Future<Output = T>) -> T {
    match pin!(request).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a store that never waits has made a request wait"),
    }
}

/// Waits for the reply to a request that runs on a task of its own; the request goes on after the limit.
pub(crate) async fn wait_for_reply<T>(
    task: impl Future<Output = Result<Result<T, LockError>, JoinError>>,
    request: &str,
    limit: Duration,
) -> Result<T, LockError> {
    match tokio::time::timeout(limit, task).await {
        Ok(ended) => joined(ended),
        Err(_) => Err(LockError::no_reply(request, limit)),
    }
}

/// Waits for the reply to a command for at most [`DEAD_CONNECTION`]; after that its connection must be dead.
pub(crate) async fn with_reply_limit<T>(
    command: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    match tokio::time::timeout(DEAD_CONNECTION, command).await {
        Ok(reply) => reply,
        Err(_) => Err(LockError::no_reply("command", DEAD_CONNECTION)),
    }
}

/// Resolves when one of the futures does.
pub(crate) async fn any<F: Future<Output = ()> + Unpin>(futures: impl Iterator<Item = F>) {
    let mut futures: Vec<F> = futures.collect();
    poll_fn(|cx| {
        let ended = futures
            .iter_mut()
            .any(|future| Pin::new(future).poll(cx).is_ready());
        if ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Polls a future once, and returns whether it is still pending.
#[cfg(test)]
pub(crate) async fn is_pending<F: Future>(mut future: std::pin::Pin<&mut F>) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// The output of a task that has ended; a panic of the task continues in the caller.
fn joined<T>(ended: Result<Result<T, LockError>, JoinError>) -> Result<T, LockError> {
    ended.unwrap_or_else(|ended| match ended.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // The runtime is shutting down, and the task with it.
        Err(_) => Err(Failure::RuntimeEnded.into_error()),
    })
}
