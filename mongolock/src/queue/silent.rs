use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tokio::time::{Instant, timeout};

use crate::sync::lock;
use crate::timing::{ACQUIRE_LIMIT, ACQUIRE_OVERDUE};

/// Silent requests of a provider beyond which no copy is sent. Each keeps one connection of the user's pool, which has ten
/// by default.
const MOST_SILENT: usize = 5;

/// The acquire requests of a provider that have had no reply for a while.
pub(crate) struct SilentRequests {
    count: AtomicUsize,
    signs: Mutex<Signs>,
}

struct Signs {
    /// When the last request of the provider was answered.
    answered: Instant,
    /// When a request was sent to find out whether the server works, which no reply has followed.
    probed: Option<Instant>,
}

/// One silent request, until it is answered or given up.
struct Silent<'a>(&'a SilentRequests);

impl SilentRequests {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            count: AtomicUsize::new(0),
            signs: Mutex::new(Signs {
                answered: Instant::now(),
                probed: None,
            }),
        })
    }

    /// Runs a request to its end, as a silent one while its reply is overdue.
    pub(crate) async fn count<T>(&self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        if let Ok(reply) = timeout(ACQUIRE_OVERDUE, request.as_mut()).await {
            return reply;
        }
        self.count.fetch_add(1, Relaxed);
        let _silent = Silent(self);
        request.await
    }

    /// The server has answered a request.
    pub(crate) fn answered(&self) {
        *lock(&self.signs) = Signs {
            answered: Instant::now(),
            probed: None,
        };
    }

    /// Whether a copy of a silent request may be sent.
    pub(crate) fn allow_copy(&self) -> bool {
        self.count.load(Relaxed) < MOST_SILENT
    }

    /// Whether the first request of a claim may be sent. While other requests are answered, silence is the matter of
    /// single documents or connections, and must not stop other names. Otherwise one request after the other finds out
    /// whether the server works, for a name that has no request under way.
    pub(crate) fn allow_first(&self, has_requests: bool) -> bool {
        if self.allow_copy() {
            return true;
        }
        let mut signs = lock(&self.signs);
        if signs.answered.elapsed() < ACQUIRE_OVERDUE {
            return true;
        }
        let may_probe = !has_requests
            && signs
                .probed
                .is_none_or(|probed| probed.elapsed() >= ACQUIRE_LIMIT);
        if may_probe {
            signs.probed = Some(Instant::now());
        }
        may_probe
    }
}

impl Drop for Silent<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// So many requests that are never answered.
    async fn fall_silent(requests: &Arc<SilentRequests>, number: usize) {
        for _ in 0..number {
            let requests = Arc::clone(requests);
            tokio::spawn(async move { requests.count(std::future::pending::<()>()).await });
        }
        tokio::time::sleep(ACQUIRE_OVERDUE + Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn few_silent_requests_stop_nothing() {
        let requests = SilentRequests::new();
        fall_silent(&requests, MOST_SILENT - 1).await;
        assert!(requests.allow_copy() && requests.allow_first(true));
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_at_a_time_finds_out_whether_the_server_works() {
        let requests = SilentRequests::new();
        fall_silent(&requests, MOST_SILENT).await;
        assert!(!requests.allow_copy());
        assert!(!requests.allow_first(true), "its name has a request under way");
        assert!(requests.allow_first(false));
        assert!(!requests.allow_first(false), "one is under way");
        requests.answered();
        assert!(
            requests.allow_first(false) && requests.allow_first(true),
            "the server works"
        );
        tokio::time::sleep(ACQUIRE_OVERDUE).await;
        assert!(requests.allow_first(false) && !requests.allow_first(false));
        tokio::time::sleep(ACQUIRE_LIMIT).await;
        assert!(requests.allow_first(false), "the one before is lost");
    }
}
