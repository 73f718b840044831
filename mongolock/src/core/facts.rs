//! Queries of the engine, which do not change the core.

use super::state::{Change, Core, Phase, Stage};

impl<C: Clone> Core<C> {
    /// The cells of the present holds; a set is repeated for each of its locks.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &C> {
        self.claims.iter().filter_map(|(_, claim)| match &claim.stage {
            Stage::Held(cell, _) => Some(cell),
            _ => None,
        })
    }

    /// The cell of this process's hold of a lock, or of a permit of a semaphore.
    pub(crate) fn holder_of(&self, name: &str) -> Option<&C> {
        let room = &self.rooms[*self.names.get(name)?];
        room.claims.iter().find_map(|key| match &self.claims[*key].stage {
            Stage::Held(cell, _) => Some(cell),
            _ => None,
        })
    }

    /// Whether a change stream is open.
    pub(crate) fn is_listening(&self) -> bool {
        self.stream.is_open()
    }

    /// Whether a call fails because of a shutdown.
    pub(crate) fn refuses(&self, is_inside_hold: bool) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Draining => !is_inside_hold,
            Phase::Closed => true,
        }
    }

    /// Whether a resumption of the lease with this id was given up, and the lease may not have its id back yet.
    pub(crate) fn gives_back(&self, lease_id: &str) -> bool {
        self.claims.iter().any(|(_, claim)| {
            let resumes = claim.resumes.as_ref().is_some_and(|(id, _)| &**id == lease_id);
            let may_come = match claim.stage {
                Stage::Releasing(_) => true,
                // The lease was given back, but the last command of the claim is still in flight.
                Stage::Released => claim.flights > 0,
                _ => false,
            };
            resumes && may_come
        })
    }

    /// Whether a mark is being sent and not confirmed yet.
    pub(crate) fn has_marks(&self) -> bool {
        self.claims
            .iter()
            .any(|(_, claim)| matches!(claim.stage, Stage::Renaming(Change::Mark(_), ..)))
    }
}
