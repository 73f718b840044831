//! Acquiring and releasing a lock that no other client wants.
//!
//! Most holds are of this kind. There are two floors: the library's own commands through the driver alone, and the two
//! cheapest commands that any lock could use. The library is compared with the faster one of the turn. All of them run on
//! tasks of the runtime's workers, also with one task: on the main thread the runtime wakes up more slowly.
//!
//! Calls that do not wait for their release use several names in turn, because the next call of the same name would wait for
//! it.

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

    async fn cycle(&self, index: usize) -> anyhow::Result<Cycle> {
        let begun = Instant::now();
        let name = format!("{}:{index}", self.label());
        let acquired = match self {
            Self::Own(own) => {
                own.acquire(&name).await?;
                let acquired = begun.elapsed();
                own.release(&name).await?;
                acquired
            }
            Self::Cheapest(cheapest) => {
                cheapest.acquire(&name).await?;
                let acquired = begun.elapsed();
                cheapest.release(&name).await?;
                acquired
            }
            Self::Library(provider) => {
                let guard = provider.lock(name).acquire().await?;
                let acquired = begun.elapsed();
                guard.release().await?;
                acquired
            }
            Self::Unawaited(provider, cycles) => {
                let turn = cycles.fetch_add(1, Ordering::Relaxed) % NAMES;
                let lock = provider.lock(format_args!("{name}:{turn}")).await_release(false);
                lock.run(|_| async { Ok::<_, LockError>(begun.elapsed()) })
                    .await?
            }
        };
        let all = begun.elapsed();
        Ok(Cycle { all, acquired })
    }
}

/// The length of one cycle.
struct Cycle {
    all: Duration,
    /// The part until the lock was acquired.
    acquired: Duration,
}

/// The lengths of many cycles.
#[derive(Default)]
struct Lengths {
    all: Samples,
    acquires: Samples,
    releases: Samples,
}

impl Lengths {
    fn add(&mut self, cycle: &Cycle) {
        self.all.add(cycle.all);
        self.acquires.add(cycle.acquired);
        self.releases.add(cycle.all.saturating_sub(cycle.acquired));
    }

    fn extend(&mut self, other: Self) {
        self.all.extend(other.all);
        self.acquires.extend(other.acquires);
        self.releases.extend(other.releases);
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
    let mut lengths = [(); 4].map(|()| Lengths::default());
    let (mut awaited, mut unawaited) = (Turns::default(), Turns::default());
    for turn in 0..=setting.turns() {
        let mut of_turn = [0.0; 4];
        for step in 0..4 {
            let index = (turn + step) % 4;
            let (of_crowd, rate) = crowd(&rivals[index], tasks, cycles).await?;
            of_turn[index] = rate;
            // The first turn opens connections and makes documents.
            if turn > 0 {
                rates[index].add(rate);
                lengths[index].extend(of_crowd);
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
        let lengths = &lengths[index];
        for (what, length) in [
            ("a cycle, p50", lengths.all.p50()),
            ("a cycle, p95", lengths.all.p95()),
            ("acquire, p50", lengths.acquires.p50()),
            ("release, p50", lengths.releases.p50()),
        ] {
            report.micros(format!("{who}: {what}, {}", rival.label()), length);
        }
    }
    let name = format!("{who}: cycles / the faster floor");
    report.turns_at_least(goals.awaited, name, &awaited, "x");
    let name = format!("{who}: cycles without waiting for the release / the faster floor");
    report.turns_at_least(goals.unawaited, name, &unawaited, "x");
    Ok(())
}

/// The lengths of all cycles, and the cycles a second, of tasks that run at the same time.
async fn crowd(rival: &Rival, tasks: usize, cycles: usize) -> anyhow::Result<(Lengths, f64)> {
    let barrier = Arc::new(Barrier::new(tasks + 1));
    let mut running = JoinSet::new();
    for index in 0..tasks {
        let (rival, barrier) = (rival.clone(), Arc::clone(&barrier));
        running.spawn(async move {
            barrier.wait().await;
            let mut lengths = Lengths::default();
            for _ in 0..cycles {
                lengths.add(&rival.cycle(index).await?);
            }
            anyhow::Ok(lengths)
        });
    }
    barrier.wait().await;
    let begun = Instant::now();
    let mut lengths = Lengths::default();
    while let Some(of_task) = running.join_next().await {
        lengths.extend(of_task??);
    }
    Ok((lengths, per_second(tasks * cycles, begun.elapsed())))
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
