//! The soak: real processes ask for one lock again and again while they are killed and stopped, their connections are cut
//! or slow, programs of .NET take the lock, and the primary steps down.
//!
//! Every process prints its steps. At the end the checker of histories judges them: overlaps, tokens, releases and calls
//! without an answer. Then follow the time for which the lock was free, and that for which a process was without a turn.

#[path = "../../../suites/faults/act.rs"]
mod act;
mod faults;
mod fleet;
mod job;
mod stalls;
mod verdict;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use mongolock_tests::{Hold, Proxy};
use tokio::time::sleep;

use self::faults::{Faults, Kind, QUIET, Targets};
use self::fleet::{Fleet, Place};
pub(crate) use self::job::{Soaking, ask};
use self::stalls::Stalls;
use self::verdict::{Gap, Seen};
use crate::queue::Client;
use crate::report::Report;
use crate::samples::{Samples, number};
use crate::setting::Setting;

const LOCK: &str = "soak";
/// A short lease, so that the lock of a killed holder is free soon.
const EXPIRY: Duration = Duration::from_secs(2);
/// The longest time for which a free lock may be left alone: the event of its release may be lost.
const FREE: Duration = Duration::from_secs(1);
/// The least number of sections of an exact run.
const HOLDS: f64 = 150_000.0;
/// The number of examples of each defect that are printed.
const EXAMPLES: usize = 10;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let stalls = Stalls::watch();
    let seen = soak(setting, seed()?).await?;
    let stall = stalls.longest();
    safety(&seen, report);
    liveness(&seen, report);
    order(&seen, setting, report);
    happened(&seen, stall, report);
    Ok(())
}

/// The seed of the faults: a random one, if none is set.
fn seed() -> anyhow::Result<u64> {
    let seed = match std::env::var("MONGOLOCK_SOAK_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => fastrand::u64(..),
    };
    println!("soak          the seed of the faults is {seed} (MONGOLOCK_SOAK_SEED repeats it)");
    Ok(seed)
}

/// Lets the processes work beside the faults; returns what was seen.
async fn soak(setting: &Setting, seed: u64) -> anyhow::Result<Seen> {
    let proxy = match setting.address() {
        Some(address) => Some(Proxy::start(address).await?),
        None => None,
    };
    let mut fleet = Fleet::new(setting, LOCK, EXPIRY, places(setting, proxy.as_ref()));
    let targets = Targets { far: 5, foreign: 6 };
    for place in 0..targets.foreign {
        fleet.start(place).await?;
    }
    sleep(QUIET / 2).await;
    let time = setting.pick(Duration::from_secs(1_200), Duration::from_secs(60));
    let faults = Faults::new(setting, &mut fleet, proxy.as_ref(), targets, seed);
    let faults = faults.happen(time).await?;
    sleep(QUIET / 2).await;
    for place in 0..targets.foreign {
        fleet.end(place).await?;
    }
    let (places, lives, history) = fleet.finish()?;
    Ok(Seen::new(places, lives, history, faults))
}

/// Six processes with three tasks each, and a process with two clients of .NET that runs now and then.
fn places(setting: &Setting, proxy: Option<&Proxy>) -> Vec<Place> {
    let place = |title, client, tasks| Place {
        title,
        client,
        tasks,
        uri: setting.uri().to_owned(),
    };
    let mut places = vec![
        place("process 1", Client::Woken, 3),
        place("process 2", Client::Woken, 3),
        place("process 3", Client::Woken, 3),
        place("process 4", Client::Woken, 3),
        place("5, polling", Client::Polling, 3),
        place("6, by a proxy", Client::Woken, 3),
        place(".NET", Client::Dotnet, 2),
    ];
    if let Some(proxy) = proxy {
        places[5].uri = proxy.uri();
    }
    places
}

fn safety(seen: &Seen, report: &mut Report) {
    let verdict = &seen.verdict;
    println!("soak          {verdict}");
    for (what, name, pairs) in [
        ("overlap", "two holders at the same time", &verdict.overlaps),
        ("token", "tokens that do not rise", &verdict.falling_tokens),
        (
            "release",
            "releases confirmed after a takeover",
            &verdict.false_releases,
        ),
    ] {
        show(what, pairs, seen);
        report.at_most(0.0, name, pairs.len(), "times");
    }
    let late = &verdict.late_sections;
    let name = "unfenced: a stopped holder's section beside a later holder";
    report.figure(name, late.len(), "times");
    let longest = late.iter().map(|late| late.time).max();
    report.millis("the same: longest time", longest.unwrap_or_default());
    let noticed = verdict.lost.iter().filter(|hold| hold.was_stopped_over_the_end());
    let name = "stopped over the end of a lease, and noticed it";
    report.figure(name, noticed.count(), "sections");
    report.figure("holds that were lost", verdict.lost.len(), "sections");
    let (killed, stopped) = seen.hit();
    report.figure("killed in a section", killed, "sections");
    report.figure("stopped in a section", stopped, "sections");
    for call in verdict.unanswered.iter().take(EXAMPLES) {
        println!("soak          without an answer: {call:?}");
    }
    let name = "calls without an answer";
    report.at_most(0.0, name, verdict.unanswered.len(), "calls");
}

fn liveness(seen: &Seen, report: &mut Report) {
    let free = seen.free();
    let longest = longest(&free, |gap| gap.span.time());
    report.millis("the lock is free: longest time", longest.span.time());
    let unexplained = worst("free lock", &free, seen, FREE);
    let name = "the same without what faults explain";
    report.at_most(millis(FREE), name, millis(unexplained.unexplained), "ms");
    let gaps: Samples = free.iter().map(|gap| gap.span.time()).collect();
    report.millis("the lock is free: p50", gaps.p50());
    report.millis("the lock is free: p99", gaps.p99());
    let without = seen.without_a_turn();
    let longest = self::longest(&without, |gap| gap.span.time());
    report.millis("a process without a turn: longest time", longest.span.time());
    let unexplained = worst("without a turn", &without, seen, FREE * 3);
    report.millis("the same without what faults explain", unexplained.unexplained);
}

fn order(seen: &Seen, setting: &Setting, report: &mut Report) {
    report.figure("quiet: longest wait / mean wait", &seen.unfairness(), "x");
    let quiet = seen.quiet().into_iter();
    let waits: Samples = quiet.flat_map(|quiet| seen.waits(quiet)).collect();
    report.millis("quiet: mean wait", waits.mean());
    report.millis("quiet: longest wait", waits.max());
    report.figure("quiet times", number(seen.quiet().len()), "times");
    report.at_least(
        setting.pick(Some(HOLDS), None),
        "sections",
        seen.holds.len(),
        "sections",
    );
    report.figure("turns of processes", number(seen.turns()), "turns");
    for (place, of) in seen.places.iter().enumerate() {
        let name = format!("sections of {}", of.title);
        report.figure(name, number(seen.sections_of(place)), "sections");
    }
}

fn happened(seen: &Seen, stall: Duration, report: &mut Report) {
    for (kind, title, _) in Kind::ALL {
        let times = seen.faults.iter().filter(|fault| fault.kind == kind).count();
        report.figure(format!("fault: {title}"), number(times), "times");
    }
    report.figure("faults", number(seen.faults.len()), "times");
    report.millis("longest time for which this program did not run", stall);
    let mut errors = HashMap::<String, usize>::new();
    for error in seen.history.errors() {
        *errors.entry(error).or_default() += 1;
    }
    let failed: usize = errors.values().sum();
    report.figure("calls that have failed", number(failed), "calls");
    let mut errors: Vec<_> = errors.into_iter().collect();
    errors.sort_unstable_by_key(|(_, times)| Reverse(*times));
    for (error, times) in errors.iter().take(EXAMPLES) {
        println!("soak          {times} x {error}");
    }
}

fn longest(gaps: &[Gap], by: impl Fn(&Gap) -> Duration) -> Gap {
    gaps.iter().copied().max_by_key(by).unwrap_or_default()
}

/// The gap of which the longest part is not explained. Those beyond the bound are printed with the faults near them.
fn worst(what: &str, gaps: &[Gap], seen: &Seen, bound: Duration) -> Gap {
    let beyond = gaps.iter().filter(|gap| gap.unexplained > bound);
    for gap in beyond.take(EXAMPLES) {
        println!(
            "soak          {what}: {} for {:?} ({:?} not explained) from {:?}",
            seen.places[gap.place].title,
            gap.span.time(),
            gap.unexplained,
            gap.span.from
        );
        near(seen, gap.span.from, gap.span.to);
    }
    longest(gaps, |gap| gap.unexplained)
}

/// Prints examples of two sections that do not fit.
fn show(what: &str, pairs: &[(Hold, Hold)], seen: &Seen) {
    for (earlier, later) in pairs.iter().take(EXAMPLES) {
        println!("soak          {what}: {earlier:?}, then {later:?}");
        near(seen, earlier.begun, later.begun);
    }
}

/// Prints the faults near a time.
fn near(seen: &Seen, from: Duration, to: Duration) {
    let begins = from.saturating_sub(EXPIRY * 2);
    let faults = seen.faults.iter();
    for fault in faults.filter(|fault| fault.begun <= to && fault.ended >= begins) {
        let place = fault.place.map_or("", |place| seen.places[place].title);
        println!(
            "soak              {} {place} from {:?} to {:?}",
            fault.kind.title(),
            fault.begun,
            fault.ended
        );
    }
}

fn millis(value: Duration) -> f64 {
    value.as_secs_f64() * 1e3
}
