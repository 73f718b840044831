//! The program of the other processes that the benchmark starts, and the tasks that compete for one lock.

use std::time::Duration;

use mongolock::{LockError, LockProvider};
use mongolock_tests::{order, say};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::{awaited, clock, held, load, queue, soak};

/// The length that a section asks for. The runtime's timer rounds it up to whole milliseconds, so that the real length is
/// measured.
pub(crate) const SECTION: Duration = Duration::from_millis(2);

/// What another process does.
#[derive(Serialize, Deserialize)]
pub(crate) enum Job {
    Hold(held::Holding),
    WaitInMemory,
    Load(load::Share),
    Await(awaited::Waiting),
    Queue(queue::Queueing),
    Soak(soak::Soaking),
}

/// A job and its server.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) uri: String,
    pub(crate) database: String,
    pub(crate) job: Job,
}

/// One hold: the times at which it was requested, begun and ended, by the clock of the machine.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Section {
    /// The number of the process.
    pub(crate) process: usize,
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
    let Order { uri, database, job } = serde_json::from_str(job)?;
    match job {
        Job::Hold(holding) => held::hold(&uri, &database, holding).await,
        Job::WaitInMemory => held::wait_in_memory().await,
        Job::Load(share) => load::share(&uri, &database, share).await,
        Job::Queue(queueing) => queue::queue(&uri, &database, queueing).await,
        Job::Soak(soaking) => soak::ask(&uri, &database, soaking).await,
        Job::Await(waiting) => awaited::wait(&uri, &database, waiting).await,
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

/// The sections of a task under this lock, as long as it goes on after this number of them.
pub(crate) async fn sections(
    provider: LockProvider,
    name: String,
    goes_on: impl Fn(usize) -> bool,
) -> anyhow::Result<Vec<Section>> {
    let lock = provider.lock(name).acquire_timeout(Duration::from_secs(120));
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
        asked,
        begun,
        ended: clock::now(),
    })
}
