//! Acquiring and releasing a lock that nobody else wants.
//!
//! Most holds are of this kind. The floor is the same two commands through the bare driver; what is above it is
//! mongolock's own work: the queue, a task for the request, the schedule of renewals, the attribute's future.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mongolock::LockProvider;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::bare::Bare;
use crate::report::Report;
use crate::samples::{Samples, ratio};
use crate::setting::Setting;

const MANY: usize = 64;
const GOAL: f64 = 1.05;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let database = setting.database().await?;
    let provider = LockProvider::new(&database);
    let bare = |index: usize| Bare::new(&database, format!("bare:{index}"));
    one(&provider, &bare(0), setting, report).await?;
    many(&provider, (0..MANY).map(bare).collect(), setting, report).await?;
    provider.shutdown().await;
    Ok(())
}

/// One caller: every pair of commands is followed by one of the other kind, so that both meet the same moments.
async fn one(
    provider: &LockProvider,
    bare: &Bare,
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut floor, mut locked) = (Samples::default(), Samples::default());
    let warm_up = 100;
    for round in 0..warm_up + setting.pick(4_000, 500) {
        let (first, second) = if round % 2 == 0 {
            let first = bare_pair(bare).await?;
            (first, lock_pair(provider, 0).await?)
        } else {
            let second = lock_pair(provider, 0).await?;
            (bare_pair(bare).await?, second)
        };
        if round >= warm_up {
            floor.add(first);
            locked.add(second);
        }
    }
    summary("1 task", &floor, &locked, report);
    let throughput = ratio(locked.sum(), floor.sum());
    report.at_most(
        GOAL,
        "1 task: time for all of it, over the floor",
        throughput,
        "x",
    );
    Ok(())
}

/// 64 callers with names of their own: rounds of the one kind and the other in turn.
async fn many(
    provider: &LockProvider,
    bare: Vec<Bare>,
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    let pairs = setting.pick(40, 20);
    let mut floor = Crowd::default();
    let mut locked = Crowd::default();
    for round in 0..=setting.pick(20, 5) {
        let bare = bare.clone();
        let without = crowd(pairs, move |index| {
            let bare = bare[index].clone();
            async move { bare_pair(&bare).await }
        });
        let without = without.await?;
        let provider = provider.clone();
        let with = crowd(pairs, move |index| {
            let provider = provider.clone();
            async move { lock_pair(&provider, index).await }
        });
        let with = with.await?;
        // The first round opens connections and makes documents.
        if round > 0 {
            floor.add(without);
            locked.add(with);
        }
    }
    summary("64 tasks", &floor.latency, &locked.latency, report);
    report.figure("64 tasks: holds, the floor", floor.per_second(), "/s");
    report.figure("64 tasks: holds", locked.per_second(), "/s");
    let throughput = ratio(locked.time, floor.time);
    report.at_most(
        GOAL,
        "64 tasks: time for all of it, over the floor",
        throughput,
        "x",
    );
    Ok(())
}

fn summary(who: &str, floor: &Samples, locked: &Samples, report: &mut Report) {
    report.micros(format!("{who}: the two bare commands, p50"), floor.p50());
    report.micros(format!("{who}: acquire and release, p50"), locked.p50());
    let (p50, p95) = (ratio(locked.p50(), floor.p50()), ratio(locked.p95(), floor.p95()));
    report.at_most(GOAL, format!("{who}: p50 over the floor"), p50, "x");
    report.at_most(GOAL, format!("{who}: p95 over the floor"), p95, "x");
}

async fn bare_pair(bare: &Bare) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    bare.acquire().await?;
    bare.release().await?;
    Ok(begun.elapsed())
}

async fn lock_pair(provider: &LockProvider, index: usize) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let lock = provider.lock(format_args!("uncontended:{index}"));
    lock.acquire().await?.release().await?;
    Ok(begun.elapsed())
}

/// What many tasks did at once.
#[derive(Default)]
struct Crowd {
    latency: Samples,
    time: Duration,
}

impl Crowd {
    fn add(&mut self, other: Self) {
        self.latency.extend(other.latency);
        self.time += other.time;
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn per_second(&self) -> f64 {
        self.latency.len() as f64 / self.time.as_secs_f64()
    }
}

async fn crowd<W, F>(pairs: usize, work: W) -> anyhow::Result<Crowd>
where
    W: Fn(usize) -> F + Send + Sync + 'static,
    F: Future<Output = anyhow::Result<Duration>> + Send + 'static,
{
    let (work, barrier) = (Arc::new(work), Arc::new(Barrier::new(MANY + 1)));
    let mut tasks = JoinSet::new();
    for index in 0..MANY {
        let (work, barrier) = (Arc::clone(&work), Arc::clone(&barrier));
        tasks.spawn(async move {
            barrier.wait().await;
            let mut latency = Samples::default();
            for _ in 0..pairs {
                latency.add(work(index).await?);
            }
            anyhow::Ok(latency)
        });
    }
    barrier.wait().await;
    let begun = Instant::now();
    let mut crowd = Crowd::default();
    while let Some(latency) = tasks.join_next().await {
        crowd.latency.extend(latency??);
    }
    crowd.time = begun.elapsed();
    Ok(crowd)
}
