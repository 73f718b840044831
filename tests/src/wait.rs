//! Waiting for an effect of another task, process or server.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::error::{SupportError, must};

/// The limit of a wait that a correct program ends much earlier: 60 s, so that only a defect reaches it, even on a slow
/// machine that runs other tests at the same time.
pub const AMPLE: Duration = Duration::from_secs(60);

/// The time in which a released lock must be free: 15 s, half of the default `expiry`, so that a lock that merely
/// expired does not pass for a released one.
pub const BEFORE_EXPIRY: Duration = Duration::from_secs(15);

/// The pause between two calls of a probe.
const PAUSE: Duration = Duration::from_millis(10);

/// Calls `probe` every 10 ms until it returns a value. A probe that is still running when `limit` ends is dropped.
///
/// This is the only function of this crate that polls and sleeps: everything else waits for events.
pub async fn eventually<T, F>(
    limit: Duration,
    what: &str,
    mut probe: impl FnMut() -> F,
) -> Result<T, SupportError>
where
    // Not `AsyncFnMut`: with it the compiler cannot prove that the future is `Send`, which spawned tests need.
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
    let late = |_| SupportError(format!("{what}: this did not happen within {limit:?}"));
    timeout(limit, polling).await.map_err(late)
}

/// Waits until this is so, for [`AMPLE`] time.
pub async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let reached = || {
        let is_so = is_so();
        async { is_so.await.then_some(()) }
    };
    must(eventually(AMPLE, what, reached).await);
}
