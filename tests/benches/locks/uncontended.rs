//! Acquiring and releasing a lock that no other client wants.
//!
//! Most holds are of this kind. There are two floors: the library's own commands through the driver alone, and the two
//! cheapest commands that any lock could use. The library is compared with the faster one of the turn. All of them run on
//! tasks of the runtime's workers, also with one task: on the main thread the runtime wakes up more slowly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mongolock::LockProvider;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::bare::{Cheapest, Own};
use crate::report::Report;
use crate::samples::{Samples, Turns, per_second};
use crate::setting::Setting;

const MANY: usize = 64;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let database = setting.database().await?;
    let provider = LockProvider::new(&database);
    let rivals = [
        Rival::Own(Own::new(&database)),
        Rival::Cheapest(Cheapest::new(&database)),
        Rival::Library(provider.clone()),
    ];
    compare(&rivals, 1, setting.pick(1_500, 300), 0.93, setting, report).await?;
    compare(&rivals, MANY, setting.pick(120, 20), 1.0, setting, report).await?;
    provider.shutdown().await;
    Ok(())
}

/// One way to acquire and release.
#[derive(Clone)]
enum Rival {
    Own(Own),
    Cheapest(Cheapest),
    Library(LockProvider),
}

impl Rival {
    fn label(&self) -> &'static str {
        match self {
            Self::Own(_) => "floor of its own commands",
            Self::Cheapest(_) => "floor of the cheapest commands",
            Self::Library(_) => "mongolock",
        }
    }

    async fn cycle(&self, index: usize) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let name = format!("{}:{index}", self.label());
        match self {
            Self::Own(own) => {
                own.acquire(&name).await?;
                own.release(&name).await?;
            }
            Self::Cheapest(cheapest) => {
                cheapest.acquire(&name).await?;
                cheapest.release(&name).await?;
            }
            Self::Library(provider) => provider.lock(name).acquire().await?.release().await?,
        }
        Ok(begun.elapsed())
    }
}

/// Runs the three in turns; each turn begins with another of them.
async fn compare(
    rivals: &[Rival; 3],
    tasks: usize,
    cycles: usize,
    goal: f64,
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut rates = [(); 3].map(|()| Turns::default());
    let mut latencies = [(); 3].map(|()| Samples::default());
    let mut ratios = Turns::default();
    for turn in 0..=setting.turns() {
        let mut of_turn = [0.0; 3];
        for step in 0..3 {
            let index = (turn + step) % 3;
            let (latency, rate) = crowd(&rivals[index], tasks, cycles).await?;
            of_turn[index] = rate;
            // The first turn opens connections and makes documents.
            if turn > 0 {
                rates[index].add(rate);
                latencies[index].extend(latency);
            }
        }
        if turn > 0 {
            ratios.add(of_turn[2] / of_turn[0].max(of_turn[1]));
        }
    }
    let who = if tasks == 1 {
        "1 task".to_owned()
    } else {
        format!("{tasks} tasks")
    };
    for (index, rival) in rivals.iter().enumerate() {
        let name = format!("{who}: cycles, {}", rival.label());
        report.turns(name, &rates[index], "/s");
        let name = format!("{who}: a cycle, p50, {}", rival.label());
        report.micros(name, latencies[index].p50());
        let name = format!("{who}: a cycle, p95, {}", rival.label());
        report.micros(name, latencies[index].p95());
    }
    report.turns_at_least(goal, format!("{who}: cycles / the faster floor"), &ratios, "x");
    Ok(())
}

/// The lengths of all cycles, and the cycles a second, of tasks that run at the same time.
async fn crowd(rival: &Rival, tasks: usize, cycles: usize) -> anyhow::Result<(Samples, f64)> {
    let barrier = Arc::new(Barrier::new(tasks + 1));
    let mut running = JoinSet::new();
    for index in 0..tasks {
        let (rival, barrier) = (rival.clone(), Arc::clone(&barrier));
        running.spawn(async move {
            barrier.wait().await;
            let mut latency = Samples::default();
            for _ in 0..cycles {
                latency.add(rival.cycle(index).await?);
            }
            anyhow::Ok(latency)
        });
    }
    barrier.wait().await;
    let begun = Instant::now();
    let mut latency = Samples::default();
    while let Some(of_task) = running.join_next().await {
        latency.extend(of_task??);
    }
    Ok((latency, per_second(tasks * cycles, begun.elapsed())))
}

/// The cycles a second of both floors with 64 tasks, the faster one.
pub(crate) async fn faster_floor(setting: &Setting, cycles: usize) -> anyhow::Result<f64> {
    let database = setting.database().await?;
    let (own, cheapest) = (
        Rival::Own(Own::new(&database)),
        Rival::Cheapest(Cheapest::new(&database)),
    );
    // The first cycles open connections.
    crowd(&own, MANY, 5).await?;
    let (_, of_own) = crowd(&own, MANY, cycles).await?;
    let (_, of_cheapest) = crowd(&cheapest, MANY, cycles).await?;
    Ok(of_own.max(of_cheapest))
}
