//! Guarded commits under a hold.

use std::sync::Arc;

use super::after::After;
use super::lease::Lease;
use super::shared::Engine;
use crate::LockError;
use crate::core::{Ending, Event};

/// A guarded commit, from before its guarding statement to its end.
pub(crate) struct OpenCommit<'a> {
    engine: &'a Arc<Engine>,
    lease: &'a Arc<Lease>,
    marks: bool,
    was_made: Option<bool>,
}

impl Engine {
    /// Notes that a commit begins under the hold. It is called before the check that the hold is not over.
    pub(crate) fn begin_commit<'a>(
        self: &'a Arc<Self>,
        lease: &'a Arc<Lease>,
        marks: bool,
    ) -> OpenCommit<'a> {
        lease.commit_begins();
        let hold = lease.hold();
        self.apply(Event::CommitBegins { hold, marks });
        OpenCommit {
            engine: self,
            lease,
            marks,
            was_made: None,
        }
    }

    /// A guarding statement has found no claim.
    pub(crate) fn claim_is_gone(self: &Arc<Self>, lease: &Arc<Lease>) {
        let mut after = After::default();
        lease.claim_is_gone(&mut after);
        after.run();
        if lease.is_lost() {
            self.apply(Event::End(lease.hold(), Ending::Release, None));
        }
    }

    /// A commit that marks the work has ended. Returns whether it was made if its outcome was unknown; the core finds
    /// this out while the hold lasts.
    pub(crate) async fn commit_ended(
        &self,
        lease: &Arc<Lease>,
        committed: &Result<Result<(), LockError>, LockError>,
    ) -> bool {
        committed.is_err() && lease.is_outcome_unknown() && lease.was_committed().await
    }
}

impl OpenCommit<'_> {
    /// Notes that the commit has ended, with success if it was made, and that the server can no longer apply it.
    pub(crate) fn ended(mut self, was_made: bool) {
        self.was_made = Some(was_made);
    }
}

impl Drop for OpenCommit<'_> {
    fn drop(&mut self) {
        let Self { marks, was_made, .. } = *self;
        self.lease.commit_ends(was_made, marks);
        let is_unknown = was_made.is_none() && marks;
        self.engine.apply(Event::CommitEnds {
            hold: self.lease.hold(),
            marks,
            was_made,
            awaited: is_unknown.then(|| Arc::clone(self.lease)),
        });
    }
}
