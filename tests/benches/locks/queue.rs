//! The processes of a competition: tasks that ask for a lock, a set of locks or a permit again and again.

use std::time::Duration;

use anyhow::bail;
use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use mongolock::{Lock, LockError, LockKind, LockProvider};
use mongolock_tests::monotonic_now;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::child::{print, ready};
use crate::run::Section;
use crate::setting::{Access, warm_up};

/// The length that a section asks for. The runtime's timer rounds it up to whole milliseconds, so that the real length is
/// measured.
const SECTION: Duration = Duration::from_millis(2);

/// What a process runs.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Client {
    /// A provider with the defaults.
    Woken,
    /// A provider without a change stream.
    Polling,
    /// The commands of DistributedLock.MongoDB, with its pauses.
    Dotnet,
}

/// What a task asks for.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Want {
    Lock(String),
    Set(Vec<String>),
    /// One of this number of permits of a semaphore.
    Permit(String, u32),
}

impl Want {
    /// The names that are held then.
    pub(crate) fn names(&self) -> &[String] {
        match self {
            Self::Lock(name) | Self::Permit(name, _) => std::slice::from_ref(name),
            Self::Set(names) => names,
        }
    }

    /// How many can have each of the names at the same time.
    pub(crate) fn permits(&self) -> usize {
        match self {
            Self::Permit(_, permits) => *permits as usize,
            _ => 1,
        }
    }

    async fn sections(
        &self,
        provider: &LockProvider,
        goes_on: impl Fn(usize) -> bool,
    ) -> anyhow::Result<Vec<Section>> {
        match self {
            Self::Lock(name) => sections(provider.lock(name), goes_on).await,
            Self::Set(names) => sections(provider.lock_all(names), goes_on).await,
            Self::Permit(name, permits) => sections(provider.semaphore(name, *permits), goes_on).await,
        }
    }
}

/// How long the process of a task that asks once goes on, so that others find it among those that use the lock.
const AFTER: Duration = Duration::from_millis(500);

/// Tasks that ask again and again.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Queueing {
    pub(crate) client: Client,
    /// What each task wants.
    pub(crate) wants: Vec<Want>,
    /// How long the tasks ask; `None` if each asks once.
    pub(crate) time: Option<Duration>,
}

/// Does the job of this process, and prints all sections.
pub(crate) async fn queue(access: &Access, queueing: Queueing) -> anyhow::Result<()> {
    let Queueing { client, wants, time } = queueing;
    let database = access.database().await?;
    let builder = access.builder().await?;
    let provider = builder.wake_up(client != Client::Polling).build()?;
    warm_up(&provider, 1).await?;
    ready().await;
    let mut working = JoinSet::new();
    for (task, want) in wants.into_iter().enumerate() {
        let (provider, locks) = (provider.clone(), database.collection("distributed_locks"));
        let begun = monotonic_now();
        working.spawn(async move {
            let goes_on = |noted: usize| match time {
                Some(time) => monotonic_now() < begun + time,
                None => noted == 0,
            };
            let mut sections = match (client, &want) {
                (Client::Dotnet, Want::Lock(name)) => dotnet(&locks, name, goes_on).await?,
                (Client::Dotnet, _) => bail!("its commands are those of a lock"),
                _ => want.sections(&provider, goes_on).await?,
            };
            for section in &mut sections {
                section.task = task;
            }
            Ok(sections)
        });
    }
    let mut noted: Vec<Section> = Vec::new();
    while let Some(own) = working.join_next().await {
        noted.extend(own??);
    }
    print(&noted)?;
    if time.is_none() {
        sleep(AFTER).await;
    }
    provider.shutdown().await;
    database.client().clone().shutdown().immediate(true).await;
    Ok(())
}

/// The sections of a task under this lock, set or permit, as long as it goes on after this number of them.
async fn sections<K: LockKind>(
    lock: Lock<K>,
    goes_on: impl Fn(usize) -> bool,
) -> anyhow::Result<Vec<Section>> {
    let lock = lock.acquire_timeout(Duration::from_secs(120));
    let mut noted = Vec::new();
    while goes_on(noted.len()) {
        let asked = monotonic_now();
        noted.push(lock.run(move |_| section(asked)).await?);
    }
    Ok(noted)
}

async fn section(asked: Duration) -> Result<Section, LockError> {
    let begun = monotonic_now();
    sleep(SECTION).await;
    Ok(Section {
        process: 0,
        task: 0,
        asked,
        begun,
        ended: monotonic_now(),
    })
}

/// The sections of a task with the commands of DistributedLock.MongoDB, and pauses of 10 to 800 ms after an attempt that failed.
async fn dotnet(
    locks: &Collection<Document>,
    name: &str,
    goes_on: impl Fn(usize) -> bool,
) -> anyhow::Result<Vec<Section>> {
    let mut noted = Vec::new();
    while goes_on(noted.len()) {
        let asked = monotonic_now();
        let lock_id = format!("{:032x}", fastrand::u128(..));
        while !dotnet_acquires(locks, name, &lock_id).await? {
            if !goes_on(noted.len()) {
                return Ok(noted);
            }
            sleep(Duration::from_millis(fastrand::u64(10..=800))).await;
        }
        noted.push(section(asked).await?);
        locks.delete_one(doc! { "_id": name, "lockId": lock_id }).await?;
    }
    Ok(noted)
}

/// One attempt of DistributedLock.MongoDB; returns whether the lock is held then.
async fn dotnet_acquires(locks: &Collection<Document>, name: &str, lock_id: &str) -> anyhow::Result<bool> {
    let free = doc! { "$lte": [{ "$ifNull": ["$expiresAt", DateTime::from_millis(0)] }, "$$NOW"] };
    let end = doc! { "$dateAdd": { "startDate": "$$NOW", "unit": "millisecond", "amount": 30_000 } };
    let next = doc! { "$add": [{ "$ifNull": ["$fencingToken", 0_i64] }, 1_i64] };
    let stage = doc! { "$set": {
        "lockId": { "$cond": [free.clone(), lock_id, "$lockId"] },
        "expiresAt": { "$cond": [free.clone(), end, "$expiresAt"] },
        "acquiredAt": { "$cond": [free.clone(), "$$NOW", "$acquiredAt"] },
        "fencingToken": { "$cond": [free, next, "$fencingToken"] },
    } };
    let found = locks
        .find_one_and_update(doc! { "_id": name }, vec![stage])
        .upsert(true)
        .return_document(ReturnDocument::After)
        .await?;
    Ok(found.is_some_and(|found| found.get_str("lockId") == Ok(lock_id)))
}
