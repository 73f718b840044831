//! Several locks, all or nothing: what they cost beside a single lock, and calls that name two locks in opposite orders.

use std::time::Instant;

use mongolock::LockProvider;

use crate::report::Report;
use crate::run::Run;
use crate::samples::{Samples, Turns, ratio};
use crate::setting::Setting;
use crate::worker::{Competition, compete_among};

/// The numbers of names, and the goals of a cycle divided by that of a single lock.
const SIZES: [(usize, f64); 4] = [(2, 1.6), (5, 1.6), (10, 1.6), (50, 3.0)];

/// The processes that name two locks in opposite orders, and the tasks of each.
const PROCESSES: usize = 4;
const TASKS: usize = 50;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    cost(setting, report).await?;
    permits(setting, report).await?;
    opposite_orders(setting, report).await
}

/// Acquires and releases sets and a single lock in turns, on a task of a worker.
async fn cost(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let provider = LockProvider::new(&setting.database().await?);
    let cycles = setting.pick(150, 40);
    let mut acquires = SIZES.map(|_| Turns::default());
    let mut wholes = SIZES.map(|_| Turns::default());
    let mut lengths = SIZES.map(|_| Samples::default());
    // The first turn opens connections and makes documents.
    for turn in 0..=setting.turns() {
        let (provider, single) = (provider.clone(), Turn::of(&provider, 1, cycles).await?);
        for (index, (size, _)) in SIZES.into_iter().enumerate() {
            let set = Turn::of(&provider, size, cycles).await?;
            if turn > 0 {
                acquires[index].add(ratio(set.acquires.p50(), single.acquires.p50()));
                wholes[index].add(ratio(set.wholes.p50(), single.wholes.p50()));
                lengths[index].extend(set.wholes);
            }
        }
    }
    for (index, (size, goal)) in SIZES.into_iter().enumerate() {
        report.micros(
            format!("{size} names: acquire and release, p50"),
            lengths[index].p50(),
        );
        let name = format!("{size} names: acquire and release / those of a single lock, p50");
        report.at_most(goal, name, &wholes[index], "x");
        let name = format!("{size} names: acquire / that of a single lock, p50");
        report.figure(name, &acquires[index], "x");
    }
    provider.shutdown().await;
    Ok(())
}

/// The number of permits of the semaphore, all of which are free.
const PERMITS: u32 = 20;

/// Acquires and releases permits of a semaphore that nobody else uses, and a single lock, in turns: one command each.
async fn permits(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let provider = LockProvider::new(&setting.database().await?);
    let semaphore = provider.semaphore("sets:permits", PERMITS);
    let cycles = setting.pick(150, 40);
    let mut wholes = Turns::default();
    for turn in 0..=setting.turns() {
        let single = Turn::of(&provider, 1, cycles).await?;
        let semaphore = semaphore.clone();
        let permits = tokio::spawn(async move {
            let mut lengths = Samples::default();
            for _ in 0..cycles {
                let begun = Instant::now();
                semaphore.acquire().await?.release().await?;
                lengths.add(begun.elapsed());
            }
            anyhow::Ok(lengths)
        });
        let permits = permits.await??;
        // The first turn makes the documents.
        if turn > 0 {
            wholes.add(ratio(permits.p50(), single.wholes.p50()));
        }
    }
    let name = "20 permits, all free: acquire and release / those of a single lock, p50";
    report.at_most(1.2, name.to_owned(), &wholes, "x");
    provider.shutdown().await;
    Ok(())
}

/// The cycles of one turn.
#[derive(Default)]
struct Turn {
    acquires: Samples,
    wholes: Samples,
}

impl Turn {
    async fn of(provider: &LockProvider, size: usize, cycles: usize) -> anyhow::Result<Self> {
        let provider = provider.clone();
        tokio::spawn(async move {
            let mut turn = Self::default();
            for _ in 0..cycles {
                let begun = Instant::now();
                if size == 1 {
                    let guard = provider.lock("sets:single").acquire().await?;
                    turn.acquires.add(begun.elapsed());
                    guard.release().await?;
                } else {
                    let names = (0..size).map(|number| format!("sets:{size}:{number}"));
                    let guard = provider.lock_all(names).acquire().await?;
                    turn.acquires.add(begun.elapsed());
                    guard.release().await?;
                }
                turn.wholes.add(begun.elapsed());
            }
            anyhow::Ok(turn)
        })
        .await?
    }
}

async fn opposite_orders(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let mut runs = Vec::new();
    for turn in 0..setting.pick(3, 1) {
        let names = ["a", "b"]
            .map(|name| format!("sets:orders:{turn}:{name}"))
            .to_vec();
        let reversed = names.iter().rev().cloned().collect();
        let competition = Competition {
            wants: vec![names, reversed],
            tasks: TASKS,
            sections: setting.pick(6, 3),
            wake_up: true,
        };
        runs.push(compete_among(setting, PROCESSES, &competition).await?);
    }
    let who = format!("A-B against B-A, {PROCESSES} processes of {TASKS} tasks");
    let overlaps: usize = runs.iter().map(Run::overlaps).sum();
    let name = format!("{who}: sections that overlapped");
    report.at_most(0.0, name, overlaps, "sections");
    let times: Turns = runs.iter().map(Run::over_ideal).collect();
    report.figure(format!("{who}: time / sum of the sections"), &times, "x");
    let waits: Samples = runs.iter().flat_map(|run| run.waits.clone()).collect();
    report.millis(format!("{who}: wait, mean"), waits.mean());
    report.millis(format!("{who}: wait, max"), waits.max());
    let unfair: Turns = runs.iter().map(Run::unfairness).collect();
    let name = format!("{who}: longest wait / mean wait, worst turn");
    report.at_most(5.0, name, unfair.max(), "x");
    Ok(())
}
