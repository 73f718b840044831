//! Acquiring and releasing a lock that no other client wants.
//!
//! Most holds are of this kind. There are two floors: the library's own commands through the driver alone, and the two
//! cheapest commands that any lock could use. The library is compared with the faster one of the turn. All of them run on
//! tasks of the runtime's workers, also with one task: on the main thread the runtime wakes up more slowly.
//!
//! Calls that do not wait for their release use several names in turn, because the next call of the same name would wait for
//! it or take the hold over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mongolock::{LockError, LockProvider};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::bare::{Cheapest, Own};
use crate::report::Report;
use crate::samples::{Samples, Turns, per_second};
use crate::setting::Setting;

const MANY: usize = 64;

/// The names of one task whose calls do not wait for their release.
const NAMES: usize = 8;

/// The goals of cycles a second, divided by those of the faster floor.
struct Goals {
    awaited: f64,
    unawaited: f64,
}

const ONE_TASK: Goals = Goals {
    awaited: 0.93,
    unawaited: 1.7,
};
const MANY_TASKS: Goals = Goals {
    awaited: 1.0,
    unawaited: 1.0,
};

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let database = setting.database().await?;
    let provider = LockProvider::new(&database);
    let rivals = [
        Rival::Own(Own::new(&database)),
        Rival::Cheapest(Cheapest::new(&database)),
        Rival::Library(provider.clone()),
        Rival::Unawaited(provider.clone(), Arc::default()),
    ];
    compare(&rivals, 1, setting.pick(1_500, 300), &ONE_TASK, setting, report).await?;
    compare(&rivals, MANY, setting.pick(120, 20), &MANY_TASKS, setting, report).await?;
    provider.shutdown().await;
    Ok(())
}

/// One way to acquire and release.
#[derive(Clone)]
enum Rival {
    Own(Own),
    Cheapest(Cheapest),
    Library(LockProvider),
    /// The library with releases that the calls do not wait for, and the number of cycles so far.
    Unawaited(LockProvider, Arc<AtomicUsize>),
}

impl Rival {
    fn label(&self) -> &'static str {
        match self {
            Self::Own(_) => "floor of its own commands",
            Self::Cheapest(_) => "floor of the cheapest commands",
            Self::Library(_) => "mongolock",
            Self::Unawaited(..) => "mongolock without waiting for the release",
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
            Self::Unawaited(provider, cycles) => {
                let turn = cycles.fetch_add(1, Ordering::Relaxed) % NAMES;
                let lock = provider.lock(format_args!("{name}:{turn}")).await_release(false);
                lock.run(|_| async { Ok::<_, LockError>(()) }).await?;
            }
        }
        Ok(begun.elapsed())
    }
}

/// Runs all of them in turns; each turn begins with another one.
async fn compare(
    rivals: &[Rival; 4],
    tasks: usize,
    cycles: usize,
    goals: &Goals,
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut rates = [(); 4].map(|()| Turns::default());
    let mut latencies = [(); 4].map(|()| Samples::default());
    let (mut awaited, mut unawaited) = (Turns::default(), Turns::default());
    for turn in 0..=setting.turns() {
        let mut of_turn = [0.0; 4];
        for step in 0..4 {
            let index = (turn + step) % 4;
            let (latency, rate) = crowd(&rivals[index], tasks, cycles).await?;
            of_turn[index] = rate;
            // The first turn opens connections and makes documents.
            if turn > 0 {
                rates[index].add(rate);
                latencies[index].extend(latency);
            }
        }
        if turn > 0 {
            let floor = of_turn[0].max(of_turn[1]);
            awaited.add(of_turn[2] / floor);
            unawaited.add(of_turn[3] / floor);
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
    let name = format!("{who}: cycles / the faster floor");
    report.turns_at_least(goals.awaited, name, &awaited, "x");
    let name = format!("{who}: cycles without waiting for the release / the faster floor");
    report.turns_at_least(goals.unawaited, name, &unawaited, "x");
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
