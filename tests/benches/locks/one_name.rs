//! Processes for one lock: how evenly the waits are spread, and what the order between processes costs.
//!
//! Tasks ask again at once, for a fixed time, and a first second does not count. The figure for fairness is the longest wait
//! divided by the mean one. The shapes are named by the number of processes and the tasks of each.

use std::time::Duration;

use anyhow::ensure;
use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongolock_tests::{Server, ServerOptions, monotonic_now};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::contest::{Contest, Outcome, Shape, WARM_UP, counted, turns};
use crate::queue::{Client, Queueing, Want};
use crate::report::Goal::{AtLeast, AtMost};
use crate::report::Report;
use crate::rivals::{Crowd, Rival};
use crate::run::Run;
use crate::samples::{Samples, millis, number, per_second};
use crate::setting::Setting;

/// The numbers of processes and of the tasks of each, with the goals of the longest wait, divided by the mean one: of a server
/// that does nothing else, and of a busy one.
const ALIKE: [(usize, usize, f64, f64); 4] = [
    (4, 4, 1.6, 3.4),
    (4, 2, 1.7, 3.4),
    (2, 1, 4.9, 4.4),
    (8, 1, 1.6, 3.4),
];
/// The goals of 4 x 4: a hand-over between processes, divided by two commands, and the time of all sections, divided by the
/// sum of their lengths.
const HAND_OVER: f64 = 1.0;
const IDEAL: f64 = 1.25;
/// The goal of the sections a second on a busy server, divided by those of another build.
const SECTIONS: f64 = 0.7;
/// The goal of the longest wait after the death of four processes, in milliseconds.
const DEAD: f64 = 200.0;
/// The processes that arrive one after the other, and the time between two arrivals.
const ARRIVALS: usize = 8;
const BETWEEN: Duration = Duration::from_millis(200);
/// The goal of the time from the release to the last section of an arrival, in milliseconds.
const SERVED: f64 = 160.0;

/// The tasks of a process that want one lock.
fn tasks(name: &str, count: usize) -> Vec<Want> {
    vec![Want::Lock(name.to_owned()); count]
}

fn queueing(name: &str, count: usize, time: Option<Duration>) -> Queueing {
    let (client, wants) = (Client::Woken, tasks(name, count));
    Queueing { client, wants, time }
}

/// Processes that are alike.
pub(crate) async fn idle(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let own = Rival::own(&setting.database().await?);
    for (processes, count, goal, _) in ALIKE {
        let name = format!("{processes} x {count}");
        let alone = Crowd::of(1, Duration::from_millis(setting.pick(1_000, 500)));
        let alone = alone.run(&own).await?.cycles.p50();
        let mut shape = Shape::alike(&name, processes, tasks(&name, count), setting);
        shape.unfairness = Some(goal);
        let outcomes = shape.measure("sections", setting, report).await?;
        let is_first = (processes, count) == (4, 4);
        let hand_overs = turns(&outcomes, |run| run.hand_overs().p50() / alone);
        let what = "hand-over between processes / two commands, p50";
        report.figure(what, hand_overs, "x", is_first.then_some(HAND_OVER).map(AtMost));
        let over = turns(&outcomes, Run::over_ideal);
        let what = "time / sum of the sections";
        report.figure(what, over, "x", is_first.then_some(IDEAL).map(AtMost));
    }
    Ok(())
}

/// The same while eight clients of the server are at work.
pub(crate) async fn busy(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let database = setting.database().await?;
    for (processes, count, _, goal) in ALIKE {
        let name = format!("busy server, {processes} x {count}");
        let mut working = work(&database);
        let mut shape = Shape::alike(&name, processes, tasks(&name, count), setting);
        (shape.unfairness, shape.rate) = (Some(goal), Some(SECTIONS));
        shape.measure("sections", setting, report).await?;
        let has_failed = working.try_join_next().is_some();
        ensure!(!has_failed, "a client of the busy server has failed");
    }
    Ok(())
}

/// Eight clients that insert, search and delete documents until the value is dropped.
fn work(database: &Database) -> JoinSet<mongodb::error::Result<()>> {
    let mut working = JoinSet::new();
    for client in 0..8 {
        let documents = database.collection::<Document>("work");
        working.spawn(async move {
            let text = "x".repeat(300);
            loop {
                let new = (0..200).map(|number| doc! { "number": number, "client": client, "text": &text });
                documents.insert_many(new).await?;
                let slow = doc! { "text": { "$regex": "xy$" }, "number": 7 };
                documents.count_documents(slow).await?;
                documents.delete_many(doc! { "client": client }).await?;
            }
        });
    }
    working
}

/// One process is behind a proxy.
pub(crate) async fn far(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let Some(proxy) = setting.far_proxy().await? else {
        return Ok(());
    };
    let who = "4 x 4, one is 3 ms farther";
    let mut shape = Shape::alike(who, 4, tasks("far", 4), setting);
    shape.is_last_late = true;
    shape.processes[3].0 = setting.access().at(proxy.uri());
    let outcomes = shape.measure("sections", setting, report).await?;
    let least = turns(&outcomes, |run| run.share_of(3)).min();
    report.figure("its least share of the runs", least, "x", AtLeast(0.2));
    let (mut waits, mut firsts) = (Samples::default(), Samples::default());
    for Outcome { all, .. } in &outcomes {
        if let Some(first) = all.of_process(3).sections.first() {
            firsts.add(first.wait().as_secs_f64());
            let later = all.part(|section| section.asked >= first.begun);
            waits.add(later.unfairness());
        }
    }
    let what = "longest wait / mean wait, after its first turn";
    report.figure(what, waits, "x", AtMost(1.6));
    report.figure("its first turn after", firsts, "s", AtMost(0.8));
    Ok(())
}

/// One process has no change stream, or all are on a server that has none.
pub(crate) async fn without_stream(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let who = "4 x 2, one without a stream";
    let mut shape = Shape::alike(who, 4, tasks("polling", 2), setting);
    shape.processes[3].1 = Client::Polling;
    let outcomes = shape.measure("sections", setting, report).await?;
    let shares = turns(&outcomes, |run| run.share_of(3));
    report.figure("its share", shares, "x", AtLeast(0.1));
    let waits = turns(&outcomes, |run| run.of_process(3).waits.max() / 1e3);
    report.figure("its longest wait", waits, "s", AtMost(3.0));

    let standalone = Server::start(ServerOptions::standalone()).await?;
    let who = "4 x 2 on a standalone server";
    let mut shape = Shape::alike(who, 4, tasks("standalone", 2), setting);
    for (access, ..) in &mut shape.processes {
        *access = access.at(standalone.uri());
    }
    let outcomes = shape.measure("sections", setting, report).await?;
    let waits = turns(&outcomes, |run| run.waits.max() / 1e3);
    report.figure("longest wait", waits, "s", AtMost(2.5));
    let over = turns(&outcomes, Run::over_ideal);
    report.figure("time / sum of the sections", over, "x", None);
    Ok(())
}

/// Clients of .NET among others.
pub(crate) async fn foreign(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let mut shape = Shape::alike("4 of .NET beside 4 x 4", 5, tasks("foreign", 4), setting);
    shape.processes[4].1 = Client::Dotnet;
    let outcomes = shape.measure("sections", setting, report).await?;
    let rates = turns(&outcomes, |run| {
        per_second(run.of_process(4).sections.len(), counted(setting))
    });
    report.figure("sections of .NET", rates, "/s", AtLeast(2.5));
    Ok(())
}

/// Four of eight processes are killed while they wait: how long do the others wait after that? This program holds the lock
/// while it kills them, so that none of them has it.
pub(crate) async fn dead(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let provider = setting.access().provider().await?;
    let mut waits = Samples::default();
    for turn in 0..setting.turns(5, 2) {
        let name = format!("dead:{turn}");
        let mut contest = Contest::default();
        for _ in 0..8 {
            let one = queueing(&name, 1, Some(WARM_UP + counted(setting)));
            contest.start(setting.access(), one).await?;
        }
        for process in 0..8 {
            contest.go(process).await;
        }
        sleep(counted(setting) / 2).await;
        let guard = provider.lock(&name).acquire().await?;
        contest.kill(4);
        let killed = monotonic_now();
        guard.release().await?;
        let after = contest.end().await?.part(|section| section.begun > killed);
        waits.add(after.waits.max());
    }
    provider.shutdown().await;
    report.about("four of 8 x 1 die");
    report.figure("the longest wait after it", waits, "ms", AtMost(DEAD));
    Ok(())
}

/// Eight processes arrive one after the other at a lock that this program holds: in which order are they served after its
/// release?
pub(crate) async fn arrivals(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let provider = setting.access().provider().await?;
    let (mut moved, mut served) = (Samples::default(), Samples::default());
    for turn in 0..setting.turns(9, 3) {
        let name = format!("arrivals:{turn}");
        let mut contest = Contest::default();
        for _ in 0..ARRIVALS {
            contest.start(setting.access(), queueing(&name, 1, None)).await?;
        }
        let guard = provider.lock(&name).acquire().await?;
        for process in 0..ARRIVALS {
            contest.go(process).await;
            sleep(BETWEEN).await;
        }
        let released = monotonic_now();
        guard.release().await?;
        let order = contest.end().await?.sections;
        let places = order.iter().enumerate();
        let distances = places.map(|(place, section)| place.abs_diff(section.process));
        moved.add(number(distances.sum::<usize>()) / number(ARRIVALS));
        let last = order.last().map(|section| section.begun).unwrap_or_default();
        served.add(millis(last.saturating_sub(released)));
    }
    provider.shutdown().await;
    report.about("8 processes, one after the other");
    let what = "place in the service - place in the arrival, mean";
    report.figure(what, moved, "places", None);
    let what = "the last one served after the release";
    report.figure(what, served, "ms", AtMost(SERVED));
    Ok(())
}
