//! Thousands of locks held at the same time: the cost of their renewal, the number of lost locks, and their memory.
//!
//! All commands of the holding process are counted after the last acquire. The memory is measured for the whole
//! process; connections are opened before, so the growth does not include the memory of the driver.

use std::time::Duration;

use mongolock::{LockGuard, LockProvider};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::memory::{each, resident};
use crate::report::Report;
use crate::setting::Setting;

/// The goal for the commands per second that renew all locks.
const COMMANDS: f64 = 3.0;
/// The goal for the memory of one held lock, in bytes.
const BYTES: f64 = 1024.0;
/// The number of acquires that run at the same time.
const AT_ONCE: usize = 64;
/// The number of waiters whose memory is measured.
const WAITERS: usize = 100_000;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let long = setting.pick(Duration::from_secs(61), Duration::from_secs(21));
    let short = setting.pick(Duration::from_secs(15), Duration::from_secs(6));
    // Memory that a measurement frees hides the growth of the next one: the one that has to be exact is first, and the
    // one that takes the most memory is last.
    many(setting, 10_000, Duration::from_secs(30), long, report).await?;
    many(setting, 1_000, Duration::from_secs(3), short, report).await?;
    waiters(report).await
}

async fn many(
    setting: &Setting,
    count: usize,
    expiry: Duration,
    time: Duration,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (database, sent) = setting.counted().await?;
    let provider = LockProvider::builder(&database).expiry(expiry).build()?;
    let warm_up = acquire(&provider, "warm-up", AT_ONCE * 4).await?;
    release(warm_up).await?;
    let before = resident()?;
    let guards = acquire(&provider, "held", count).await?;
    let after = resident()?;
    let acquired = sent.so_far();
    sleep(time).await;
    let commands = sent.so_far() - acquired;
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    let what = format!("{count} locks, expiry {expiry:?}");
    report.at_most(
        COMMANDS,
        format!("{what}: commands"),
        per_second(commands, time),
        "/s",
    );
    report.at_most(0.0, format!("{what}: lost"), each(0, lost as u64, 1), "locks");
    if count >= 10_000 {
        report.at_most(
            BYTES,
            format!("{what}: memory per lock"),
            each(before, after, count),
            "bytes",
        );
        let later = each(before, resident()?, count);
        // This includes the memory that the driver needed for the largest commands and the allocator keeps.
        report.figure(format!("{what}: memory per lock after renewals"), later, "bytes");
    }
    release(guards).await?;
    provider.shutdown().await;
    Ok(())
}

/// Measures the memory of one waiter with its task, on the in-memory store, which needs no connections.
async fn waiters(report: &mut Report) -> anyhow::Result<()> {
    let provider = LockProvider::in_memory();
    let holder = provider.to_builder().build()?;
    let guard = holder.lock("waiters").acquire().await?;
    let lock = provider.lock("waiters").acquire_timeout(None);
    let future = size_of_val(&lock.acquire());
    let before = resident()?;
    let mut tasks = JoinSet::new();
    for _ in 0..WAITERS {
        tasks.spawn(lock.acquire());
    }
    sleep(Duration::from_millis(500)).await;
    let taken = each(before, resident()?, WAITERS);
    report.figure("future of `acquire`", each(0, future as u64, 1), "bytes");
    report.figure("one waiter with its task", taken, "bytes");
    tasks.shutdown().await;
    guard.release().await?;
    Ok(())
}

async fn acquire(provider: &LockProvider, prefix: &str, count: usize) -> anyhow::Result<Vec<LockGuard>> {
    let mut acquiring = JoinSet::new();
    let mut guards = Vec::with_capacity(count);
    for index in 0..count {
        if acquiring.len() == AT_ONCE
            && let Some(guard) = acquiring.join_next().await
        {
            guards.push(guard??);
        }
        acquiring.spawn(provider.lock(format_args!("{prefix}:{index}")).acquire());
    }
    while let Some(guard) = acquiring.join_next().await {
        guards.push(guard??);
    }
    Ok(guards)
}

/// Releases the locks by dropping their guards: the background releases are sent in batches, which takes less time than
/// single releases.
async fn release(guards: Vec<LockGuard>) -> anyhow::Result<()> {
    drop(guards);
    sleep(Duration::from_secs(1)).await;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}
