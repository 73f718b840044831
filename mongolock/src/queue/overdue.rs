use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tokio::time::{Instant, timeout};

use crate::sync::lock;
use crate::timing::{ACQUIRE_LIMIT, ACQUIRE_OVERDUE};

/// The number of overdue requests of a provider from which no copy is sent. Each of them keeps one connection of the
/// user's pool, which has ten by default.
const MAX_OVERDUE: usize = 5;

/// The acquire requests of a provider whose replies are overdue: they limit what else is sent.
pub(crate) struct OverdueRequests {
    count: AtomicUsize,
    replies: Mutex<Replies>,
}

struct Replies {
    /// The time of the last reply to a request of the provider.
    last_reply: Instant,
    /// The time at which a request was sent to find out whether the server works, if no reply has come since then.
    last_probe: Option<Instant>,
}

/// One overdue request, counted until it is answered or given up.
struct Overdue<'a>(&'a OverdueRequests);

impl OverdueRequests {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            count: AtomicUsize::new(0),
            replies: Mutex::new(Replies {
                last_reply: Instant::now(),
                last_probe: None,
            }),
        })
    }

    /// Runs a request to its end, and counts it while its reply is overdue.
    pub(crate) async fn count<T>(&self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        if let Ok(reply) = timeout(ACQUIRE_OVERDUE, request.as_mut()).await {
            return reply;
        }
        self.count.fetch_add(1, Relaxed);
        let _overdue = Overdue(self);
        request.await
    }

    /// Notes that the server has answered a request.
    pub(crate) fn answered(&self) {
        *lock(&self.replies) = Replies {
            last_reply: Instant::now(),
            last_probe: None,
        };
    }

    /// Whether a copy of an overdue request may be sent.
    pub(crate) fn allow_copy(&self) -> bool {
        self.count.load(Relaxed) < MAX_OVERDUE
    }

    /// Whether the first request of an attempt may be sent. While other requests are answered, the overdue ones concern
    /// single documents or connections and must not stop other names. Otherwise one request at a time finds out whether
    /// the server works, for a name that has no request in flight.
    pub(crate) fn allow_first(&self, has_requests: bool) -> bool {
        if self.allow_copy() {
            return true;
        }
        let mut replies = lock(&self.replies);
        if replies.last_reply.elapsed() < ACQUIRE_OVERDUE {
            return true;
        }
        let may_probe = !has_requests
            && replies
                .last_probe
                .is_none_or(|last_probe| last_probe.elapsed() >= ACQUIRE_LIMIT);
        if may_probe {
            replies.last_probe = Some(Instant::now());
        }
        may_probe
    }
}

impl Drop for Overdue<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Starts this many requests that are never answered, and waits until they are overdue.
    async fn make_overdue(requests: &Arc<OverdueRequests>, number: usize) {
        for _ in 0..number {
            let requests = Arc::clone(requests);
            tokio::spawn(async move { requests.count(std::future::pending::<()>()).await });
        }
        tokio::time::sleep(ACQUIRE_OVERDUE + Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_overdue_requests_stop_nothing() {
        let requests = OverdueRequests::new();
        make_overdue(&requests, MAX_OVERDUE - 1).await;
        assert!(requests.allow_copy() && requests.allow_first(true));
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_at_a_time_finds_out_whether_the_server_works() {
        let requests = OverdueRequests::new();
        make_overdue(&requests, MAX_OVERDUE).await;
        assert!(!requests.allow_copy());
        assert!(!requests.allow_first(true), "its name has a request in flight");
        assert!(requests.allow_first(false));
        assert!(!requests.allow_first(false), "one is in flight");
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
