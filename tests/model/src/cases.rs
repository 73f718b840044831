//! Every model that is explored, with what must come of it.

use stateright::Model;

use crate::check::{Expected, Outcome, explore};
use crate::commit::{Commit, Guard};
use crate::done::{Done, Ends};
use crate::handover::{Handover, Stored};
use crate::lease::{Counts, CountsFrom, Lease};
use crate::names::{Names, Order};
use crate::permits::{Permits, Takes};
use crate::protocol::{Release, Renewal, Rules, Tokens};
use crate::waiting::Waiting;

/// One model with its bounds.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Whether it takes minutes.
    pub(crate) is_long: bool,
    pub(crate) run: Box<dyn FnOnce() -> Outcome>,
}

const RISES: &str = "a later holder has a greater token";
const ONE_HOLDER: &str = "no two processes rely on the lock";
const IN_ORDER: &str = "fenced writes take effect in the order of the holders";

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(leases());
    cases.extend(broken_leases());
    cases.extend(other_models());
    cases.extend(other_broken_models());
    let is_long = |case| Case {
        is_long: true,
        ..case
    };
    cases.extend(long_leases().map(is_long));
    cases.extend(other_long().map(is_long));
    cases
}

fn holds<M>(name: &'static str, model: M) -> Case
where
    M: Model<State: Clone + Send + Sync + std::fmt::Debug + std::hash::Hash + PartialEq>,
    M: Model<Action: Clone + Send + Sync + std::fmt::Debug + PartialEq> + Send + Sync + 'static,
{
    Case {
        name,
        is_long: false,
        run: Box::new(|| explore(model, Expected::Holds)),
    }
}

fn breaks<M>(name: &'static str, property: &'static str, model: M) -> Case
where
    M: Model<State: Clone + Send + Sync + std::fmt::Debug + std::hash::Hash + PartialEq>,
    M: Model<Action: Clone + Send + Sync + std::fmt::Debug + PartialEq> + Send + Sync + 'static,
{
    Case {
        name,
        is_long: false,
        run: Box::new(move || explore(model, Expected::Breaks(property))),
    }
}

/// The lock itself, as it is.
fn leases() -> [Case; 7] {
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
fn broken_leases() -> [Case; 8] {
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

const HANDOVER: Handover = Handover {
    rules: Rules::with_expiry(2),
    processes: 2,
    claims: 3,
    horizon: 4,
    stored: Stored::Last,
};

const COMMIT: Commit = Commit {
    rules: Rules::with_expiry(2),
    processes: 2,
    claims: 3,
    transactions: 2,
    horizon: 4,
    guard: Guard::Changes,
    operators: true,
};

const PERMITS: Permits = Permits {
    number: 2,
    processes: 3,
    claims: 3,
    copies: 1,
    takes: Takes::ItsOwn,
};

const DONE: Done = Done {
    rules: Rules::with_expiry(2),
    processes: 3,
    claims: 4,
    renewals: 1,
    copies: 1,
    crashes: 1,
    period: 4,
    horizon: 6,
    ends: Ends::Mark,
};

const NAMES: Names = Names {
    processes: 3,
    rounds: 2,
    late_copies: 1,
    order: Order::OfNames,
    releases_late: true,
};

const WAITING: Waiting = Waiting {
    waiters: 3,
    expiry: 4,
    poll: Some(2),
    listens_first: true,
    timeout: 5,
    lost_events: 2,
    crashes: 1,
    horizon: 8,
};

/// The other questions.
fn other_models() -> [Case; 6] {
    [
        holds("hand-overs in one process", HANDOVER),
        holds("guarded commits", COMMIT),
        holds("permits of a semaphore", PERMITS),
        holds("work that may succeed once in a period", DONE),
        holds("several names, all or nothing", NAMES),
        holds("waiters, lost events and crashes", WAITING),
    ]
}

/// The other questions, with one rule missing.
fn other_broken_models() -> [Case; 10] {
    let commits = "no transaction commits after a later holder has the lock";
    let gap = "a lock that is awaited is not free for long";
    let ends = "every call gets its locks in the end";
    [
        breaks(
            "the document keeps the first of the reserved tokens",
            "each hold has a greater token than those before",
            Handover {
                stored: Stored::First,
                ..HANDOVER
            },
        ),
        breaks(
            "a commit that only reads the lock's document",
            commits,
            Commit {
                guard: Guard::Reads,
                ..COMMIT
            },
        ),
        breaks(
            "a claim for any free permit, repeated",
            "a claim has one permit at most",
            Permits {
                takes: Takes::AnyFree,
                ..PERMITS
            },
        ),
        breaks(
            "a mark that is looked for by its claim",
            "a call whose mark stands is not told that its lock was lost",
            Done {
                ends: Ends::MarkByClaim,
                ..DONE
            },
        ),
        breaks(
            "a lock that is released when the work is done",
            "one call at most is told that it has done the work of a period",
            Done {
                ends: Ends::Release,
                ..DONE
            },
        ),
        breaks(
            "a claim that is gone after its period counts as released",
            "one call at most is told that it has done the work of a period",
            Done {
                ends: Ends::MarkOrGoneLater,
                ..DONE
            },
        ),
        breaks(
            "names one by one in the order of each caller",
            ends,
            Names {
                order: Order::OfCaller,
                ..NAMES
            },
        ),
        breaks(
            "a claim that was given up is not released late",
            ends,
            Names {
                releases_late: false,
                ..NAMES
            },
        ),
        breaks(
            "waiters that rely on events alone",
            gap,
            Waiting {
                poll: None,
                ..WAITING
            },
        ),
        breaks(
            "waiters that ask before they listen, and do not poll",
            gap,
            Waiting {
                poll: None,
                listens_first: false,
                lost_events: 0,
                ..WAITING
            },
        ),
    ]
}

/// Greater bounds, which take minutes: `MONGOLOCK_MODELS=long`.
fn long_leases() -> [Case; 7] {
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

/// The same for the other questions.
fn other_long() -> [Case; 4] {
    [
        holds(
            "long: guarded commits",
            Commit {
                transactions: 3,
                horizon: 5,
                ..COMMIT
            },
        ),
        holds(
            "long: several names, three rounds, two late copies",
            Names {
                rounds: 3,
                late_copies: 2,
                ..NAMES
            },
        ),
        holds(
            "long: permits, two copies",
            Permits {
                claims: 4,
                copies: 2,
                ..PERMITS
            },
        ),
        holds(
            "long: waiters, two crashes",
            Waiting {
                crashes: 2,
                horizon: 10,
                ..WAITING
            },
        ),
    ]
}
