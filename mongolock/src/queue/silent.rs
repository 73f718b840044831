use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tokio::time::{Instant, timeout};

use crate::sync::lock;
use crate::timing::ACQUIRE_OVERDUE;

/// Silent requests of a provider beyond which no further copy is sent. Each keeps one connection of the user's pool, which
/// has ten by default.
const MOST_SILENT: usize = 5;

/// The acquire requests of a provider that have had no reply for a while.
pub(crate) struct SilentRequests {
    count: AtomicUsize,
    /// When the last request of the provider was answered.
    answered: Mutex<Instant>,
}

/// One silent request, until it is answered or given up.
pub(crate) struct Silent(Arc<SilentRequests>);

impl SilentRequests {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            count: AtomicUsize::new(0),
            answered: Mutex::new(Instant::now()),
        })
    }

    pub(crate) fn begin(self: &Arc<Self>) -> Silent {
        self.count.fetch_add(1, Relaxed);
        Silent(Arc::clone(self))
    }

    /// Runs a request to its end, as a silent one while its reply is overdue.
    pub(crate) async fn count<T>(self: &Arc<Self>, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        if let Ok(reply) = timeout(ACQUIRE_OVERDUE, request.as_mut()).await {
            return reply;
        }
        let _silent = self.begin();
        request.await
    }

    pub(crate) fn answered(&self) {
        *lock(&self.answered) = Instant::now();
    }

    /// Whether a copy of a silent request may be sent.
    pub(crate) fn allow_copy(&self) -> bool {
        self.count.load(Relaxed) < MOST_SILENT
    }

    /// Whether the first request of a claim may be sent: while other requests are answered, silence is the matter of
    /// single documents or connections, and must not stop other names.
    pub(crate) fn allow_first(&self) -> bool {
        self.allow_copy() || lock(&self.answered).elapsed() < ACQUIRE_OVERDUE
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
    }
}
