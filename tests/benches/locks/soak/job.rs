//! The processes of the soak: tasks that ask for one lock again and again, and print each step for the history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongolock::LockProvider;
use mongolock_tests::{Event, Outcome, Step, order, tell};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::LOCK;
use super::act::{Act, section, take_turn};
use crate::child::ready;
use crate::queue::{Client, dotnet_acquires};
use crate::setting::Access;

/// The pause after an error, so that a server that is down is not asked without end.
const AFTER_ERROR: Duration = Duration::from_millis(20);
/// The lease of DistributedLock.MongoDB.
const DOTNET_LEASE: Duration = Duration::from_secs(30);

/// What one process does until it is told to end.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Soaking {
    pub(crate) owner: String,
    pub(crate) client: Client,
    pub(crate) expiry: Duration,
}

/// Does the job of this process.
pub(crate) async fn ask(access: &Access, soaking: Soaking) -> anyhow::Result<()> {
    let database = access.database().await?;
    let builder = access.builder().await?;
    let provider = builder
        .expiry(soaking.expiry)
        .wake_up(soaking.client == Client::Woken)
        .acquire_timeout(None)
        .owner(soaking.owner)
        .build()?;
    ready().await;
    let ends = Arc::new(AtomicBool::new(false));
    let mut working = JoinSet::new();
    let tasks = if soaking.client == Client::Dotnet { 2 } else { 3 };
    for task in 0..tasks {
        let asking = Asking {
            task,
            ends: Arc::clone(&ends),
        };
        if soaking.client == Client::Dotnet {
            let locks = database.collection("distributed_locks");
            working.spawn(asking.dotnet(locks));
        } else {
            working.spawn(asking.by(provider.clone()));
        }
    }
    order().await;
    ends.store(true, Ordering::Relaxed);
    working.join_all().await;
    provider.shutdown().await;
    Ok(())
}

/// One task.
struct Asking {
    task: usize,
    ends: Arc<AtomicBool>,
}

impl Asking {
    async fn by(self, provider: LockProvider) {
        while !self.ends() {
            if take_turn(Act::Lock, &provider, LOCK, self.task).await.is_err() {
                sleep(AFTER_ERROR).await;
            }
        }
    }

    async fn dotnet(self, locks: Collection<Document>) {
        while !self.ends() {
            self.tell(Step::Invoke);
            let lock_id = format!("{:032x}", fastrand::u128(..));
            match self.dotnet_waits(&locks, &lock_id).await {
                Ok(()) => {
                    // Its tokens begin anew when the document was deleted.
                    let (token, lease) = (None, DOTNET_LEASE);
                    self.tell(Step::Acquired { token, lease });
                    sleep(section()).await;
                    self.tell(Step::Ended { is_lost: false });
                }
                Err(error) => {
                    let (error, is_unknown) = (error.to_string(), true);
                    self.tell(Step::NotAcquired { error, is_unknown });
                }
            }
            // After an error the document may have this id as well.
            while let Err(error) = locks.delete_one(doc! { "_id": LOCK, "lockId": &lock_id }).await {
                self.tell(Step::Released(Outcome::Unknown(error.to_string())));
                sleep(AFTER_ERROR).await;
            }
            self.tell(Step::Released(Outcome::Ok));
        }
    }

    async fn dotnet_waits(&self, locks: &Collection<Document>, lock_id: &str) -> anyhow::Result<()> {
        while dotnet_acquires(locks, LOCK, lock_id).await?.is_none() {
            ensure!(!self.ends(), "the client has ended");
            sleep(Duration::from_millis(fastrand::u64(10..=800))).await;
        }
        Ok(())
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    fn tell(&self, step: Step) {
        tell(&Event::now(self.task, step));
    }
}
