//! The cases of leases that outlive their processes.

use super::{Case, ONE_HOLDER, RISES, breaks, holds};
use crate::detached::{Changed, Counts, Detached, Order};
use crate::protocol::{DetachedLease, Rules};

const DETACHED: Detached = Detached {
    rules: Rules {
        late_command: 1,
        ..Rules::with_expiry(2)
    },
    lease: DetachedLease { ttl: 3, min_hold: 0 },
    extension: 1,
    furthest: 6,
    names: 1,
    is_held: true,
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

const MOST: Counts = DETACHED.most;

/// The first process acquires the lock with the steps of the model.
const ACQUIRED: Detached = Detached {
    is_held: false,
    processes: 2,
    horizon: 1,
    most: Counts {
        claims: 1,
        copies: 2,
        ..MOST
    },
    ..DETACHED
};

const SET: Detached = Detached { names: 2, ..DETACHED };

/// The rules of the library.
pub(super) fn detached() -> [Case; 9] {
    let with = |most| Detached { most, ..DETACHED };
    [
        holds("detached leases: two that resume one handle", DETACHED),
        holds(
            "detached leases: another process that wants the lock",
            with(Counts { claims: 1, ..MOST }),
        ),
        holds(
            "detached leases: copies of requests",
            with(Counts { copies: 2, ..MOST }),
        ),
        holds(
            "detached leases: renewals, an extension, a release by handle",
            with(Counts {
                renewals: 1,
                extends: 1,
                releases: 1,
                ..MOST
            }),
        ),
        holds(
            "detached leases: commands that take effect late",
            Detached {
                late_effects: true,
                ..DETACHED
            },
        ),
        holds("detached leases: copies of the request that acquires", ACQUIRED),
        holds(
            "detached leases: detached again",
            with(Counts {
                detaches: 2,
                copies: 1,
                ..MOST
            }),
        ),
        holds("detached leases: two names", SET),
        holds(
            "detached leases: two names, a copy",
            Detached {
                horizon: 1,
                most: Counts { copies: 1, ..MOST },
                ..SET
            },
        ),
    ]
}

/// One rule is another one.
pub(super) fn broken_detached() -> [Case; 12] {
    let lasts = "a detached lease lasts as long as it was granted";
    let kept = "no lease is kept by a resumption that nobody has";
    let whole = "a process releases no lease that others can resume";
    let one = "one of those that resume a handle gets it";
    let with = |changed| Detached { changed, ..DETACHED };
    let set = |changed| Detached { changed, ..SET };
    [
        breaks(
            "a detached lease that keeps the id of the hold",
            lasts,
            Detached {
                most: Counts { renewals: 1, ..MOST },
                lease: DetachedLease { ttl: 4, min_hold: 0 },
                ..with(Changed::DetachKeepsId)
            },
        ),
        breaks(
            "a resumed hold that keeps the id of the handle",
            ONE_HOLDER,
            with(Changed::ResumeKeepsId),
        ),
        breaks(
            "a resumed hold that keeps the token",
            RISES,
            with(Changed::ResumeKeepsToken),
        ),
        breaks(
            "an extension by the rule of a renewal",
            lasts,
            Detached {
                most: Counts { extends: 1, ..MOST },
                ..with(Changed::ExtendsLikeRenewal)
            },
        ),
        breaks(
            "a detach that looks for the id alone",
            "one process at most resumes a handle",
            Detached {
                changed: Changed::DetachIgnoresToken,
                ..ACQUIRED
            },
        ),
        breaks(
            "names that are resumed without an order",
            one,
            set(Changed::Unordered),
        ),
        breaks(
            "a process that resumes no name and releases",
            one,
            set(Changed::LoserReleases),
        ),
        breaks(
            "a process that resumes a part and releases",
            whole,
            set(Changed::PartReleases),
        ),
        breaks(
            "names that are detached in their order",
            whole,
            Detached {
                order: Order::OfNames,
                ..SET
            },
        ),
        breaks(
            "a resumption that is given back once only",
            kept,
            with(Changed::GivesBackOnce),
        ),
        breaks(
            "a resumption that was lost and has a late copy",
            kept,
            Detached {
                most: Counts { copies: 1, ..MOST },
                ..with(Changed::LoserForgets)
            },
        ),
        breaks(
            "a resumption that is given back after it was delivered",
            ONE_HOLDER,
            with(Changed::GivesBackDelivered),
        ),
    ]
}

/// Greater bounds.
pub(super) fn long_detached() -> [Case; 4] {
    [
        holds(
            "long: detached leases, another process, a copy",
            Detached {
                most: Counts {
                    claims: 1,
                    copies: 1,
                    ..MOST
                },
                ..DETACHED
            },
        ),
        holds(
            "long: detached leases, late effects, an extension, a minimum hold",
            Detached {
                late_effects: true,
                lease: DetachedLease { ttl: 2, min_hold: 3 },
                most: Counts { extends: 1, ..MOST },
                ..DETACHED
            },
        ),
        holds(
            "long: detached leases of two names, another process",
            Detached {
                processes: 2,
                horizon: 3,
                most: Counts { claims: 1, ..MOST },
                ..SET
            },
        ),
        holds(
            "long: detached leases of two names, three that resume, a copy",
            Detached {
                horizon: 1,
                most: Counts {
                    resumes: 3,
                    copies: 1,
                    ..MOST
                },
                ..SET
            },
        ),
    ]
}
