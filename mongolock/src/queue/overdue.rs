use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tokio::time::{Instant, timeout};

use super::Admission;
use crate::sync::lock;
use crate::timing::{ACQUIRE_LIMIT, ACQUIRE_OVERDUE, ACQUIRE_SILENT};

/// Overdue requests of a provider, with the copies of them, from which on more are sent only while the server answers
/// other requests, or one at a time to find out whether it does. Each keeps one connection of the user's pool, which has
/// ten by default.
const MOST_SILENT: usize = 5;

/// The same number from which on no copies are sent at all: the requests may wait behind a foreign transaction, where a
/// copy waits as well. Renewals, releases, the change stream and requests for other names need the other connections.
const MOST_WITH_COPIES: usize = 7;

/// The acquire requests of a provider that have had no reply for a while, and the copies of such requests.
pub(crate) struct OverdueRequests {
    /// The number of both.
    count: AtomicUsize,
    signs: Mutex<Signs>,
}

struct Signs {
    /// When the last request of the provider was answered.
    answered: Instant,
    /// When a request was sent to find out whether the server works, which no reply has followed: the first one of a name.
    probed: Option<Instant>,
    /// The same for a copy, which says less: it may wait behind what its first request waits for.
    probed_with_copy: Option<Instant>,
}

/// One overdue request or one copy, counted until it is answered or given up.
pub(crate) struct Overdue(Arc<OverdueRequests>);

impl OverdueRequests {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            count: AtomicUsize::new(0),
            signs: Mutex::new(Signs {
                answered: Instant::now(),
                probed: None,
                probed_with_copy: None,
            }),
        })
    }

    /// Runs a request to its end, as an overdue one while its reply is overdue.
    pub(crate) async fn count<T>(self: &Arc<Self>, request: impl Future<Output = T>) -> T {
        self.count_admitted(None, request).await
    }

    /// [`Self::count`] for a request that was admitted; it gives its admission up once its reply is overdue.
    pub(crate) async fn count_admitted<T>(
        self: &Arc<Self>,
        admission: Option<Admission>,
        request: impl Future<Output = T>,
    ) -> T {
        let mut request = pin!(request);
        if let Ok(reply) = timeout(ACQUIRE_SILENT, request.as_mut()).await {
            return reply;
        }
        drop(admission);
        let _overdue = self.begin();
        request.await
    }

    /// Counts a request from now on. A copy counts as soon as it is sent: most likely it waits for what the overdue
    /// request waits for.
    pub(crate) fn begin(self: &Arc<Self>) -> Overdue {
        self.count.fetch_add(1, Relaxed);
        Overdue(Arc::clone(self))
    }

    /// The server has answered a request.
    pub(crate) fn answered(&self) {
        *lock(&self.signs) = Signs {
            answered: Instant::now(),
            probed: None,
            probed_with_copy: None,
        };
    }

    /// Whether a copy of an overdue request may be sent; the caller sends it then.
    pub(crate) fn allow_copy(&self) -> bool {
        let count = self.count.load(Relaxed);
        if count < MOST_SILENT {
            return true;
        }
        let mut signs = lock(&self.signs);
        count < MOST_WITH_COPIES && (signs.are_good() || may_probe(&mut signs.probed_with_copy))
    }

    /// Whether the next request for a name may be sent; beside another one for the same name it is like a copy. While
    /// other requests are answered, silence is the matter of single documents or connections, and must not stop other
    /// names. Otherwise one request after the other finds out whether the server works.
    pub(crate) fn allow_request(&self, has_requests: bool) -> bool {
        if has_requests {
            return self.allow_copy();
        }
        if self.count.load(Relaxed) < MOST_SILENT {
            return true;
        }
        let mut signs = lock(&self.signs);
        signs.are_good() || may_probe(&mut signs.probed)
    }
}

impl Signs {
    /// Whether the server has answered a request of late.
    fn are_good(&self) -> bool {
        self.answered.elapsed() < ACQUIRE_OVERDUE
    }
}

/// Whether a request may be sent to find out whether the server works; notes that it is sent.
fn may_probe(probed: &mut Option<Instant>) -> bool {
    let may_probe = probed.is_none_or(|probed| probed.elapsed() >= ACQUIRE_LIMIT);
    if may_probe {
        *probed = Some(Instant::now());
    }
    may_probe
}

impl Drop for Overdue {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// So many requests that are never answered.
    async fn fall_silent(requests: &Arc<OverdueRequests>, number: usize) {
        for _ in 0..number {
            let requests = Arc::clone(requests);
            tokio::spawn(async move { requests.count(std::future::pending::<()>()).await });
        }
        tokio::time::sleep(ACQUIRE_OVERDUE + Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn few_silent_requests_stop_nothing() {
        let requests = OverdueRequests::new();
        fall_silent(&requests, MOST_SILENT - 1).await;
        assert!(requests.allow_copy() && requests.allow_request(true));
    }

    #[tokio::test(start_paused = true)]
    async fn copies_are_counted_and_few_even_while_the_server_works() {
        let requests = OverdueRequests::new();
        fall_silent(&requests, MOST_SILENT).await;
        requests.answered();
        let copies: Vec<Overdue> = (MOST_SILENT..MOST_WITH_COPIES)
            .map(|_| {
                assert!(requests.allow_copy() && requests.allow_request(true));
                requests.begin()
            })
            .collect();
        assert!(!requests.allow_copy() && !requests.allow_request(true));
        assert!(requests.allow_request(false), "another name");
        drop(copies);
        assert!(requests.allow_copy() && requests.allow_request(true));
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_at_a_time_finds_out_whether_the_server_works() {
        let requests = OverdueRequests::new();
        fall_silent(&requests, MOST_SILENT).await;
        assert!(requests.allow_copy(), "a copy finds out as well");
        assert!(!requests.allow_copy() && !requests.allow_request(true));
        assert!(requests.allow_request(false));
        assert!(!requests.allow_request(false), "one is under way");
        requests.answered();
        assert!(
            requests.allow_request(false) && requests.allow_request(true),
            "the server works"
        );
        tokio::time::sleep(ACQUIRE_OVERDUE).await;
        assert!(requests.allow_request(false) && !requests.allow_request(false));
        tokio::time::sleep(ACQUIRE_LIMIT).await;
        assert!(requests.allow_request(false), "the one before is lost");
    }
}
