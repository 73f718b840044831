//! A command on a detached lease, which is repeated until it has a reply.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::backoff::Backoff;
use crate::store::Store;
use crate::store::refusals::Refusals;
use crate::timing::{MARK_OVERDUE, RELEASE_REPLY_LIMIT};
use crate::{LockError, task};

/// Sends a command until it has a reply, for [`RELEASE_REPLY_LIMIT`] at most. Also returns whether an earlier copy may
/// have taken effect.
pub(crate) async fn reply<T, F>(
    store: &Store,
    send: impl Fn() -> F,
    request: &str,
) -> Result<(T, bool), LockError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, LockError>> + Send + 'static,
{
    let begun = Instant::now();
    let mut backoff = Backoff::new(Duration::from_millis(20)..=Duration::from_secs(1));
    let (mut refusals, mut is_repetition) = (Refusals::default(), false);
    loop {
        // The task continues without the caller.
        let error = match timeout(MARK_OVERDUE, task::start(send())).await {
            Ok(Ok(reply)) => return Ok((reply, is_repetition)),
            Ok(Err(error)) => error,
            Err(_) => store.no_reply(request, begun.elapsed()),
        };
        is_repetition |= error.may_be_applied();
        let is_last = begun.elapsed() >= RELEASE_REPLY_LIMIT;
        if is_last || refusals.end(Instant::now(), &error) || error.is_closed() {
            return Err(error);
        }
        sleep(backoff.next()).await;
    }
}
