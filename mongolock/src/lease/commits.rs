use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use super::Lease;

/// The guarded commits under a hold: what must not be forgotten when it ends.
#[derive(Default)]
pub(super) struct Commits {
    /// Commits that have begun and not ended: the claim guards them.
    begun: AtomicUsize,
    /// A commit was dropped half-way: the server may make it at any time.
    cut_off: AtomicBool,
    made: AtomicBool,
    /// The number of commits on their way to the server, under this hold or within it: bodies are not cancelled now.
    shields: AtomicUsize,
}

/// A guarded commit, from before its guard to its end.
pub(crate) struct OpenCommit<'a> {
    commits: &'a Commits,
    ended: bool,
}

impl OpenCommit<'_> {
    /// The commit was made or not, and nothing of it is left at the server.
    pub(crate) fn ended(mut self, made: bool) {
        self.ended = true;
        if made {
            self.commits.made.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for OpenCommit<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.commits.cut_off.store(true, Ordering::SeqCst);
        }
        self.commits.begun.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Keeps the bodies under a hold from being cancelled for as long as it lives.
pub(crate) struct CancelShield(Arc<Lease>);

impl Drop for CancelShield {
    fn drop(&mut self) {
        self.0.commits.shields.fetch_sub(1, Ordering::SeqCst);
        // A body that waits for its cancellation looks at the lease again.
        self.0.changed.notify_waiters();
    }
}

impl Lease {
    /// To be called before the caller asks whether the lease is held: whoever ends the lease looks for commits after that.
    pub(crate) fn begin_commit(&self) -> OpenCommit<'_> {
        self.commits.begun.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        OpenCommit {
            commits: &self.commits,
            ended: false,
        }
    }

    /// Whether a commit that was begun under this hold may still be made.
    pub(crate) fn may_commit(&self) -> bool {
        fence(Ordering::SeqCst);
        self.commits.begun.load(Ordering::SeqCst) > 0 || self.commits.cut_off.load(Ordering::SeqCst)
    }

    /// Whether a guarded commit was made under this hold.
    pub(crate) fn has_committed(&self) -> bool {
        self.commits.made.load(Ordering::Relaxed)
    }

    pub(crate) fn shield(self: &Arc<Self>) -> CancelShield {
        self.commits.shields.fetch_add(1, Ordering::SeqCst);
        CancelShield(Arc::clone(self))
    }

    /// Whether a body under this hold is to be cancelled: not in the middle of a commit, whose outcome nobody would
    /// learn then.
    pub(crate) fn should_cancel(&self) -> bool {
        self.is_over() && self.commits.shields.load(Ordering::SeqCst) == 0
    }

    /// Resolves when a body under this hold is to be cancelled.
    pub(crate) async fn cancelled(&self) {
        self.until(Self::should_cancel).await;
    }
}
