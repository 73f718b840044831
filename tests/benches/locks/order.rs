//! The order between processes: how evenly the waits for one lock are spread, and what the order costs.
//!
//! Tasks ask again at once, for a fixed time, and a first part of it does not count. The figure for fairness is the longest
//! wait divided by the mean one, and the wait of the slowest hundredth divided by it. The shapes are named by the number of
//! processes and the tasks of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use mongolock_tests::{Direction, Proxy};

use crate::barrier::{Contest, Outcome};
use crate::queue::{Client, Queueing};
use crate::report::Report;
use crate::run::Run;
use crate::samples::{Samples, Turns, number, ratio};
use crate::setting::Setting;

/// The time that a message takes more on its way to or from a process that is far away.
const FAR: Duration = Duration::from_millis(3);

/// One competition: for each process what it runs, and the number of its tasks.
struct Shape<'a> {
    name: &'a str,
    clients: Vec<(Client, usize)>,
    /// The number of providers in each process, each with these tasks.
    providers: usize,
    /// Whether the last process is behind a proxy that delays each message by [`FAR`].
    last_is_far: bool,
    /// The number of processes that are killed while they stand in front of the others.
    dead: usize,
    /// Whether the time counts from the first section on.
    from_the_beginning: bool,
}

impl<'a> Shape<'a> {
    fn of(name: &'a str, client: Client, processes: usize, tasks: usize) -> Self {
        Self {
            name,
            clients: vec![(client, tasks); processes],
            providers: 1,
            last_is_far: false,
            dead: 0,
            from_the_beginning: false,
        }
    }
}

/// Processes that differ from each other.
pub(crate) async fn mixed(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    without_push(setting, report).await?;
    dead(setting, report).await
}

/// The goals of processes that are alike: the longest wait, and that of the slowest hundredth, divided by the mean one.
const FAIR: [(&str, usize, usize, f64, f64); 4] = [
    ("4 x 4", 4, 4, 1.6, 1.4),
    ("4 x 2", 4, 2, 1.6, 1.4),
    ("2 x 1", 2, 1, 3.0, 2.6),
    ("8 x 1", 8, 1, 3.0, 2.6),
];

/// The same on a busy machine.
const FAIR_AND_BUSY: [(&str, usize, usize, f64, f64); 4] = [
    ("busy machine, 4 x 4", 4, 4, 5.0, 3.0),
    ("busy machine, 4 x 2", 4, 2, 5.0, 3.0),
    ("busy machine, 2 x 1", 2, 1, 10.0, 6.0),
    ("busy machine, 8 x 1", 8, 1, 10.0, 6.0),
];

pub(crate) async fn idle(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    alike(FAIR, setting, report).await
}

/// The same while two threads of this program keep both processors busy.
pub(crate) async fn busy(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let _load = Load::start(2);
    alike(FAIR_AND_BUSY, setting, report).await
}

async fn alike(
    shapes: [(&str, usize, usize, f64, f64); 4],
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    for (name, processes, tasks, longest, slow) in shapes {
        let shape = Shape::of(name, Client::Woken, processes, tasks);
        let outcomes = repeat(setting, &shape, setting.pick(5, 1)).await?;
        fairness(&shape, &outcomes, longest, slow, report);
        if name == "4 x 4" {
            let over: Turns = outcomes.iter().map(|outcome| outcome.run.over_ideal()).collect();
            report.at_most(1.25, format!("{name}: time / sum of the sections"), &over, "x");
        }
    }
    Ok(())
}

/// One process is behind a proxy.
pub(crate) async fn far(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    if setting.address().is_none() {
        // The proxy needs the address of one server.
        return Ok(());
    }
    let shape = Shape {
        last_is_far: true,
        ..Shape::of("one of four is far", Client::Woken, 4, 4)
    };
    let outcomes = repeat(setting, &shape, 3).await?;
    let parts = outcomes.iter().map(|outcome| outcome.run.share_of(3));
    report.at_least(
        0.2,
        "4 x 4, one is 3 ms farther: its least share of three runs",
        parts.fold(1.0, f64::min),
        "x",
    );
    Ok(())
}

async fn without_push(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let shape = Shape::of("4 x 4, all poll", Client::Polling, 4, 4);
    let outcome = compete(setting, &shape, 0).await?;
    longest_and_time(&shape, &outcome.run, Duration::from_millis(400), 1.3, report);
    let mut shape = Shape::of("4 x 4, one polls", Client::Woken, 4, 4);
    shape.clients[3].0 = Client::Polling;
    let outcome = compete(setting, &shape, 0).await?;
    let longest = outcome.run.longest_of(3);
    let name = format!("{}: its longest wait", shape.name);
    report.at_most(1000.0, name, longest.as_secs_f64() * 1000.0, "ms");
    let name = format!("{}: time / sum of the sections", shape.name);
    report.at_most(1.3, name, outcome.run.over_ideal(), "x");
    Ok(())
}

/// Four processes are killed while they stand in line before the others.
async fn dead(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for dead in [0, 4] {
        let shape = Shape {
            dead,
            from_the_beginning: true,
            ..Shape::of("4 x 4 behind dead ones", Client::Woken, 4, 4)
        };
        let mut turns = Samples::default();
        for outcome in repeat(setting, &shape, 5).await? {
            turns.add(outcome.run.turns(31..=60).context("fewer than 61 turns")?);
        }
        times.push(turns.p50());
    }
    let ratio = ratio(times[1], times[0]);
    report.at_most(
        1.05,
        "4 x 4 behind four dead processes: turns 31 to 60 / without them",
        ratio,
        "x",
    );
    Ok(())
}

/// Clients that stand in no line.
pub(crate) async fn foreign(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let mut shape = Shape::of(
        "4 of .NET beside 4 that poll without a line",
        Client::Unordered,
        1,
        4,
    );
    shape.clients.push((Client::Dotnet, 4));
    let outcome = compete(setting, &shape, 0).await?;
    let name = format!("{}: the share of .NET", shape.name);
    report.at_least(0.2, name, outcome.run.share_of(1), "x");
    let mut shape = Shape::of("4 of .NET beside 4 x 4 in line", Client::Woken, 4, 4);
    shape.clients.push((Client::Dotnet, 4));
    let outcome = compete(setting, &shape, 0).await?;
    let name = format!("{}: sections of .NET per second", shape.name);
    report.at_least(3.0, name, outcome.run.rate_of(4), "/s");
    Ok(())
}

pub(crate) async fn many(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    for (name, providers, tasks) in [
        ("16 providers x 1", 4, 1),
        ("64 providers x 1", 16, 1),
        ("4 x 8", 1, 8),
        ("4 x 32", 1, 32),
    ] {
        let shape = Shape {
            providers,
            ..Shape::of(name, Client::Woken, 4, tasks)
        };
        let outcome = compete(setting, &shape, 0).await?;
        let turns = outcome.run.count_of_turns().max(1);
        let each = number(usize::try_from(outcome.commands)?) / number(turns);
        report.at_most(
            6.0,
            format!("{name}: commands for each turn of a provider"),
            each,
            "commands",
        );
    }
    let outcome = compete(setting, &Shape::of("4 x 125", Client::Woken, 4, 125), 0).await?;
    let gaps = outcome.run.gaps(|_, _| true);
    let ratio = ratio(gaps.p99(), outcome.run.gaps_between_processes().p50());
    report.at_most(
        3.0,
        "4 x 125: a hand-over, p99 / p50 of one between processes",
        ratio,
        "x",
    );
    Ok(())
}

fn fairness(shape: &Shape<'_>, outcomes: &[Outcome], longest: f64, slow: f64, report: &mut Report) {
    let (name, processes) = (shape.name, shape.clients.len());
    let waits: Turns = outcomes.iter().map(|outcome| outcome.run.unfairness()).collect();
    report.at_most(longest, format!("{name}: longest wait / mean wait"), &waits, "x");
    let waits: Turns = outcomes
        .iter()
        .map(|outcome| ratio(outcome.run.waits.p99(), outcome.run.waits.mean()))
        .collect();
    report.at_most(slow, format!("{name}: wait, p99 / mean"), &waits, "x");
    let shares: Turns = outcomes
        .iter()
        .map(|outcome| outcome.run.least_share(processes))
        .collect();
    report.figure(
        format!("{name}: least served process / equal share"),
        &shares,
        "x",
    );
}

fn longest_and_time(shape: &Shape<'_>, run: &Run, longest: Duration, time: f64, report: &mut Report) {
    let name = format!("{}: longest wait", shape.name);
    report.at_most(
        longest.as_secs_f64() * 1000.0,
        name,
        run.waits.max().as_secs_f64() * 1000.0,
        "ms",
    );
    let name = format!("{}: time / sum of the sections", shape.name);
    report.at_most(time, name, run.over_ideal(), "x");
}

/// A proxy that delays each message by [`FAR`].
pub(crate) async fn far_proxy(address: &str) -> anyhow::Result<Proxy> {
    let proxy = Proxy::start(address).await?;
    proxy.set_delay(Direction::ToServer, FAR);
    proxy.set_delay(Direction::ToClient, FAR);
    Ok(proxy)
}

async fn repeat(setting: &Setting, shape: &Shape<'_>, times: usize) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for turn in 0..times {
        outcomes.push(compete(setting, shape, turn).await?);
    }
    Ok(outcomes)
}

async fn compete(setting: &Setting, shape: &Shape<'_>, turn: usize) -> anyhow::Result<Outcome> {
    let (warm_up, counted) = if shape.from_the_beginning {
        (Duration::ZERO, Duration::from_secs(3))
    } else {
        (
            setting.pick(Duration::from_secs(2), Duration::from_millis(500)),
            setting.pick(Duration::from_secs(30), Duration::from_secs(3)),
        )
    };
    let name = format!("order:{}:{}:{turn}", shape.name, shape.dead);
    let queueing = |client, tasks| Queueing {
        name: name.clone(),
        client,
        providers: shape.providers,
        tasks,
        warm_up,
        counted,
    };
    let proxy = match setting.address() {
        Some(address) if shape.last_is_far => Some(far_proxy(address).await?),
        _ => None,
    };
    let of_shape = shape.clients.iter();
    let of_shape = of_shape.map(|(client, tasks)| (setting.uri().to_owned(), queueing(*client, *tasks)));
    let mut processes: Vec<_> = of_shape.collect();
    if let (Some(proxy), Some(last)) = (&proxy, processes.last_mut()) {
        last.0 = proxy.uri();
    }
    let dead = vec![queueing(Client::Woken, 1); shape.dead];
    let contest = Contest {
        name: name.clone(),
        processes,
        dead: shape.from_the_beginning.then_some(dead),
    };
    contest.run(setting).await
}

/// Threads that keep processors busy until the value is dropped.
struct Load {
    ends: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(threads: usize) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        Self {
            threads: (0..threads).map(spin).collect(),
            ends,
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that spins does not panic.
            let _ = thread.join();
        }
    }
}
