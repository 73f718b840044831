//! A command on a detached lease, which is repeated until it has a reply.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::engine::Engine;
use crate::backoff::Backoff;
use crate::moment::Luck;
use crate::store::Store;
use crate::store::driver_error::{self, Refusals};
use crate::timing::{MARK_OVERDUE, RELEASE_REPLY_LIMIT};
use crate::{LockError, task};

/// A command that may be repeated.
pub(crate) trait Command: Send + Sync + 'static {
    type Reply: Send + 'static;

    fn send(&self, store: &Store) -> impl Future<Output = Result<Self::Reply, LockError>> + Send;
}

/// Sends a command until it has a reply, for [`RELEASE_REPLY_LIMIT`] at most; and whether a copy before it may have taken effect.
pub(crate) async fn reply<C: Command>(
    engine: &Arc<Engine>,
    command: C,
    request: &str,
) -> Result<(C::Reply, bool), LockError> {
    let (begun, command) = (Instant::now(), Arc::new(command));
    let mut backoff = Backoff::new(Duration::from_millis(20)..=Duration::from_secs(1));
    let (mut refusals, mut is_repetition) = (Refusals::default(), false);
    loop {
        let (store, copy) = (Arc::clone(&engine.store), Arc::clone(&command));
        // Its task goes on without the caller.
        let sending = task::start(async move { copy.send(&store).await });
        let error = match timeout(MARK_OVERDUE, sending).await {
            Ok(Ok(reply)) => return Ok((reply, is_repetition)),
            Ok(Err(error)) => error,
            Err(_) => engine.store.no_reply(request, begun.elapsed()),
        };
        is_repetition |= !driver_error::was_not_applied(&error);
        let is_last = begun.elapsed() >= RELEASE_REPLY_LIMIT;
        if is_last || refusals.end(Instant::now(), &error) || driver_error::is_closed(&error) {
            return Err(error);
        }
        sleep(backoff.next(Luck::draw())).await;
    }
}
