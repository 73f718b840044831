//! A server that rejects a part of all commands for overload (error 462): what becomes of leases and of callers.

use std::time::Duration;

use mongolock::{LockGuard, LockProvider};
use mongolock_tests::{FailPoint, FailPointGuard, monotonic_now};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::many_names::acquire;
use crate::report::Goal::AtMost;
use crate::report::Report;
use crate::run::{Run, Section};
use crate::samples::{Samples, per_second};
use crate::server::Server;
use crate::setting::Setting;

/// The commands that are rejected.
const COMMANDS: [&str; 5] = ["findAndModify", "update", "find", "aggregate", "insert"];

const LEASES: usize = 1_000;

/// The callers, and the leases beside them.
const CALLERS: usize = 200;
const BESIDE: usize = 100;
/// The time for which half of the commands are rejected.
const REJECTED: Duration = Duration::from_secs(5);
/// The goals of attempts a second and of the longest wait in seconds.
const ATTEMPTS: f64 = 110.0;
const LONGEST: f64 = 3.0;

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    leases(setting, report).await?;
    callers(setting, report).await
}

/// Rejects this part of the commands.
async fn reject(part: f64, setting: &Setting) -> anyhow::Result<FailPointGuard> {
    let rejecting = FailPoint::rejecting(&COMMANDS).part(part);
    Ok(rejecting.enable(setting.uri()).await?)
}

fn lost(leases: &[LockGuard]) -> usize {
    leases.iter().filter(|lease| lease.is_lost()).count()
}

/// Most commands are rejected for longer than a lease.
async fn leases(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    for (expiry, time) in [(30, setting.seconds(100, 40)), (6, setting.seconds(40, 15))] {
        let expiry = Duration::from_secs(expiry);
        let provider = setting.access().builder().await?.expiry(expiry).build()?;
        let leases = acquire(&provider, "lease", LEASES).await?;
        let rejecting = reject(0.9, setting).await?;
        sleep(time).await;
        rejecting.clear().await?;
        report.about(format!("90 % rejected for {time:?}"));
        let name = format!("lost of {LEASES} leases of {expiry:?}");
        report.figure(&name, lost(&leases), "locks", AtMost(0.0));
        drop(leases);
        provider.shutdown().await;
    }
    Ok(())
}

/// Half of the commands are rejected for a while.
async fn callers(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let server = Server::of(setting.access()).await?;
    let (mut attempts, mut longest, mut holds) = (Samples::default(), Samples::default(), Samples::default());
    let mut lost_leases = 0;
    for _ in 0..setting.turns(5, 2) {
        let builder = setting.access().builder().await?.acquire_timeout(None);
        let provider = builder.expiry(Duration::from_secs(3)).build()?;
        let leases = acquire(&provider, "lease", BESIDE).await?;
        let ends = Instant::now() + Duration::from_secs(2) + REJECTED + Duration::from_secs(5);
        let mut calling = JoinSet::new();
        for caller in 0..CALLERS {
            calling.spawn(call(provider.clone(), caller, ends));
        }
        sleep(Duration::from_secs(2)).await;
        let begun = monotonic_now();
        let rejecting = reject(0.5, setting).await?;
        let load = server.for_some_time(REJECTED).await?;
        let rejected = rejecting.hits().await?;
        let ended = monotonic_now();
        let mut sections = Vec::new();
        while let Some(called) = calling.join_next().await {
            sections.extend(called??);
        }
        let meanwhile = Run::of(sections).part(|section| section.begun > begun && section.begun < ended);
        attempts.add(load.commands + per_second(u64::try_from(rejected)?, load.time));
        longest.add(meanwhile.waits.max() / 1e3);
        holds.add(per_second(meanwhile.sections.len(), load.time));
        lost_leases += lost(&leases);
        drop(leases);
        provider.shutdown().await;
    }
    report.about(format!("half rejected for {REJECTED:?}, {CALLERS} callers"));
    report.figure("attempts", attempts, "/s", AtMost(ATTEMPTS));
    report.figure("longest wait", longest, "s", AtMost(LONGEST));
    report.figure("holds", holds, "/s", None);
    let name = format!("lost of {BESIDE} leases of 3 s");
    report.figure(&name, lost_leases, "locks", AtMost(0.0));
    Ok(())
}

/// A caller with a lock of its own, which it holds for 20 ms. A call that fails counts as a part of the next one.
async fn call(provider: LockProvider, task: usize, ends: Instant) -> anyhow::Result<Vec<Section>> {
    let lock = provider.lock(format_args!("caller:{task}"));
    let mut noted = Vec::new();
    let mut asked = monotonic_now();
    while Instant::now() < ends {
        let Ok(guard) = lock.acquire().await else {
            continue;
        };
        let begun = monotonic_now();
        sleep(Duration::from_millis(20)).await;
        noted.push(Section {
            process: 0,
            task,
            asked,
            begun,
            ended: monotonic_now(),
        });
        // A release without an answer ends with its lease.
        let _ = guard.release().await;
        asked = monotonic_now();
    }
    Ok(noted)
}
