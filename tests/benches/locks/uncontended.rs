//! Acquiring and releasing a lock without contention, which is the most frequent case.
//!
//! The baseline is the same two commands sent by the driver alone. The difference is mongolock's own work: the queue, a
//! task for the request, and the schedule of renewals.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mongolock::LockProvider;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::bare::Bare;
use crate::report::Report;
use crate::samples::{Samples, ratio};
use crate::setting::Setting;

/// The number of tasks that acquire and release locks at the same time.
const MANY: usize = 64;
/// The goal for the ratio of a hold to its baseline.
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

/// One caller. Baseline and lock take turns, so that both are measured under the same conditions.
async fn one(
    provider: &LockProvider,
    bare: &Bare,
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut baseline, mut locked) = (Samples::default(), Samples::default());
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
            baseline.add(first);
            locked.add(second);
        }
    }
    summary("1 task", &baseline, &locked, report);
    let throughput = ratio(locked.sum(), baseline.sum());
    report.at_most(GOAL, "1 task: total time / baseline", throughput, "x");
    Ok(())
}

/// 64 callers, each with a name of its own. Baseline and lock take turns.
async fn many(
    provider: &LockProvider,
    bare: Vec<Bare>,
    setting: &Setting,
    report: &mut Report,
) -> anyhow::Result<()> {
    let pairs = setting.pick(40, 20);
    let mut baseline = Concurrent::default();
    let mut locked = Concurrent::default();
    for round in 0..=setting.pick(20, 5) {
        let bare = bare.clone();
        let without = run_concurrently(pairs, move |index| {
            let bare = bare[index].clone();
            async move { bare_pair(&bare).await }
        });
        let without = without.await?;
        let provider = provider.clone();
        let with = run_concurrently(pairs, move |index| {
            let provider = provider.clone();
            async move { lock_pair(&provider, index).await }
        });
        let with = with.await?;
        // The first round opens connections and creates documents, and is not counted.
        if round > 0 {
            baseline.add(without);
            locked.add(with);
        }
    }
    summary("64 tasks", &baseline.latency, &locked.latency, report);
    report.figure(
        "64 tasks: baseline, pairs of commands",
        baseline.per_second(),
        "/s",
    );
    report.figure("64 tasks: holds", locked.per_second(), "/s");
    let throughput = ratio(locked.time, baseline.time);
    report.at_most(GOAL, "64 tasks: total time / baseline", throughput, "x");
    Ok(())
}

fn summary(what: &str, baseline: &Samples, locked: &Samples, report: &mut Report) {
    report.micros(format!("{what}: baseline, two commands, p50"), baseline.p50());
    report.micros(format!("{what}: acquire and release, p50"), locked.p50());
    let (p50, p95) = (
        ratio(locked.p50(), baseline.p50()),
        ratio(locked.p95(), baseline.p95()),
    );
    report.at_most(GOAL, format!("{what}: p50 / baseline"), p50, "x");
    report.at_most(GOAL, format!("{what}: p95 / baseline"), p95, "x");
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

/// The pairs of commands that many tasks have made at the same time.
#[derive(Default)]
struct Concurrent {
    latency: Samples,
    time: Duration,
}

impl Concurrent {
    fn add(&mut self, other: Self) {
        self.latency.extend(other.latency);
        self.time += other.time;
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn per_second(&self) -> f64 {
        self.latency.len() as f64 / self.time.as_secs_f64()
    }
}

async fn run_concurrently<W, F>(pairs: usize, work: W) -> anyhow::Result<Concurrent>
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
    let mut finished = Concurrent::default();
    while let Some(latency) = tasks.join_next().await {
        finished.latency.extend(latency??);
    }
    finished.time = begun.elapsed();
    Ok(finished)
}
