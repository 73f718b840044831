//! How the library starts its tasks, and how long it waits for them.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinError;
use tracing::Instrument;

use crate::LockError;
use crate::error::meaning::Meaning;
use crate::timing::{FAILOVER_LIMIT, NO_REPLY, REQUEST_LIMIT};
pub(crate) use tokio::spawn;

/// Starts a request at once, on a task of its own, which goes on if the caller is cancelled. The returned future waits for its end and
/// does not contain it.
pub(crate) fn start<T: Send + 'static>(
    request: impl Future<Output = Result<T, LockError>> + Send + 'static,
) -> impl Future<Output = Result<T, LockError>> + Send + Sync {
    // Its events are in the caller's span.
    let task = spawn(request.in_current_span());
    async move { joined(task.await) }
}

/// The output of a future that does not wait; `None` if it does. The future stays where it is, because that of a command is large.
pub(crate) fn at_once<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Waits for the reply to this request for this time.
pub(crate) async fn limited<T>(
    limit: Duration,
    request: &str,
    command: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    let reply = tokio::time::timeout(limit, command).await;
    reply.unwrap_or_else(|_| Err(LockError::no_reply(request, limit)))
}

/// Runs a request of an operator on a task of its own, so that it runs to its end even if the caller is cancelled.
pub(crate) async fn request<T: Send + 'static>(
    what: &str,
    command: impl Future<Output = Result<T, LockError>> + Send + 'static,
) -> Result<T, LockError> {
    limited(FAILOVER_LIMIT, what, start(command)).await
}

/// Waits for the reply to a command with this limit at the server for [`NO_REPLY`] longer; after that its connection must
/// be dead.
pub(crate) async fn within<T>(
    limit: Duration,
    command: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    let reply = reply_within(limit + NO_REPLY, command).await;
    reply.unwrap_or_else(|| Err(LockError::no_reply("command", limit + NO_REPLY)))
}

/// Waits for the reply to a command; `None` if there is no reply for this time after the command was sent. The command
/// is then dropped, which closes its connection.
///
/// A command that is still waiting for a connection is kept, for [`REQUEST_LIMIT`] at most: the application may use
/// all connections. The driver would keep the entry of a dropped command in the queue of the pool, and would serve no
/// other entry at the event that serves that entry, so that after many of them an idle pool would serve two entries a
/// second. [`driver_call`] notes whether the driver has woken the command, which it does when there is a connection.
pub(crate) async fn reply_within<T>(most: Duration, command: impl Future<Output = T>) -> Option<T> {
    let is_served = served();
    let mut command = pin!(IS_SERVED.scope(Arc::clone(&is_served), command));
    if let Ok(reply) = tokio::time::timeout(most, command.as_mut()).await {
        return Some(reply);
    }
    if is_served.load(Relaxed) {
        return None;
    }
    let rest = REQUEST_LIMIT.saturating_sub(most);
    tokio::time::timeout(rest, command).await.ok()
}

tokio::task_local! {
    /// Whether the driver has woken the command that is in flight inside [`reply_within`].
    static IS_SERVED: Arc<AtomicBool>;
}

/// Whether the command that is in flight inside [`reply_within`] has a connection.
pub(crate) fn is_served() -> bool {
    served().load(Relaxed)
}

fn served() -> Arc<AtomicBool> {
    IS_SERVED.try_with(Arc::clone).unwrap_or_default()
}

/// Runs one command of the driver, and notes for [`reply_within`] whether the driver has woken it. Other wake-ups of the task do not
/// count.
pub(crate) async fn driver_call<T>(command: impl Future<Output = T>) -> T {
    let is_served = served();
    // An earlier command of the same request may have been served.
    is_served.store(false, Relaxed);
    let mut command = pin!(command);
    poll_fn(|cx| {
        let waker = Waker::from(Arc::new(ServedWaker {
            is_served: Arc::clone(&is_served),
            task: cx.waker().clone(),
        }));
        command.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// The waker that a command of the driver gets.
struct ServedWaker {
    is_served: Arc<AtomicBool>,
    task: Waker,
}

impl Wake for ServedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_served.store(true, Relaxed);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
pub(crate) async fn is_pending<F: Future>(mut future: Pin<&mut F>) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// Whether this runtime is another one than the caller's, and has ended.
pub(crate) fn has_ended(runtime: &Handle) -> bool {
    if Handle::try_current().is_ok_and(|here| here.id() == runtime.id()) {
        return false;
    }
    // A runtime that has ended drops a new task at once.
    let task = runtime.spawn(std::future::pending::<()>());
    let has_ended = task.is_finished();
    task.abort();
    has_ended
}

/// The output of a task that has ended; a panic of the task continues in the caller.
pub(crate) fn joined<T>(ended: Result<Result<T, LockError>, JoinError>) -> Result<T, LockError> {
    ended.unwrap_or_else(|ended| match ended.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // The runtime is shutting down, and the task with it.
        Err(_) => Err(Meaning::RuntimeEnded.error()),
    })
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;
    use tokio::sync::oneshot;
    use tokio::time::{Instant, sleep};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(7);

    /// A command that waits for a connection, and then for its reply.
    async fn command(connection: oneshot::Receiver<()>, reply: impl Future<Output = ()>) {
        driver_call(async {
            connection.await.unwrap();
            reply.await;
        })
        .await;
    }

    /// A timer of the caller, and news about the servers, poll a command that still waits for a connection.
    #[tokio::test(start_paused = true)]
    async fn only_the_driver_shows_that_a_command_has_a_connection() {
        let (pool, connection) = oneshot::channel();
        let news = async {
            loop {
                sleep(Duration::from_secs(1)).await;
            }
        };
        let waiting = async {
            tokio::select! {
                biased;
                () = command(connection, async {}) => true,
                () = news => false,
            }
        };
        let waiting = tokio::spawn(reply_within(LIMIT, waiting));
        sleep(LIMIT * 2).await;
        pool.send(()).expect("the command is kept");
        assert_eq!(waiting.await.unwrap(), Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_without_a_reply_is_given_up() {
        let (pool, connection) = oneshot::channel();
        let begun = Instant::now();
        let serving = async {
            sleep(Duration::from_millis(1)).await;
            pool.send(()).unwrap();
        };
        let sent = reply_within(LIMIT, command(connection, std::future::pending()));
        let (reply, ()) = tokio::join!(tokio::spawn(sent), serving);
        assert_eq!((reply.unwrap(), begun.elapsed()), (None, LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_waits_for_a_connection_is_kept_for_a_while() {
        for (served_after, is_served) in [(LIMIT * 3, true), (REQUEST_LIMIT * 2, false)] {
            let (pool, connection) = oneshot::channel();
            let begun = Instant::now();
            let waiting = tokio::spawn(reply_within(LIMIT, command(connection, async {})));
            sleep(served_after).await;
            assert_eq!(pool.send(()).is_ok(), is_served);
            assert_eq!(waiting.await.unwrap().is_some(), is_served);
            assert_eq!(begun.elapsed(), served_after);
        }
    }

    #[test]
    fn a_runtime_that_lives_has_not_ended() {
        let runtime = || Builder::new_multi_thread().worker_threads(1).build().unwrap();
        for first in [runtime(), Builder::new_current_thread().build().unwrap()] {
            let (home, other) = (first.handle().clone(), runtime());
            first.block_on(async { assert!(!has_ended(&home)) });
            other.block_on(async { assert!(!has_ended(&home)) });
            assert!(!has_ended(&home), "outside a runtime");
            drop(first);
            assert!(has_ended(&home));
            other.block_on(async { assert!(has_ended(&home)) });
        }
    }
}
