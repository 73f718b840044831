use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tokio::time::{Instant, timeout};

use super::Admission;
use crate::sync::lock;
use crate::timing::{ACQUIRE_LIMIT, ACQUIRE_OVERDUE, ACQUIRE_SILENT};

/// The number of overdue requests and copies of a provider from which on another one is sent only if the server has
/// replied recently, or alone to find out whether the server works. Each of them keeps one connection of the user's
/// pool, which has ten by default.
const MOST_SILENT: usize = 5;

/// The number of overdue requests and copies of a provider from which on no copy is sent at all: the requests may wait
/// behind a foreign transaction, where a copy waits as well. Renewals, releases, the change stream and requests for
/// other names need the other connections.
const MOST_WITH_COPIES: usize = 7;

/// The acquire requests of a provider whose replies are overdue, and the copies of such requests.
pub(crate) struct OverdueRequests {
    /// The number of overdue requests and copies.
    count: AtomicUsize,
    signs: Mutex<Signs>,
}

/// What shows whether the server works.
struct Signs {
    /// The time of the last reply to a request of the provider.
    answered: Instant,
    /// The time at which a request was last sent to find out whether the server works; `None` after a reply. It is the
    /// only request of its name.
    probed: Option<Instant>,
    /// The time at which a copy was last sent for that purpose; `None` after a reply. A copy without a reply proves
    /// less: it may wait for the same document as the first request.
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

    /// Runs a request to its end, and counts it from the time at which its reply is overdue.
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

    /// Notes that the server has replied to a request.
    pub(crate) fn answered(&self) {
        *lock(&self.signs) = Signs {
            answered: Instant::now(),
            probed: None,
            probed_with_copy: None,
        };
    }

    /// Whether a copy of an overdue request may be sent; if so, the caller must send it.
    pub(crate) fn allow_copy(&self) -> bool {
        let count = self.count.load(Relaxed);
        if count < MOST_SILENT {
            return true;
        }
        let mut signs = lock(&self.signs);
        count < MOST_WITH_COPIES && (signs.are_good() || may_probe(&mut signs.probed_with_copy))
    }

    /// Whether a request for a name may be sent; if the name has another request in flight, the rules for copies apply.
    /// While the server replies to other requests, only single documents or connections are the reason for the missing
    /// replies, and requests for other names must go on. Otherwise one request at a time shows whether the server
    /// works.
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
    /// Whether the server has replied recently.
    fn are_good(&self) -> bool {
        self.answered.elapsed() < ACQUIRE_OVERDUE
    }
}

/// Whether a request may be sent now to find out whether the server works; if so, notes the time.
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

    /// Starts this number of requests that never get a reply, and waits until they are overdue.
    async fn fall_silent(requests: &Arc<OverdueRequests>, number: usize) {
        for _ in 0..number {
            let requests = Arc::clone(requests);
            tokio::spawn(async move { requests.count(std::future::pending::<()>()).await });
        }
        tokio::time::sleep(ACQUIRE_OVERDUE + Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_overdue_requests_stop_no_others() {
        let requests = OverdueRequests::new();
        fall_silent(&requests, MOST_SILENT - 1).await;
        assert!(requests.allow_copy() && requests.allow_request(true));
    }

    #[tokio::test(start_paused = true)]
    async fn copies_are_counted_and_limited_even_while_the_server_replies() {
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
    async fn without_replies_one_request_at_a_time_is_sent() {
        let requests = OverdueRequests::new();
        fall_silent(&requests, MOST_SILENT).await;
        assert!(requests.allow_copy(), "a copy may be sent as well");
        assert!(!requests.allow_copy() && !requests.allow_request(true));
        assert!(requests.allow_request(false));
        assert!(!requests.allow_request(false), "another one is in flight");
        requests.answered();
        assert!(
            requests.allow_request(false) && requests.allow_request(true),
            "the server has replied"
        );
        tokio::time::sleep(ACQUIRE_OVERDUE).await;
        assert!(requests.allow_request(false) && !requests.allow_request(false));
        tokio::time::sleep(ACQUIRE_LIMIT).await;
        assert!(requests.allow_request(false), "the request before it was lost");
    }
}
