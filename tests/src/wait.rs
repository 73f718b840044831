//! Waiting for what the other side does in its own time.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::error::SupportError;

const PAUSE: Duration = Duration::from_millis(10);

/// Asks again and again until `probe` has an answer. The one place that sleeps: everything else waits for events.
///
/// A probe that is still under way at the end of `limit` is dropped.
///
/// # Errors
/// [`SupportError::Deadline`] with `what` when there was no answer within `limit`.
pub async fn eventually<T, F>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> F,
) -> Result<T, SupportError>
where
    // Not `AsyncFnMut`: with that one the compiler cannot see that the whole is `Send`, which spawned tests need.
    F: Future<Output = Option<T>>,
{
    let polling = async {
        loop {
            if let Some(answer) = probe().await {
                return answer;
            }
            sleep(PAUSE).await;
        }
    };
    timeout(limit, polling).await.map_err(|_| SupportError::Deadline {
        what: what.to_owned(),
        limit,
    })
}
