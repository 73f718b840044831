//! The program of the other processes that the benchmark starts, and the tasks that compete for one lock.

use std::time::Duration;

use mongolock::{Lock, LockError, LockKind, LockProvider};
use mongolock_tests::{order, say};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::setting::Access;
use crate::{awaited, clock, held, in_memory, load, queue, soak};

/// The length that a section asks for. The runtime's timer rounds it up to whole milliseconds, so that the real length is
/// measured.
pub(crate) const SECTION: Duration = Duration::from_millis(2);

/// What another process does.
#[derive(Serialize, Deserialize)]
pub(crate) enum Job {
    Hold(held::Holding),
    /// So many cycles in memory.
    Cycle(u32),
    WaitInMemory,
    Load(load::Share),
    Await(awaited::Waiting),
    Queue(queue::Queueing),
    Soak(soak::Soaking),
}

/// A job and its server.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) access: Access,
    pub(crate) job: Job,
}

/// One hold: the times at which it was requested, begun and ended, by the clock of the machine.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Section {
    /// The number of the process.
    pub(crate) process: usize,
    /// The number of the task in its process.
    pub(crate) task: usize,
    pub(crate) asked: Duration,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

impl Section {
    pub(crate) fn wait(&self) -> Duration {
        self.begun.saturating_sub(self.asked)
    }
}

/// Does the job of this process.
pub(crate) async fn run(job: &str) -> anyhow::Result<()> {
    let Order { access, job } = serde_json::from_str(job)?;
    match job {
        Job::Hold(holding) => held::hold(&access, holding).await,
        Job::Cycle(count) => in_memory::cycle(count).await,
        Job::WaitInMemory => in_memory::wait().await,
        Job::Load(share) => load::share(&access, share).await,
        Job::Queue(queueing) => queue::queue(&access, queueing).await,
        Job::Soak(soaking) => soak::ask(&access, soaking).await,
        Job::Await(waiting) => awaited::wait(&access, waiting).await,
    }
}

/// Acquires and releases this number of locks at the same time, so that connections and background tasks are there.
pub(crate) async fn warm_up(provider: &LockProvider, count: usize) -> anyhow::Result<()> {
    let mut cycles = JoinSet::new();
    for index in 0..count {
        let lock = provider.lock(format_args!("warm-up:{}:{index}", std::process::id()));
        cycles.spawn(async move { lock.acquire().await?.release().await });
    }
    while let Some(cycle) = cycles.join_next().await {
        cycle??;
    }
    Ok(())
}

/// Tells the process that has started this one that the next step can begin, and waits until it shall.
pub(crate) async fn ready() {
    say("ready");
    order().await;
}

/// Sends a result to the process that has started this one.
pub(crate) fn print(result: &impl Serialize) -> anyhow::Result<()> {
    say(format_args!("result {}", serde_json::to_string(result)?));
    Ok(())
}

/// The sections of a task under this lock, set or permit, as long as it goes on after this number of them.
pub(crate) async fn sections<K: LockKind>(
    lock: Lock<K>,
    goes_on: impl Fn(usize) -> bool,
) -> anyhow::Result<Vec<Section>> {
    let lock = lock.acquire_timeout(Duration::from_secs(120));
    let mut noted = Vec::new();
    while goes_on(noted.len()) {
        let asked = clock::now();
        noted.push(lock.run(move |_| section(asked)).await?);
    }
    Ok(noted)
}

pub(crate) async fn section(asked: Duration) -> Result<Section, LockError> {
    let begun = clock::now();
    tokio::time::sleep(SECTION).await;
    Ok(Section {
        process: 0,
        task: 0,
        asked,
        begun,
        ended: clock::now(),
    })
}
