//! A guarded commit that is under way.

use std::sync::Arc;

use crate::core::Event;
use crate::engine::Lease;

/// A guarded commit under these leases, from before its guarding statement to its end. Dropped without one, its outcome is unknown.
pub(super) struct OpenCommit<'a> {
    leases: &'a [&'a Arc<Lease>],
    marks: bool,
    was_made: Option<bool>,
}

impl<'a> OpenCommit<'a> {
    /// Notes that a commit begins. It is called before the check that no hold is over.
    pub(super) fn begin(leases: &'a [&'a Arc<Lease>], marks: bool) -> Self {
        for lease in leases {
            lease.commit_begins();
            let hold = lease.granted().hold;
            lease.engine.apply(Event::CommitBegins { hold, marks });
        }
        Self {
            leases,
            marks,
            was_made: None,
        }
    }

    /// Notes that the commit has ended, with success if it was made, and that the server can no longer apply it.
    pub(super) fn ended(mut self, was_made: bool) {
        self.was_made = Some(was_made);
    }
}

impl Drop for OpenCommit<'_> {
    fn drop(&mut self) {
        let Self { marks, was_made, .. } = *self;
        for lease in self.leases {
            lease.commit_ends(was_made, marks);
            let is_unknown = was_made.is_none() && marks;
            lease.engine.apply(Event::CommitEnds {
                hold: lease.granted().hold,
                marks,
                was_made,
                awaited: is_unknown.then(|| Arc::clone(lease)),
            });
        }
    }
}
