//! Processes that are alike, on a server that does nothing else, and on a busy one.

use std::time::Duration;

use anyhow::ensure;
use mongodb::Database;
use mongodb::bson::{Document, doc};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::tasks;
use crate::contest::{Contest, Outcome, Times};
use crate::queue::{Client, Queueing};
use crate::report::Report;
use crate::rivals::{Crowd, Rival};
use crate::samples::{Turns, number, per_second, ratio};
use crate::server::Server;
use crate::setting::Setting;

/// A number of processes and of the tasks of each, and the goal of the longest wait, divided by the mean one.
type Shape = (usize, usize, f64);

const IDLE: [Shape; 4] = [(4, 4, 1.6), (4, 2, 1.7), (2, 1, 4.9), (8, 1, 1.6)];
const BUSY: [Shape; 4] = [(4, 4, 3.4), (4, 2, 3.4), (2, 1, 4.4), (8, 1, 3.4)];

/// The goal of a hand-over between processes, divided by two commands: a claim and a release.
const HAND_OVER: f64 = 1.0;
/// The goal of the sections a second on a busy server, divided by those of another build.
const SECTIONS: f64 = 0.7;
/// The goal of the commands for each turn of a provider.
const COMMANDS: f64 = 6.0;

pub(crate) async fn idle(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let own = Rival::own(&setting.database().await?);
    for shape in IDLE {
        let (mut outcomes, mut hand_overs) = (Vec::new(), Turns::default());
        for turn in 0..setting.turns(3, 1) {
            let alone = Crowd::of(1, Duration::from_millis(setting.pick(1_000, 500)))
                .run(&own)
                .await?;
            let outcome = compete(&format!("order:{turn}"), shape, setting).await?;
            let hand_over = outcome.run.gaps_between_processes().p50();
            hand_overs.add(ratio(hand_over, alone.lengths.all.p50()));
            outcomes.push(outcome);
        }
        let name = format!("{} x {}", shape.0, shape.1);
        fairness(&name, shape, None, &outcomes, setting, report);
        let goal = (shape == IDLE[0]).then_some(HAND_OVER);
        let what = format!("{name}: hand-over between processes / two commands, p50");
        report.at_most(goal, what, &hand_overs, "x");
        let over: Turns = outcomes.iter().map(|outcome| outcome.run.over_ideal()).collect();
        let goal = (shape == IDLE[0]).then_some(1.25);
        report.at_most(goal, format!("{name}: time / sum of the sections"), &over, "x");
    }
    Ok(())
}

pub(crate) async fn busy(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let database = setting.database().await?;
    for shape in BUSY {
        let mut outcomes = Vec::new();
        for turn in 0..setting.turns(3, 1) {
            let mut work = work(&database);
            outcomes.push(compete(&format!("busy:{turn}"), shape, setting).await?);
            ensure!(
                work.try_join_next().is_none(),
                "a client of the busy server has failed"
            );
        }
        let name = format!("busy server, {} x {}", shape.0, shape.1);
        fairness(&name, shape, Some(SECTIONS), &outcomes, setting, report);
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

async fn compete(name: &str, (processes, count, _): Shape, setting: &Setting) -> anyhow::Result<Outcome> {
    let process = |_| (setting.access().clone(), Client::Woken, count);
    let name = format!("{name}:{processes}:{count}");
    super::compete(&name, (0..processes).map(process), setting).await
}

fn fairness(
    name: &str,
    (processes, _, goal): Shape,
    sections: Option<f64>,
    outcomes: &[Outcome],
    setting: &Setting,
    report: &mut Report,
) {
    let turns = |of: &dyn Fn(&Outcome) -> f64| -> Turns { outcomes.iter().map(of).collect() };
    let overlaps: usize = outcomes.iter().map(|outcome| outcome.all.beyond(1)).sum();
    report.at_most(
        0.0,
        format!("{name}: sections that overlapped"),
        overlaps,
        "sections",
    );
    let waits = turns(&|outcome| outcome.run.unfairness());
    report.at_most(goal, format!("{name}: longest wait / mean wait"), &waits, "x");
    let waits = turns(&|outcome| ratio(outcome.run.waits.p99(), outcome.run.waits.mean()));
    report.figure(format!("{name}: wait, p99 / mean"), &waits, "x");
    let shares = turns(&|outcome| {
        let shares = (0..processes).map(|process| outcome.run.share_of(process));
        shares.fold(1.0, f64::min) * number(processes)
    });
    report.figure(
        format!("{name}: least served process / equal share"),
        &shares,
        "x",
    );
    let counted = Times::of(setting).counted;
    let rates = turns(&|outcome| per_second(outcome.run.sections.len(), counted));
    report.beside(sections, format!("{name}: sections"), &rates, "/s");
}

/// Many processes, and many tasks in few processes.
pub(crate) async fn many(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let server = Server::of(setting.database().await?.client()).await?;
    let times = Times::of(setting);
    for (name, providers, count) in [
        ("16 providers x 1", 4, 1),
        ("64 providers x 1", 16, 1),
        ("4 x 8", 1, 8),
        ("4 x 32", 1, 32),
    ] {
        let job = |_| {
            let queueing = times.queueing(Client::Woken, tasks(name, count));
            let queueing = Queueing {
                providers,
                ..queueing
            };
            (setting.access().clone(), queueing)
        };
        let mut contest = Contest::start((0..4).map(job)).await?;
        let begun = contest.go().await;
        sleep(times.warm_up).await;
        let load = server.for_some_time(times.counted).await?;
        let run = times.part(&contest.end().await?, begun);
        let each = load.all_commands() / number(run.count_of_turns().max(1));
        let name = format!("{name}: commands for each turn of a provider");
        report.at_most(COMMANDS, name, each, "commands");
    }
    let outcome = compete("many", (4, 125, 0.0), setting).await?;
    let gaps = outcome.run.gaps(|_, _| true);
    let ratio = ratio(gaps.p99(), outcome.run.gaps_between_processes().p50());
    let name = "4 x 125: a hand-over, p99 / p50 of one between processes";
    report.at_most(3.0, name, ratio, "x");
    Ok(())
}
