//! The suite `threads` compiles this file with the atomics of loom and explores every order of its steps.

use std::sync::Arc;

use super::Lease;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// The guarded commits under a hold, which decide how the hold may end.
#[derive(Default)]
pub(super) struct Commits {
    /// The number of commits that have begun and not ended: the claim guards them.
    begun: AtomicU32,
    /// Whether a commit was dropped before its end: the server may still apply it at any time.
    cut_off: AtomicBool,
    /// Whether a commit has succeeded.
    made: AtomicBool,
    /// The number of commits on their way to the server, under this hold or a nested one: bodies are not cancelled
    /// until it is zero.
    shields: AtomicU32,
}

/// A guarded commit, from before its guarding statement to its end.
pub(crate) struct OpenCommit<'a> {
    commits: &'a Commits,
    ended: bool,
}

impl OpenCommit<'_> {
    /// Notes that the commit has ended, with success if it was made, and that the server can no longer apply it.
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
        // A body that waits for its cancellation checks the lease again.
        self.0.changed.notify_waiters();
    }
}

impl Lease {
    /// Registers a commit. It is called before the check that the lease is held, because a release checks for commits
    /// after it has ended the lease: one of the two sees the other.
    pub(crate) fn begin_commit(&self) -> OpenCommit<'_> {
        self.commits.begun.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        OpenCommit {
            commits: &self.commits,
            ended: false,
        }
    }

    /// Whether the server may still apply a commit that was begun under this hold.
    pub(crate) fn may_commit(&self) -> bool {
        fence(Ordering::SeqCst);
        self.commits.begun.load(Ordering::SeqCst) > 0 || self.commits.cut_off.load(Ordering::SeqCst)
    }

    /// The number of commits that have begun under this hold and not ended.
    pub(crate) fn open_commits(&self) -> u32 {
        self.commits.begun.load(Ordering::SeqCst)
    }

    /// Whether a guarded commit has succeeded under this hold.
    pub(crate) fn has_committed(&self) -> bool {
        self.commits.made.load(Ordering::Relaxed)
    }

    pub(crate) fn shield(self: &Arc<Self>) -> CancelShield {
        self.commits.shields.fetch_add(1, Ordering::SeqCst);
        CancelShield(Arc::clone(self))
    }

    /// Whether a body under this hold has to be cancelled. It is not cancelled during a commit, because the outcome of
    /// the commit would remain unknown, and not after a commit that has ended the hold.
    pub(crate) fn should_cancel(&self) -> bool {
        self.is_over() && !self.has_ended_well() && self.commits.shields.load(Ordering::SeqCst) == 0
    }

    /// Resolves when a body under this hold has to be cancelled.
    pub(crate) async fn cancelled(&self) {
        self.until(Self::should_cancel).await;
    }
}
