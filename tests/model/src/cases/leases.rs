//! The cases of one lock.

use super::{Case, IN_ORDER, ONE_HOLDER, RISES, breaks, holds};
use crate::lease::{Counts, CountsFrom, Lease};
use crate::protocol::{Release, Renewal, Rules, Tokens};

/// The lock itself, as it is.
pub(super) fn leases() -> [Case; 7] {
    let base = Lease::of(2);
    let late = Lease {
        late_effects: true,
        ..base
    };
    let elections = Lease {
        most: Counts {
            elections: 1,
            ..Counts::claims(2)
        },
        ..base
    };
    [
        holds(
            "three claims of two processes",
            Lease {
                horizon: 4,
                ..Lease::of(3)
            },
        ),
        holds(
            "copies of acquire requests, and renewals",
            Lease {
                most: Counts {
                    copies: 1,
                    renewals: 1,
                    ..Counts::claims(2)
                },
                horizon: 4,
                ..base
            },
        ),
        holds(
            "commands that take effect late",
            Lease {
                most: Counts {
                    renewals: 1,
                    ..Counts::claims(2)
                },
                ..late
            },
        ),
        holds(
            "operators whose commands are late",
            Lease {
                most: Counts {
                    forced: 1,
                    ..Counts::claims(2)
                },
                horizon: 4,
                ..late
            },
        ),
        holds(
            "the TTL index, and a peer that deletes documents",
            Lease {
                processes: 1,
                has_peer: true,
                retention: Some(1),
                most: Counts::claims(3),
                horizon: 4,
                ..base
            },
        ),
        holds(
            "an election",
            Lease {
                horizon: 4,
                ..elections
            },
        ),
        holds(
            "an election, clocks apart by the takeover margin",
            Lease {
                rules: Rules {
                    takeover_margin: 1,
                    ..base.rules
                },
                clocks: [0, 1],
                ..elections
            },
        ),
    ]
}

/// The lock with one rule or one assumption missing.
pub(super) fn broken_leases() -> [Case; 8] {
    let base = Lease::of(2);
    let renewals = |renewals| Counts {
        renewals,
        ..Counts::claims(2)
    };
    let elections = Counts {
        elections: 1,
        ..Counts::claims(2)
    };
    [
        breaks(
            "no fence, and a process that pauses",
            IN_ORDER,
            Lease {
                is_fenced: false,
                ..base
            },
        ),
        breaks(
            "a renewal that takes back what a later one has granted",
            ONE_HOLDER,
            Lease {
                rules: Rules {
                    renewal: Renewal::Overwrites,
                    ..base.rules
                },
                horizon: 3,
                most: renewals(2),
                late_effects: true,
                ..base
            },
        ),
        breaks(
            "a release that deletes, and tokens that count from 1",
            IN_ORDER,
            Lease {
                rules: Rules {
                    release: Release::Deletes,
                    tokens: Tokens::Count,
                    ..base.rules
                },
                ..Lease::of(3)
            },
        ),
        breaks(
            "replies before a majority has the write (w: 1)",
            ONE_HOLDER,
            Lease {
                most: elections,
                majority: false,
                ..base
            },
        ),
        breaks(
            "clocks further apart than the takeover margin",
            ONE_HOLDER,
            Lease {
                rules: Rules {
                    takeover_margin: 1,
                    ..Rules::with_expiry(3)
                },
                clocks: [0, 2],
                most: elections,
                ..base
            },
        ),
        breaks(
            "a lease that counts from the reply",
            ONE_HOLDER,
            Lease {
                counts_from: CountsFrom::Reply,
                ..base
            },
        ),
        breaks(
            "a document deleted while an acquire request waits in the server",
            RISES,
            Lease {
                rules: Rules::with_expiry(1),
                horizon: 1,
                retention: Some(0),
                late_effects: true,
                ..Lease::of(3)
            },
        ),
        breaks(
            "a document deleted within the millisecond of its lease",
            RISES,
            Lease {
                processes: 1,
                has_peer: true,
                horizon: 2,
                deletes_at_once: true,
                ..Lease::of(3)
            },
        ),
    ]
}

/// Greater bounds, which take minutes: `MONGOLOCK_MODELS=long`.
pub(super) fn long_leases() -> [Case; 7] {
    let late = Lease {
        late_effects: true,
        ..Lease::of(2)
    };
    [
        holds("long: three claims of two processes", Lease::of(3)),
        holds(
            "long: the TTL index, a peer that deletes documents, renewals",
            Lease {
                processes: 1,
                has_peer: true,
                retention: Some(1),
                most: Counts {
                    renewals: 1,
                    ..Counts::claims(3)
                },
                ..Lease::of(3)
            },
        ),
        holds(
            "long: operators whose commands are late",
            Lease {
                most: Counts {
                    forced: 1,
                    ..Counts::claims(2)
                },
                ..late
            },
        ),
        holds(
            "long: late commands, and two renewals",
            Lease {
                most: Counts {
                    renewals: 2,
                    ..Counts::claims(2)
                },
                ..late
            },
        ),
        holds(
            "long: three processes",
            Lease {
                processes: 3,
                ..Lease::of(3)
            },
        ),
        holds(
            "long: late commands, copies and operators",
            Lease {
                most: Counts {
                    copies: 1,
                    forced: 1,
                    ..Counts::claims(2)
                },
                horizon: 4,
                ..late
            },
        ),
        holds(
            "long: elections, renewals, clocks apart by the margin",
            Lease {
                rules: Rules {
                    takeover_margin: 1,
                    ..Rules::with_expiry(2)
                },
                clocks: [1, 0],
                most: Counts {
                    renewals: 1,
                    elections: 2,
                    ..Counts::claims(2)
                },
                ..Lease::of(2)
            },
        ),
    ]
}
