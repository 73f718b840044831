//! Every model that is explored, with what must come of it.

use crate::check::{Outcome, explore};
use crate::commit::{Commit, Guard};
use crate::detached::{Changed, Detached, Order};
use crate::done::{Done, Ends};
use crate::handover::{Handover, Stored};
use crate::lease::{CountsFrom, Lease};
use crate::names::{self, Names};
use crate::permits::{Permits, Takes};
use crate::protocol::{DetachedLease, Rules};
use crate::shared::{Counts, IN_ORDER, ONE_HOLDER, RISES};

/// One model with its bounds.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn() -> Outcome,
}

impl Case {
    /// Whether it takes minutes.
    pub(crate) fn is_long(&self) -> bool {
        self.name.starts_with("long: ")
    }
}

/// A table of cases. A row has the name of the case, its model, and the fields of the model that differ. If a rule or an
/// assumption is missing, the property that must break stands behind the arrow.
macro_rules! cases {
    ($($name:literal: $model:expr $(, $($field:ident).+ = $value:expr)* $(=> $broken:expr)?;)+) => {
        vec![$(Case {
            name: $name,
            run: || {
                #[allow(unused_mut)]
                let mut model = $model;
                $(model.$($field).+ = $value;)*
                explore(model, None$(.or(Some($broken)))?)
            },
        }),+]
    };
}

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    [leases(), commits(), other_models(), detached(), broken_detached()].concat()
}

/// Two processes, which acquire the lock this many times together, and no faults.
fn lease(claims: u8) -> Lease {
    Lease {
        rules: Rules::with_expiry(2),
        processes: 2,
        has_peer: false,
        most: Counts {
            claims,
            ..Counts::default()
        },
        horizon: 5,
        late_effects: false,
        retention: None,
        deletes_at_once: false,
        is_fenced: true,
        counts_from: CountsFrom::Request,
        clocks: [0, 0],
        majority: true,
    }
}

/// Commands may take effect late.
fn late(claims: u8) -> Lease {
    Lease {
        late_effects: true,
        ..lease(claims)
    }
}

/// One process of the library, and a peer that deletes documents.
fn peer() -> Lease {
    Lease {
        processes: 1,
        has_peer: true,
        ..lease(3)
    }
}

fn leases() -> Vec<Case> {
    cases! {
        "three claims of two processes": lease(3), horizon = 4;
        "copies of acquire requests, and renewals": lease(2), most.copies = 1, most.renewals = 1, horizon = 4;
        "commands that take effect late": late(2), most.renewals = 1, horizon = 3;
        "operators whose commands are late": late(2), most.forced = 1, horizon = 3;
        "the TTL index, and a peer that deletes documents": peer(), retention = Some(1), horizon = 4;
        "an election": lease(2), most.elections = 1, horizon = 4;
        "an election, clocks apart by the takeover margin":
            lease(2), most.elections = 1, rules.takeover_margin = 1, clocks = [0, 1];

        "no fence, and a process that pauses": lease(2), is_fenced = false => IN_ORDER;
        "a renewal that takes back what a later one has granted":
            late(2), rules.renewal_overwrites = true, most.renewals = 2, horizon = 3 => ONE_HOLDER;
        "a release that deletes, and tokens that count from 1":
            lease(3), rules.is_peer = true => IN_ORDER;
        "replies before a majority has the write (w: 1)":
            lease(2), most.elections = 1, majority = false => ONE_HOLDER;
        "clocks further apart than the takeover margin":
            lease(2), most.elections = 1, rules.expiry = 3, rules.takeover_margin = 1, clocks = [0, 2]
            => ONE_HOLDER;
        "a lease that counts from the reply": lease(2), counts_from = CountsFrom::Reply => ONE_HOLDER;
        "a document deleted while an acquire request waits in the server":
            late(3), rules.expiry = 1, horizon = 1, retention = Some(0) => RISES;
        "a document deleted within the millisecond of its lease":
            peer(), horizon = 2, deletes_at_once = true => RISES;

        "long: three claims of two processes": lease(3);
        "long: the TTL index, a peer that deletes documents, renewals":
            peer(), retention = Some(1), most.renewals = 1;
        "long: operators whose commands are late": late(2), most.forced = 1;
        "long: commands that take effect late": late(2), most.renewals = 1;
        "long: late commands, and two renewals": late(2), most.renewals = 2;
        "long: three processes": lease(3), processes = 3;
        "long: late commands, copies and operators": late(2), most.copies = 1, most.forced = 1, horizon = 4;
        "long: elections, renewals, clocks apart by the margin":
            lease(2), most.renewals = 1, most.elections = 2, rules.takeover_margin = 1, clocks = [1, 0];
    }
}

fn commit() -> Commit {
    Commit {
        rules: Rules::with_expiry(2),
        processes: 2,
        most: Counts {
            claims: 3,
            transactions: 2,
            ..Counts::default()
        },
        horizon: 4,
        guard: Guard::Changes,

        operators: true,
    }
}

fn commits() -> Vec<Case> {
    cases! {
        "guarded commits": commit();

        "a commit that only reads the lock's document":
            commit(), guard = Guard::Reads
            => "no transaction commits after a later holder has the lock";

        "long: guarded commits": commit(), most.transactions = 3, horizon = 5;
    }
}

fn handover() -> Handover {
    Handover {
        rules: Rules::with_expiry(2),
        processes: 2,
        claims: 3,
        horizon: 4,
        stored: Stored::Last,
    }
}

fn permits() -> Permits {
    Permits {
        number: 2,
        processes: 3,
        most: Counts {
            claims: 3,
            copies: 1,
            ..Counts::default()
        },
        takes: Takes::ItsOwn,
    }
}

fn done(ends: Ends) -> Done {
    Done {
        rules: Rules::with_expiry(2),
        processes: 3,
        most: Counts {
            claims: 4,
            renewals: 1,
            copies: 1,
            crashes: 1,
            ..Counts::default()
        },
        period: 4,
        horizon: 6,
        ends,
    }
}

fn names() -> Names {
    Names {
        processes: 3,
        rounds: 2,
        late_copies: 1,
        order: names::Order::OfNames,
        releases_late: true,
    }
}

fn other_models() -> Vec<Case> {
    const ONCE: &str = "one call at most is told that it has done the work of a period";
    const IN_THE_END: &str = "every call gets its locks in the end";
    cases! {
        "hand-overs in one process": handover();
        "permits of a semaphore": permits();
        "work that may succeed once in a period": done(Ends::Mark), most.claims = 3;
        "several names, all or nothing": names();

        "the document keeps the first of the reserved tokens":
            handover(), stored = Stored::First => "each hold has a greater token than those before";
        "a claim for any free permit, repeated":
            permits(), takes = Takes::AnyFree => "a claim has one permit at most";
        "a mark that is looked for by its claim":
            done(Ends::MarkByClaim) => "a call whose mark stands is not told that its lock was lost";
        "a lock that is released when the work is done": done(Ends::Release) => ONCE;
        "a claim that is gone after its period counts as released": done(Ends::MarkOrGoneLater) => ONCE;
        "names one by one in the order of each caller": names(), order = names::Order::OfCaller => IN_THE_END;
        "a claim that was given up is not released late": names(), releases_late = false => IN_THE_END;

        "long: several names, three rounds, two late copies": names(), rounds = 3, late_copies = 2;
        "long: work that may succeed once in a period": done(Ends::Mark);
        "long: permits, two copies": permits(), most.claims = 4, most.copies = 2;
    }
}

/// The first process holds the lock, and others may resume its lease.
fn held(names: usize) -> Detached {
    Detached {
        rules: Rules {
            late_command: 1,
            ..Rules::with_expiry(2)
        },
        lease: DetachedLease { ttl: 3, min_hold: 0 },
        extension: 1,
        names,
        is_held: true,
        processes: 3,
        most: Counts {
            detaches: 1,
            resumes: 2,
            ..Counts::default()
        },
        horizon: 4,
        late_effects: false,
        order: Order::Reverse,
        changed: Changed::Nothing,
    }
}

/// The first process acquires the lock with the steps of the model.
fn acquired() -> Detached {
    Detached {
        is_held: false,
        processes: 2,
        horizon: 1,
        most: Counts {
            claims: 1,
            copies: 2,
            ..held(1).most
        },
        ..held(1)
    }
}

fn changed(names: usize, changed: Changed) -> Detached {
    Detached {
        changed,
        ..held(names)
    }
}

fn detached() -> Vec<Case> {
    cases! {
        "detached leases: two that resume one handle": held(1);
        "detached leases: another process that wants the lock": held(1), most.claims = 1;
        "detached leases: copies of requests": held(1), most.copies = 2, horizon = 1;
        "detached leases: renewals, an extension, a release by handle":
            held(1), most.renewals = 1, most.extends = 1, most.releases = 1, horizon = 2;
        "detached leases: commands that take effect late": held(1), late_effects = true, horizon = 2;
        "detached leases: copies of the request that acquires": acquired();
        "detached leases: detached again": held(1), most.detaches = 2, most.copies = 1, horizon = 2;
        "detached leases: two names": held(2), horizon = 2;
        "detached leases: two names, a copy": held(2), most.copies = 1, horizon = 1;

        "long: detached leases, copies of requests": held(1), most.copies = 2;
        "long: detached leases, renewals, an extension, a release by handle":
            held(1), most.renewals = 1, most.extends = 1, most.releases = 1;
        "long: detached leases, late effects": held(1), late_effects = true;
        "long: detached leases, detached again": held(1), most.detaches = 2, most.copies = 1;
        "long: detached leases of two names": held(2);
        "long: detached leases, another process, a copy": held(1), most.claims = 1, most.copies = 1;
        "long: detached leases, late effects, an extension, a minimum hold":
            held(1), late_effects = true, lease.ttl = 2, lease.min_hold = 3, most.extends = 1;
        "long: detached leases of two names, another process":
            held(2), processes = 2, most.claims = 1, horizon = 3;
        "long: detached leases of two names, three that resume, a copy":
            held(2), most.resumes = 3, most.copies = 1, horizon = 1;
    }
}

/// One rule is another one.
fn broken_detached() -> Vec<Case> {
    const LASTS: &str = "a detached lease lasts as long as it was granted";
    const KEPT: &str = "no lease is kept by a resumption that nobody has";
    const WHOLE: &str = "a process releases no lease that others can resume";
    const ONE: &str = "one of those that resume a handle gets it";
    cases! {
        "a detached lease that keeps the id of the hold":
            changed(1, Changed::DetachKeepsId), most.renewals = 1, lease.ttl = 4 => LASTS;
        "a resumed hold that keeps the id of the handle": changed(1, Changed::ResumeKeepsId) => ONE_HOLDER;
        "a resumed hold that keeps the token": changed(1, Changed::ResumeKeepsToken) => RISES;
        "an extension by the rule of a renewal":
            changed(1, Changed::ExtendsLikeRenewal), most.extends = 1 => LASTS;
        "a detach that looks for the id alone":
            acquired(), changed = Changed::DetachIgnoresToken => "one process at most resumes a handle";
        "names that are resumed without an order": changed(2, Changed::Unordered), horizon = 1 => ONE;
        "a process that resumes no name and releases": changed(2, Changed::LoserReleases), horizon = 1 => ONE;
        "a process that resumes a part and releases": changed(2, Changed::PartReleases), horizon = 1 => WHOLE;
        "names that are detached in their order": held(2), order = Order::OfNames => WHOLE;
        "a resumption that is given back once only": changed(1, Changed::GivesBackOnce) => KEPT;
        "a resumption that was lost and has a late copy":
            changed(1, Changed::LoserForgets), most.copies = 1 => KEPT;
        "a resumption that is given back after it was delivered":
            changed(1, Changed::GivesBackDelivered) => ONE_HOLDER;
    }
}
