//! Every model that is explored, with what must come of it.

mod detached;
mod leases;

use stateright::Model;

use self::detached::{broken_detached, detached, long_detached};
use self::leases::{broken_leases, leases, long_leases};
use crate::check::{Expected, Outcome, explore};
use crate::commit::{Commit, End, Guard};
use crate::done::{Done, Ends};
use crate::handover::{Handover, Stored};
use crate::names::{Names, Order};
use crate::permits::{Permits, Takes};
use crate::protocol::Rules;
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
    cases.extend(broken_commits());
    cases.extend(other_broken_models());
    cases.extend(detached());
    cases.extend(broken_detached());
    let is_long = |case| Case {
        is_long: true,
        ..case
    };
    cases.extend(long_leases().map(is_long));
    cases.extend(other_long().map(is_long));
    cases.extend(long_detached().map(is_long));
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
    end: End::Renews,
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
fn other_models() -> [Case; 7] {
    [
        holds("hand-overs in one process", HANDOVER),
        holds("guarded commits", COMMIT),
        holds(
            "guarded commits that release the lock",
            Commit {
                end: End::Releases,
                ..COMMIT
            },
        ),
        holds("permits of a semaphore", PERMITS),
        holds("work that may succeed once in a period", DONE),
        holds("several names, all or nothing", NAMES),
        holds("waiters, lost events and crashes", WAITING),
    ]
}

/// The other questions, with one rule missing.
fn other_broken_models() -> [Case; 9] {
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

/// Guarded commits with one rule missing.
fn broken_commits() -> [Case; 3] {
    [
        breaks(
            "a commit that only reads the lock's document",
            "no transaction commits after a later holder has the lock",
            Commit {
                guard: Guard::Reads,
                ..COMMIT
            },
        ),
        breaks(
            "a guarded commit with a release after it",
            "no claim has the lock after the commit that ends it",
            Commit {
                end: End::ReleasesAfter,
                ..COMMIT
            },
        ),
        breaks(
            "a guarded commit with a release before it",
            "no commit releases the lock without its data",
            Commit {
                end: End::ReleasesBefore,
                ..COMMIT
            },
        ),
    ]
}

/// The same for the other questions.
fn other_long() -> [Case; 5] {
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
            "long: guarded commits that release the lock",
            Commit {
                transactions: 3,
                horizon: 5,
                end: End::Releases,
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
