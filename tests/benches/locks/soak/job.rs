//! The processes of the soak: tasks that ask for one lock again and again, and print when they begin and end a section.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongolock::{DistributedLock, LockProvider};
use serde::{Deserialize, Serialize};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::queue::{Client, dotnet_acquires};
use crate::worker::{next_step, print, ready};
use crate::{clock, setting};

/// The pause after an error, so that a server that is down is not asked without end.
const AFTER_ERROR: Duration = Duration::from_millis(20);
/// The lease of DistributedLock.MongoDB.
const DOTNET_LEASE: Duration = Duration::from_secs(30);

/// What one process does until it is told to end.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Soaking {
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) client: Client,
    pub(crate) tasks: usize,
    pub(crate) expiry: Duration,
}

/// What a process prints. The times are those of the clock of the machine.
#[derive(Serialize, Deserialize)]
pub(crate) enum Record {
    /// The lock was held at this time.
    Begun {
        task: usize,
        asked: Duration,
        at: Duration,
        token: i64,
        /// The time until the lease ends if nobody renews it.
        remaining: Duration,
    },
    /// The section is over. If it is not marked as lost, the lock was still held at this time.
    Ended {
        task: usize,
        at: Duration,
        is_lost: bool,
    },
    /// A call has failed.
    Failed { error: String },
}

/// Does the job of this process.
pub(crate) async fn ask(uri: &str, database: &str, soaking: Soaking) -> anyhow::Result<()> {
    let database = setting::database(uri, database).await?;
    let provider = LockProvider::builder(&database)
        .expiry(soaking.expiry)
        .wake_up(soaking.client == Client::Woken)
        .owner(soaking.owner)
        .build()?;
    ready()?;
    let ends = Arc::new(AtomicBool::new(false));
    let mut working = JoinSet::new();
    for task in 0..soaking.tasks {
        let asking = Asking {
            task,
            ends: Arc::clone(&ends),
        };
        if soaking.client == Client::Dotnet {
            let locks = database.collection("distributed_locks");
            working.spawn(asking.dotnet(locks, soaking.name.clone()));
        } else {
            let lock = provider.lock(&*soaking.name).acquire_timeout(None);
            working.spawn(asking.by(lock));
        }
    }
    spawn_blocking(next_step).await??;
    ends.store(true, Ordering::Relaxed);
    while let Some(ended) = working.join_next().await {
        ended??;
    }
    provider.shutdown().await;
    Ok(())
}

/// One task.
struct Asking {
    task: usize,
    ends: Arc<AtomicBool>,
}

impl Asking {
    async fn by(self, lock: DistributedLock) -> anyhow::Result<()> {
        let mut asked = clock::now();
        while !self.ends() {
            let guard = match lock.acquire().await {
                Ok(guard) => guard,
                Err(error) => {
                    failed("acquire", &error)?;
                    sleep(AFTER_ERROR).await;
                    continue;
                }
            };
            // The clock is read first: the lock is held at this time if it is held after it.
            let begun = clock::now();
            let remaining = guard.remaining();
            if guard.is_lost() {
                failed("begin", &"the lock was lost before the section began")?;
                continue;
            }
            self.begun(asked, begun, guard.fencing_token().get(), remaining)?;
            tokio::select! {
                () = sleep(length()) => {}
                () = guard.lost() => {}
            }
            let ended = clock::now();
            let is_lost = guard.is_lost();
            self.ended(ended, is_lost)?;
            if !is_lost && let Err(error) = guard.release().await {
                failed("release", &error)?;
            }
            asked = clock::now();
        }
        Ok(())
    }

    async fn dotnet(self, locks: Collection<Document>, name: String) -> anyhow::Result<()> {
        while !self.ends() {
            let asked = clock::now();
            let lock_id = format!("{:032x}", fastrand::u128(..));
            // After an error the document may have this id already, and the next attempt finds it.
            while !self.ends() {
                match dotnet_acquires(&locks, &name, &lock_id).await {
                    Ok(Some(token)) => {
                        self.begun(asked, clock::now(), token, DOTNET_LEASE)?;
                        sleep(length()).await;
                        self.ended(clock::now(), false)?;
                        break;
                    }
                    Ok(None) => sleep(Duration::from_millis(fastrand::u64(10..=800))).await,
                    Err(error) => {
                        failed("acquire of .NET", &error)?;
                        sleep(AFTER_ERROR).await;
                    }
                }
            }
            while let Err(error) = locks.delete_one(doc! { "_id": &name, "lockId": &lock_id }).await {
                failed("release of .NET", &error)?;
                sleep(AFTER_ERROR).await;
            }
        }
        Ok(())
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn begun(&self, asked: Duration, at: Duration, token: i64, remaining: Duration) -> anyhow::Result<()> {
        print(&Record::Begun {
            task: self.task,
            asked,
            at,
            token,
            remaining,
        })
    }

    fn ended(&self, at: Duration, is_lost: bool) -> anyhow::Result<()> {
        print(&Record::Ended {
            task: self.task,
            at,
            is_lost,
        })
    }
}

/// The length of a section.
fn length() -> Duration {
    Duration::from_millis(fastrand::u64(1..=5))
}

fn failed(what: &str, error: &impl std::fmt::Display) -> anyhow::Result<()> {
    print(&Record::Failed {
        error: format!("{what}: {error}"),
    })
}
