//! Many names with a few tasks each, in two processes, on a server that is busy with them.
//!
//! Every task acquires its name again and again. A floor of 64 tasks with names of their own, measured before, between and
//! after, shows how many holds the server can do: hand-overs inside a process cost no command, so that the library can do
//! more than that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mongolock::LockProvider;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::child;
use crate::report::Report;
use crate::rivals::faster_floor;
use crate::samples::{Samples, Turns, number};
use crate::setting::{self, Setting};
use crate::worker::{Job, SECTION, print, ready, warm_up};

const PROCESSES: usize = 2;

/// The tasks of each name in one process: four in both.
const TASKS: usize = 2;

/// The time in which all tasks start, before holds are counted.
const SETTLE: Duration = Duration::from_secs(3);

/// What one process does with the names.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Use {
    prefix: String,
    names: usize,
    has_sections: bool,
    time: Duration,
}

/// What one process has counted.
#[derive(Serialize, Deserialize)]
struct Used {
    /// The holds of each task.
    holds: Vec<u64>,
    commands: u64,
    longest_wait: Duration,
    /// The real length of a section, p50.
    section: Duration,
}

pub(crate) async fn measure(setting: &Setting, report: &mut Report) -> anyhow::Result<()> {
    let mut floor = Turns::default();
    floor.add(faster_floor(setting).await?);
    let mut results = Vec::new();
    for has_sections in [false, true] {
        results.push(compete(setting, has_sections).await?);
        floor.add(faster_floor(setting).await?);
    }
    report.figure("the faster floor of 64 tasks: holds", &floor, "/s");
    for (used, has_sections) in results.iter().zip([false, true]) {
        tell(used, floor.median(), has_sections, setting, report);
    }
    Ok(())
}

fn tell(used: &[Used], floor: f64, has_sections: bool, setting: &Setting, report: &mut Report) {
    let who = if has_sections {
        let section = used.iter().map(|used| used.section).max().unwrap_or_default();
        format!("sections of {:.1} ms", section.as_secs_f64() * 1e3)
    } else {
        "sections of 0 ms".to_owned()
    };
    let tasks = || used.iter().flat_map(|used| used.holds.iter().copied());
    let (holds, count) = (tasks().sum::<u64>(), tasks().count());
    let commands: u64 = used.iter().map(|used| used.commands).sum();
    let rate = number(holds) / window(setting).as_secs_f64();
    report.figure(format!("{who}: holds"), rate, "/s");
    let name = format!("{who}: holds / the faster floor of 64 tasks");
    let slowest = number(tasks().min().unwrap_or_default()) * number(count) / number(holds);
    let slowest_name = format!("{who}: holds of the slowest task / the mean");
    let goal = |goal: f64| (!has_sections).then_some(goal);
    report.at_least(goal(2.0), name, rate / floor, "x");
    report.at_least(goal(0.25), slowest_name, slowest, "x");
    let name = format!("{who}: commands of each hold");
    report.figure(name, number(commands) / number(holds), "commands");
    let wait = used.iter().map(|used| used.longest_wait).max();
    report.millis(format!("{who}: longest wait"), wait.unwrap_or_default());
}

fn window(setting: &Setting) -> Duration {
    setting.pick(Duration::from_secs(30), Duration::from_secs(8))
}

async fn compete(setting: &Setting, has_sections: bool) -> anyhow::Result<Vec<Used>> {
    let usage = Use {
        prefix: format!("names:{has_sections}"),
        names: setting.pick(1_000, 200),
        has_sections,
        time: window(setting),
    };
    child::results(setting, PROCESSES, || Job::UseNames(usage.clone())).await
}

/// What the tasks of this process count.
#[derive(Default)]
struct Counters {
    holds: Vec<AtomicU64>,
    /// The longest wait that has ended, in nanoseconds.
    longest_wait: AtomicU64,
}

/// The job of one process.
pub(crate) async fn use_names(uri: &str, database: &str, usage: Use) -> anyhow::Result<()> {
    let (database, sent) = setting::counted(uri, database).await?;
    let provider = LockProvider::builder(&database)
        .acquire_timeout(Duration::from_secs(120))
        .build()?;
    warm_up(&provider, 10).await?;
    ready().await;
    let tasks = usage.names * TASKS;
    let counters = Arc::new(Counters {
        holds: (0..tasks).map(|_| AtomicU64::new(0)).collect(),
        ..Counters::default()
    });
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let name = format!("{}:{}", usage.prefix, task % usage.names);
        let counters = Arc::clone(&counters);
        running.spawn(use_name(
            provider.clone(),
            name,
            task,
            usage.has_sections,
            counters,
        ));
    }
    sleep(SETTLE).await;
    let count = || -> Vec<u64> {
        counters
            .holds
            .iter()
            .map(|holds| holds.load(Ordering::Relaxed))
            .collect()
    };
    counters.longest_wait.store(0, Ordering::Relaxed);
    let (before, commands) = (count(), sent.so_far());
    sleep(usage.time).await;
    let (after, commands) = (count(), sent.so_far() - commands);
    let longest_wait = Duration::from_nanos(counters.longest_wait.load(Ordering::Relaxed));
    if let Some(Ok(ended)) = running.try_join_next() {
        // No task ends by itself except with an error.
        ended?;
    }
    print(&Used {
        holds: after
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect(),
        commands,
        longest_wait,
        section: section_length(usage.has_sections).await,
    })?;
    running.shutdown().await;
    provider.shutdown().await;
    Ok(())
}

/// Acquires a lock again and again.
async fn use_name(
    provider: LockProvider,
    name: String,
    task: usize,
    has_sections: bool,
    counters: Arc<Counters>,
) -> anyhow::Result<()> {
    let lock = provider.lock(name);
    loop {
        let asked = Instant::now();
        let guard = lock.acquire().await?;
        let waited = u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX);
        counters.longest_wait.fetch_max(waited, Ordering::Relaxed);
        counters.holds[task].fetch_add(1, Ordering::Relaxed);
        if has_sections {
            sleep(SECTION).await;
        }
        guard.release().await?;
    }
}

/// The real length of a section, p50.
async fn section_length(has_sections: bool) -> Duration {
    let mut lengths = Samples::default();
    if has_sections {
        for _ in 0..50 {
            let begun = Instant::now();
            sleep(SECTION).await;
            lengths.add(begun.elapsed());
        }
    }
    lengths.p50()
}
