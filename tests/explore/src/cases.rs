//! What is run: searches and random runs that must hold, and mutants that must fail.

use std::time::Duration;

use crate::judge;
use crate::random;
use crate::search::{self, Found};
use crate::setup::{Faults, Mutant, Setup};

/// One search, or one set of random runs.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) setup: Setup,
    pub(crate) kind: Kind,
    /// What the judge must find, because a rule is taken out.
    pub(crate) breaks: Option<&'static str>,
    pub(crate) is_long: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Every order within the bounds.
    Whole,
    /// As many situations as this, of more.
    First(usize),
    /// This number of seeds, with this number of steps each.
    Random { seeds: u64, length: usize },
}

/// The number of situations that are looked at with a rule that is taken out afterwards.
const PART: usize = 150_000;

impl Case {
    /// Runs it. Where a rule is taken out, the same bounds must hold with the rule, as far as a part of the situations shows.
    pub(crate) fn run(&self) -> Found {
        if self.breaks.is_some() {
            let with_rule = Setup {
                mutant: None,
                ..self.setup
            };
            let found = search::search(&with_rule, PART);
            if found.breach.is_some() {
                return found;
            }
        }
        match self.kind {
            Kind::Whole => search::search(&self.setup, usize::MAX),
            Kind::First(most) => search::search(&self.setup, most),
            Kind::Random { seeds, length } => random::runs(&self.setup, seeds, length),
        }
    }
}

/// A table of searches of every order. A row has the name of the case, its bounds, and the fields of them that differ. If a rule
/// is taken out, what the judge must find stands behind the arrow.
macro_rules! cases {
    ($($name:literal: $setup:expr $(, $($field:ident).+ = $value:expr)* $(=> $breaks:expr)?;)+) => {
        vec![$({
            #[allow(unused_mut)]
            let mut setup: Setup = $setup;
            $(setup.$($field).+ = $value;)*
            let breaks = None$(.or(Some($breaks)))?;
            Case { name: $name, setup, kind: Kind::Whole, breaks, is_long: false }
        }),+]
    };
}

/// Everything that is run, the longest searches first.
pub(crate) fn all() -> Vec<Case> {
    let few = Kind::Random {
        seeds: 100,
        length: 1500,
    };
    let many = Kind::Random {
        seeds: 1250,
        length: 2000,
    };
    let of_kind = |cases: Vec<Case>, kind, is_long| {
        let with_kind = |case| Case {
            kind,
            is_long,
            ..case
        };
        cases.into_iter().map(with_kind).collect()
    };
    [
        of_kind(most_situations(), Kind::First(2 * PART), false),
        without_faults(),
        one_fault(),
        of_kind(random_runs(), few, false),
        mutants(),
        of_kind(long_parts(), Kind::First(8_000_000), true),
        of_kind(most_situations(), Kind::Whole, true),
        of_kind(long(), Kind::Whole, true),
        of_kind(random_runs(), many, true),
    ]
    .concat()
}

const SECOND: Duration = Duration::from_secs(1);

/// Two processes with two callers each, which call once, without a stream and without faults. A waiter polls, with the longest
/// pause of the default options.
fn polling() -> Setup {
    Setup {
        processes: 2,
        callers: 2,
        stream: false,
        has_line: false,
        expiry: Duration::from_secs(600),
        deadlines: false,
        tries: false,
        unawaited: false,
        again: false,
        faults: Faults {
            holds: 1,
            ..Faults::default()
        },
        most_free: Duration::from_millis(800),
        most_given_up: SECOND,
        mutant: None,
    }
}

/// The same with a change stream, and in line: a waiter leaves a free lock to others for 50 ms at most.
fn in_line() -> Setup {
    Setup {
        stream: true,
        has_line: true,
        most_free: Duration::from_millis(50),
        ..polling()
    }
}

/// This number of processes with this number of callers each, and faults. A lost request has a copy after 2 s, and the release of
/// a claim is repeated after 5 s.
fn faulty(processes: u8, callers: usize) -> Setup {
    Setup {
        processes,
        callers,
        most_free: Duration::from_millis(5100),
        most_given_up: Duration::from_millis(5100),
        ..polling()
    }
}

/// The same with a stream and in line.
fn faulty_in_line(processes: u8, callers: usize) -> Setup {
    Setup {
        stream: true,
        has_line: true,
        ..faulty(processes, callers)
    }
}

/// Callers that come again, in many processes, with all faults.
fn fleet() -> Setup {
    Setup {
        processes: 3,
        callers: 4,
        expiry: SECOND * 3,
        deadlines: true,
        tries: true,
        unawaited: true,
        again: true,
        faults: Faults {
            lost: 50,
            unclear: 50,
            blocked: 50,
            repeated: 50,
            slow: 200,
            cancelled: 100,
            crashes: 1,
            stopped_streams: 20,
            holds: 200,
        },
        most_free: SECOND * 40,
        most_given_up: SECOND * 10,
        ..in_line()
    }
}

/// The search without faults that visits a million situations: the usual run looks at a part of them.
fn most_situations() -> Vec<Case> {
    cases! { "2 x 2, stream and line": in_line(); }
}

fn without_faults() -> Vec<Case> {
    cases! {
        "2 x 2, polling": polling();
        "2 x 2, line without a stream": polling(), has_line = true;
        "2 x 2, releases that are not awaited": polling(), unawaited = true;
        "2 x 2, a deadline and a single try": polling(), deadlines = true, tries = true;
    }
}

fn one_fault() -> Vec<Case> {
    cases! {
        "2 x 1, a lost message": faulty(2, 1), faults.lost = 1;
        "2 x 1, stream and line, a lost message": faulty_in_line(2, 1), faults.lost = 1;
        "2 x 1, an unclear error": faulty(2, 1), faults.unclear = 1;
        "2 x 1, a blocked document": faulty(2, 1), faults.blocked = 1;
        "2 x 1, a slow command": faulty(2, 1), faults.slow = 1;
        "2 x 1, a slow command that the driver repeats": faulty(2, 1), faults.slow = 1, faults.repeated = 1;
        "2 x 1, an unclear error and a slow command": faulty(2, 1), faults.unclear = 1, faults.slow = 1;
        // A reply comes when the lease is over.
        "1 x 2, a slow command, expiry 1 s": faulty(1, 2), faults.slow = 1, expiry = SECOND;
        "2 x 1, a cancelled call": faulty(2, 1), faults.cancelled = 1;
        "2 x 1, a crash, expiry 1 s": faulty(2, 1), faults.crashes = 1, expiry = SECOND;
        // A lease that ends is followed as soon as it is over.
        "2 x 1, stream and line, a crash, expiry 1 s":
            faulty_in_line(2, 1), faults.crashes = 1, expiry = SECOND, most_free = Duration::from_millis(100);
        // A stream that stops is opened again after 200 ms, and nothing was missed then.
        "2 x 1, stream and line, a stream that stops":
            faulty_in_line(2, 1), faults.stopped_streams = 1, most_free = Duration::from_millis(300);
        "2 x 1, line without a stream, a lost message": faulty(2, 1), has_line = true, faults.lost = 1;
        "2 x 1, line without a stream, a slow command": faulty(2, 1), has_line = true, faults.slow = 1;
        // A waiter in front of another one dies.
        "3 x 1, line without a stream, a crash":
            faulty(3, 1), has_line = true, faults.crashes = 1, expiry = SECOND, most_free = polling().most_free;
        "1 x 2, a lost message and a cancelled call": faulty(1, 2), faults.lost = 1, faults.cancelled = 1;
        "1 x 3, a deadline and a single try, a slow command":
            faulty(1, 3), deadlines = true, tries = true, faults.slow = 1;
        "1 x 3, a deadline and a single try, a lost message":
            faulty(1, 3), deadlines = true, tries = true, faults.lost = 1;
    }
}

fn random_runs() -> Vec<Case> {
    cases! {
        "3 x 4 again and again, stream and line, all faults": fleet();
        "3 x 4 again and again, polling, all faults": fleet(), stream = false, has_line = false;
        "3 x 4 again and again, line without a stream, all faults": fleet(), stream = false;
        "8 x 8 again and again, stream and line, all faults": fleet(), processes = 8, callers = 8;
    }
}

/// Each lacks one rule.
fn mutants() -> Vec<Case> {
    let without = |mutant, setup| Setup {
        mutant: Some(mutant),
        ..setup
    };
    cases! {
        "a release seen during a request is forgotten | 2 x 2, stream and line":
            without(Mutant::ReleaseInFlightIsForgotten, in_line()) => judge::FREE;
        "no request after a new subscription | 2 x 2, stream and line":
            without(Mutant::NoLookAfterSubscription, in_line()) => judge::FREE;
        "a release that is not awaited is never sent | 2 x 2, releases that are not awaited":
            without(Mutant::UnawaitedReleaseIsNotSent, polling()), unawaited = true => judge::NOT_IDLE;
        "a hand-over reuses the token | 2 x 2, polling":
            without(Mutant::HandoverReusesToken, polling()) => judge::TOKEN;
        "\"held\" before the first reply | 2 x 2, a deadline and a single try":
            without(Mutant::HeldBeforeFirstReply, polling()), deadlines = true, tries = true => judge::UNSAID;

        // Requests and their replies.
        "no copy of an overdue request | 2 x 1, a lost message":
            without(Mutant::NoCopy, faulty(2, 1)), faults.lost = 1, most_free = SECOND * 3 => judge::FREE;
        "\"held\" stays valid without a reply | 2 x 2, a deadline, slow twice":
            without(Mutant::HeldStaysValid, faulty(2, 2)), deadlines = true, faults.slow = 2 => judge::SILENT;
        "a lease that is over is delivered | 1 x 2, a slow command, expiry 1 s":
            without(Mutant::LeaseThatIsOverIsDelivered, faulty(1, 2)), faults.slow = 1, expiry = SECOND
            => judge::OVER;
        "a slow reply counts as certain | 2 x 1, a slow command that the driver repeats":
            without(Mutant::SlowReplyCountsAsCertain, faulty(2, 1)), faults.slow = 1, faults.repeated = 1
            => judge::LEFT_CLAIM;

        // Releases and claims that were given up.
        "no late releases | 2 x 1, a slow command that the driver repeats":
            without(Mutant::NoLateReleases, faulty(2, 1)), faults.slow = 1, faults.repeated = 1
            => judge::LEFT_CLAIM;
        "a reply during a release is ignored | 2 x 1, slow twice":
            without(Mutant::ReplyDuringReleaseIsIgnored, faulty(2, 1)), faults.slow = 2 => judge::LEFT_CLAIM;
        "a cancelled claim in flight is not released | 2 x 1, a slow command and a cancelled call":
            without(Mutant::CancelledClaimIsNotReleased, faulty(2, 1)), faults.slow = 1, faults.cancelled = 1
            => judge::LEFT_CLAIM;
        "the turn stays after a failed release | 1 x 2, an unclear error and a lost message":
            without(Mutant::TurnStaysAfterFailedRelease, faulty(1, 2)),
            faults.unclear = 1, faults.lost = 1, most_given_up = SECOND * 4 => judge::GIVEN_UP;
        "given-up ids are not recognised | 1 x 2, a lost message and a cancelled call":
            without(Mutant::GivenUpIdsAreNotRecognised, faulty(1, 2)), faults.lost = 1, faults.cancelled = 1
            => judge::GIVEN_UP;
    }
}

/// Greater bounds, of which a search does not reach the end.
fn long_parts() -> Vec<Case> {
    cases! {
        "2 x 2, stream and line, two pauses while it is held": in_line(), faults.holds = 2;
        "2 x 2, stream and line, a lost message": faulty_in_line(2, 2), faults.lost = 1;
        "2 x 2, a slow command": faulty(2, 2), faults.slow = 1;
        "2 x 2, a deadline, a slow command": faulty(2, 2), deadlines = true, faults.slow = 1;
        "2 x 1, slow twice, a repeated command": faulty(2, 1), faults.slow = 2, faults.repeated = 1;
        // A command that is slow three times takes effect after 6 s.
        "2 x 1, slow three times, a cancelled call":
            faulty(2, 1), faults.slow = 3, faults.cancelled = 1, most_free = Duration::from_millis(6100);
        "2 x 2, a crash, slow once, expiry 1 s":
            faulty(2, 2), faults.crashes = 1, faults.slow = 1, expiry = SECOND;
    }
}

/// Greater bounds, of which everything is visited.
fn long() -> Vec<Case> {
    cases! {
        "2 x 2, polling, two pauses while the lock is held": polling(), faults.holds = 2;
        "2 x 2, stream without a line": in_line(), has_line = false;
        "2 x 2, a cancelled call": faulty(2, 2), faults.cancelled = 1;
        "2 x 2, a lost message": faulty(2, 2), faults.lost = 1;
        "2 x 2, an unclear error": faulty(2, 2), faults.unclear = 1;
        "2 x 2, a blocked document": faulty(2, 2), faults.blocked = 1;
    }
}
