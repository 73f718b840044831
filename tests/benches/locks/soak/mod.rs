//! The soak: real processes ask for one lock again and again while they are killed and stopped, their connections are cut
//! or slow, programs of .NET take the lock, and the primary steps down.
//!
//! Every process prints its steps. At the end the checker of histories judges them: overlaps, tokens, releases and calls
//! without an answer. Then follow the time for which the lock was free, and that for which a process was without a turn.

#[path = "../../../suites/faults/act.rs"]
mod act;
mod job;
mod place;
mod verdict;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::try_join_all;
use mongolock_tests::{Proxy, monotonic_now};
use tokio::time::sleep;

pub(crate) use self::job::{Soaking, ask};
use self::place::{Fault, Kind, Place};
use self::verdict::Seen;
use crate::queue::Client;
use crate::report::Goal::{AtLeast, AtMost};
use crate::report::Report;
use crate::samples::{Samples, millis};
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

/// The faults of a process near the server, of the one behind a proxy, and of the one with clients of .NET.
const NEAR: &[Kind] = &[Kind::Kill, Kind::Stop];
const FAR: &[Kind] = &[
    Kind::Kill,
    Kind::Stop,
    Kind::Cut,
    Kind::LateEvents,
    Kind::LateReplies,
];
const FOREIGN: &[Kind] = &[Kind::Leave];

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let seed = match std::env::var("MONGOLOCK_SOAK_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => fastrand::u64(..),
    };
    println!("soak          the seed of the faults is {seed} (MONGOLOCK_SOAK_SEED repeats it)");
    let outcome = soak(setting, seed).await?;
    safety(&outcome, report);
    liveness(&outcome, setting, report);
    happened(&outcome, report);
    Ok(())
}

/// Lets the processes work beside the faults; returns what was seen. There are six processes with three tasks each, and a
/// process with clients of .NET that runs now and then.
async fn soak(setting: &Setting, seed: u64) -> anyhow::Result<Seen> {
    let near = |title, client, kinds| Place {
        title,
        client,
        access: setting.access().clone(),
        proxy: None,
        kinds,
    };
    let mut places = vec![
        near("process 1", Client::Woken, NEAR),
        near("process 2", Client::Woken, NEAR),
        near("process 3", Client::Woken, NEAR),
        near("process 4", Client::Woken, NEAR),
        near("5, polling", Client::Polling, NEAR),
        near(".NET", Client::Dotnet, FOREIGN),
    ];
    if let Some(proxy) = setting.proxy().await? {
        places.push(behind(proxy, setting));
    }
    let until = monotonic_now() + setting.seconds(1_200, 60);
    let (mut random, number) = (Rng::with_seed(seed), AtomicUsize::new(0));
    let lives = places.into_iter().map(|place| {
        let random = random.fork();
        async {
            let is_ours = place.client != Client::Dotnet;
            anyhow::Ok((is_ours, place.live(&number, random, until).await?))
        }
    });
    let (lives, steps) = tokio::try_join!(try_join_all(lives), step_down(setting, seed, until))?;
    Ok(Seen::new(lives, steps))
}

fn behind(proxy: Proxy, setting: &Setting) -> Place {
    Place {
        title: "6, by a proxy",
        client: Client::Woken,
        access: setting.access().at(proxy.uri()),
        proxy: Some(proxy),
        kinds: FAR,
    }
}

/// Has the primary step down now and then, if this program has started it.
async fn step_down(setting: &Setting, seed: u64, until: Duration) -> anyhow::Result<Vec<Fault>> {
    let (mut random, mut faults) = (Rng::with_seed(!seed), Vec::new());
    while monotonic_now() < until {
        sleep(Duration::from_secs(random.u64(15..60))).await;
        let Some(server) = setting.own_server() else {
            continue;
        };
        let begun = monotonic_now();
        server.step_down().await?;
        faults.push(Fault {
            kind: Kind::StepDown,
            place: "",
            begun,
            ended: monotonic_now(),
        });
    }
    Ok(faults)
}

fn safety(seen: &Seen, report: &mut Report) {
    let verdict = &seen.verdict;
    println!("soak          {verdict}");
    for (name, pairs) in [
        ("two holders at the same time", &verdict.overlaps),
        ("tokens that do not rise", &verdict.falling_tokens),
        ("releases confirmed after a takeover", &verdict.false_releases),
    ] {
        for (earlier, later) in pairs.iter().take(EXAMPLES) {
            println!("soak          {name}: {earlier:?}, then {later:?}");
        }
        report.figure(name, pairs.len(), "times", AtMost(0.0));
    }
    let name = "unfenced: a stopped holder's section beside a later holder";
    report.figure(name, verdict.late_sections.len(), "times", None);
    report.figure("holds that were lost", verdict.lost.len(), "sections", None);
    for call in verdict.unanswered.iter().take(EXAMPLES) {
        println!("soak          without an answer: {call:?}");
    }
    let name = "calls without an answer";
    report.figure(name, verdict.unanswered.len(), "calls", AtMost(0.0));
}

fn liveness(seen: &Seen, setting: &Setting, report: &mut Report) {
    let free = seen.free();
    let times: Samples = free
        .iter()
        .map(|gap| millis(gap.to.saturating_sub(gap.from)))
        .collect();
    report.figure("the lock is free: longest time", times.max(), "ms", None);
    for gap in free.iter().filter(|gap| gap.unexplained > FREE).take(EXAMPLES) {
        println!("soak          free without a reason: {gap:?}");
    }
    let unexplained: Samples = free.iter().map(|gap| millis(gap.unexplained)).collect();
    let name = "the same without what faults explain";
    report.figure(name, unexplained.max(), "ms", AtMost(millis(FREE)));
    report.figure("the lock is free: p50", times.p50(), "ms", None);
    let name = "a process without a turn: longest time";
    report.figure(name, millis(seen.without_a_turn()), "ms", None);
    let goal = setting.pick(Some(AtLeast(HOLDS)), None);
    report.figure("sections", seen.holds.len(), "sections", goal);
}

fn happened(seen: &Seen, report: &mut Report) {
    report.figure("faults", seen.faults.len(), "times", None);
    for Fault {
        kind,
        place,
        begun,
        ended,
    } in &seen.faults
    {
        println!("soak          {kind:?} {place} from {begun:?} to {ended:?}");
    }
    let mut errors = BTreeMap::<String, usize>::new();
    for error in seen.history.errors() {
        *errors.entry(error).or_default() += 1;
    }
    let failed: usize = errors.values().sum();
    report.figure("calls that have failed", failed, "calls", None);
    for (error, times) in errors {
        println!("soak          {times} x {error}");
    }
}
