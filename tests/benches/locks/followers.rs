//! Providers that follow who holds one lock, each with a client and a stream of events of its own, in one process.

use std::time::{Duration, Instant};

use mongolock::{LockEvents, LockFilter, LockProvider};

use crate::report::Report;
use crate::samples::Samples;
use crate::setting::Setting;

/// The followers, each with a client of its own.
const FOLLOWERS: usize = 10;

/// The limit of a wait for an event.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let rounds = setting.pick(300, 50);
    let leader = LockProvider::new(&setting.database().await?).lock("followers");
    let first = leader.acquire().await?;
    let mut followers = Vec::new();
    for _ in 0..FOLLOWERS {
        let provider = LockProvider::new(&setting.database().await?);
        let mut events = provider.admin().events(LockFilter::new().name("followers"));
        until_held(&mut events).await?;
        followers.push(events);
    }
    first.release().await?;
    let mut delays = Samples::default();
    for _ in 0..rounds {
        let guard = leader.acquire().await?;
        let replied = Instant::now();
        let told = followers.iter_mut().map(|events| async {
            until_held(events).await?;
            anyhow::Ok(replied.elapsed())
        });
        for delay in futures_util::future::try_join_all(told).await? {
            delays.add(delay);
        }
        guard.release().await?;
    }
    report.millis(
        format!("{FOLLOWERS} followers: reply to the claim to event, p50"),
        delays.p50(),
    );
    let p99 = delays.p99().as_secs_f64() * 1e3;
    report.at_most(100.0, format!("{FOLLOWERS} followers: the same, p99"), p99, "ms");
    report.millis(format!("{FOLLOWERS} followers: the same, max"), delays.max());
    Ok(())
}

/// Reads the events up to one after which the lock is held.
async fn until_held(events: &mut LockEvents) -> anyhow::Result<()> {
    loop {
        let event = tokio::time::timeout(LIMIT, events.next()).await?;
        let Some(event) = event else {
            anyhow::bail!("the events have ended")
        };
        if event?.kind.is_held() {
            return Ok(());
        }
    }
}
