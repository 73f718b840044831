//! The processes of the groups `order`: tasks that ask for one lock again and again for a fixed time.

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use mongolock::LockProvider;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::worker::{Section, print, ready, section, sections, warm_up};
use crate::{clock, setting};

/// What a process runs.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Client {
    /// A provider with the defaults.
    Woken,
    /// A provider without a change stream.
    Polling,
    /// A provider that polls and stands in no line.
    Unordered,
    /// The commands of DistributedLock.MongoDB, with its pauses.
    Dotnet,
}

/// Tasks that ask for one lock again and again.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Queueing {
    /// The name of the lock.
    pub(crate) name: String,
    pub(crate) client: Client,
    /// The number of providers, each with the same number of tasks.
    pub(crate) providers: usize,
    pub(crate) tasks: usize,
    /// The time before the one that counts.
    pub(crate) warm_up: Duration,
    pub(crate) counted: Duration,
}

/// What one process has done in the time that counts.
#[derive(Serialize, Deserialize)]
pub(crate) struct Queued {
    pub(crate) sections: Vec<Section>,
    /// The number of commands that it has sent, without those that read its change stream.
    pub(crate) commands: u64,
}

/// Does the job of this process.
pub(crate) async fn queue(uri: &str, database: &str, queueing: Queueing) -> anyhow::Result<()> {
    let (database, sent) = setting::counted_if(uri, database, |command| command != "getMore").await?;
    let waiters = database.collection::<Document>("distributed_locks.waiters");
    if queueing.client == Client::Unordered {
        // The server refuses the documents of the line, as those of a user without the rights.
        waiters.drop().await?;
        let refusing = doc! { "create": waiters.name(), "validator": { "$expr": false } };
        database.run_command(refusing).await?;
    }
    let mut providers = Vec::new();
    for _ in 0..queueing.providers {
        let provider = LockProvider::builder(&database)
            .wake_up(queueing.client == Client::Woken)
            .build()?;
        warm_up(&provider, 1).await?;
        providers.push(provider);
    }
    ready().await;
    let begins = clock::now() + queueing.warm_up;
    let ends = begins + queueing.counted;
    let mut working = JoinSet::new();
    let every = providers.iter().enumerate();
    for (number, provider) in every.flat_map(|of| std::iter::repeat_n(of, queueing.tasks)) {
        let (provider, client, name) = (provider.clone(), queueing.client, queueing.name.clone());
        let locks = database.collection("distributed_locks");
        working.spawn(async move {
            let mut sections = if client == Client::Dotnet {
                dotnet(&locks, &name, ends).await?
            } else {
                sections(provider, name, |_| clock::now() < ends).await?
            };
            for section in &mut sections {
                section.process = number;
            }
            anyhow::Ok(sections)
        });
    }
    tokio::time::sleep(queueing.warm_up).await;
    let before = sent.so_far();
    tokio::time::sleep(queueing.counted).await;
    let commands = sent.so_far() - before;
    let mut sections: Vec<Section> = Vec::new();
    while let Some(own) = working.join_next().await {
        sections.extend(own??);
    }
    sections.retain(|section| section.begun >= begins && section.ended <= ends);
    print(&Queued { sections, commands })?;
    for provider in providers {
        provider.shutdown().await;
    }
    if queueing.client == Client::Unordered {
        waiters.drop().await?;
    }
    database.client().clone().shutdown().immediate(true).await;
    Ok(())
}

/// The sections of a task with the commands of DistributedLock.MongoDB, and pauses of 10 to 800 ms after an attempt that failed.
async fn dotnet(locks: &Collection<Document>, name: &str, ends: Duration) -> anyhow::Result<Vec<Section>> {
    let mut noted = Vec::new();
    while clock::now() < ends {
        let asked = clock::now();
        let lock_id = format!("{:032x}", fastrand::u128(..));
        while dotnet_acquires(locks, name, &lock_id).await?.is_none() {
            if clock::now() >= ends {
                return Ok(noted);
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(10..=800))).await;
        }
        noted.push(section(asked).await?);
        locks.delete_one(doc! { "_id": name, "lockId": lock_id }).await?;
    }
    Ok(noted)
}

/// One attempt of DistributedLock.MongoDB; returns the token if the lock is held then.
pub(crate) async fn dotnet_acquires(
    locks: &Collection<Document>,
    name: &str,
    lock_id: &str,
) -> anyhow::Result<Option<i64>> {
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
    let own = found.filter(|found| found.get_str("lockId") == Ok(lock_id));
    Ok(own.map(|own| own.get_i64("fencingToken")).transpose()?)
}
