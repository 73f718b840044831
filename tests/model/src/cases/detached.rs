//! The cases of leases that outlive their processes.

use super::{Case, breaks, holds};
use crate::detached::{Changed, Counts, Detached, Order};
use crate::protocol::{DetachedLease, Rules};

const DETACHED: Detached = Detached {
    rules: Rules {
        late_command: 1,
        ..Rules::with_expiry(2)
    },
    lease: DetachedLease {
        ttl: 3,
        min_hold: 0,
    },
    extension: 1,
    furthest: 6,
    names: 1,
    processes: 3,
    most: Counts {
        claims: 0,
        detaches: 1,
        resumes: 2,
        copies: 0,
        renewals: 0,
        extends: 0,
        releases: 0,
    },
    horizon: 4,
    late_effects: false,
    order: Order::Reverse,
    changed: Changed::Nothing,
};

/// As it is.
pub(super) fn detached() -> [Case; 6] {
    let most = DETACHED.most;
    [
        holds("detached: two that resume", DETACHED),
        holds("detached: other", Detached { most: Counts { claims: 1, ..most }, horizon: 5, ..DETACHED }),
        holds("detached: copies", Detached { most: Counts { copies: 1, ..most }, ..DETACHED }),
        holds("detached: renewals, extend", Detached { most: Counts { renewals: 1, extends: 1, releases: 1, ..most }, ..DETACHED }),
        holds("detached: late", Detached { late_effects: true, ..DETACHED }),
        holds("detached: set", Detached { names: 2, ..DETACHED }),
    ]
}

pub(super) fn broken_detached() -> [Case; 0] {
    []
}
pub(super) fn long_detached() -> [Case; 0] {
    []
}
