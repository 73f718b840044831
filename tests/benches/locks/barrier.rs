//! A lock that this program holds until the processes of a competition stand in line for it.

use std::time::Duration;

use anyhow::bail;
use mongolock::{LockGuard, LockProvider};

use crate::child::Process;
use crate::queue::Queueing;
use crate::setting::Setting;
use crate::worker::Job;

/// The pause between two looks at the line.
const PAUSE: Duration = Duration::from_millis(5);
/// How long processes may take until they stand in line.
const LIMIT: Duration = Duration::from_secs(20);

/// The lock, held by this program.
pub(crate) struct Barrier {
    provider: LockProvider,
    guard: LockGuard,
}

impl Barrier {
    pub(crate) async fn new(setting: &Setting, name: &str) -> anyhow::Result<Self> {
        let provider = LockProvider::new(&setting.database().await?);
        let guard = provider.lock(name).await?;
        Ok(Self { provider, guard })
    }

    /// Starts a process for the job and kills it as soon as it stands in line.
    pub(crate) async fn add_dead(&self, setting: &Setting, job: Queueing) -> anyhow::Result<()> {
        let before = self.waiters().await?;
        let mut process = Process::start(setting, Job::Queue(job)).await?;
        process.go().await?;
        self.wait_for(before + 1).await?;
        process.kill().await
    }

    /// Waits until so many processes, dead or alive, stand in line.
    pub(crate) async fn wait_for(&self, waiters: usize) -> anyhow::Result<()> {
        let all_wait = async {
            while self.waiters().await? < waiters {
                tokio::time::sleep(PAUSE).await;
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(LIMIT, all_wait).await {
            Ok(done) => done,
            Err(_) => bail!("fewer than {waiters} processes stand in line"),
        }
    }

    /// Lets the first one in.
    pub(crate) async fn open(self) -> anyhow::Result<()> {
        self.guard.release().await?;
        self.provider.shutdown().await;
        Ok(())
    }

    async fn waiters(&self) -> anyhow::Result<usize> {
        let info = self.provider.admin().get(self.guard.name()).await?;
        Ok(info.map_or(0, |info| info.waiters.len()))
    }
}
