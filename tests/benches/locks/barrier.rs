//! Processes that compete behind a lock which this program holds until they stand in line for it.

use std::time::Duration;

use anyhow::bail;
use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongolock::{LockGuard, LockProvider};

use crate::child;
use crate::queue::{Queued, Queueing};
use crate::run::Run;
use crate::setting::Setting;
use crate::worker::{Job, Section};

/// The pause between two looks at the line.
const PAUSE: Duration = Duration::from_millis(5);
/// How long processes may take until they stand in line.
const LIMIT: Duration = Duration::from_secs(20);

/// One competition.
pub(crate) struct Contest {
    /// The lock that is held first.
    pub(crate) name: String,
    /// What each process does, and the address of its server, which may be a proxy.
    pub(crate) processes: Vec<(String, Queueing)>,
    /// What the processes do that are killed while they stand in front of the others. The time counts from the first section
    /// on if there is such a list: all wait by then.
    pub(crate) dead: Option<Vec<Queueing>>,
}

/// The outcome of one competition.
pub(crate) struct Outcome {
    pub(crate) run: Run,
    pub(crate) commands: u64,
}

impl Contest {
    /// Runs the competition. The providers of all processes are numbered.
    pub(crate) async fn run(self, setting: &Setting) -> anyhow::Result<Outcome> {
        let (mut processes, mut firsts, mut providers) = (Vec::new(), Vec::new(), 0);
        for (uri, queueing) in self.processes {
            firsts.push(providers);
            providers += queueing.providers;
            processes.push(child::start_with(setting, &uri, Job::Queue(queueing), &[]).await?);
        }
        let database = setting.database().await?;
        let provider = LockProvider::new(&database);
        let guard = provider.lock(&*self.name).await?;
        let all_wait = self.dead.as_ref().map(|dead| dead.len() + providers);
        for (number, job) in self.dead.into_iter().flatten().enumerate() {
            let mut process = child::start(setting, Job::Queue(job)).await?;
            process.send("go").await;
            wait_for(number + 1, &database, &guard).await?;
            // It is killed when it is dropped.
            drop(process);
        }
        child::go(&mut processes).await;
        if let Some(all) = all_wait {
            wait_for(all, &database, &guard).await?;
        }
        guard.release().await?;
        provider.shutdown().await;
        let (mut sections, mut commands) = (Vec::new(), 0);
        for (queued, first) in child::last_results::<Queued>(processes)
            .await?
            .into_iter()
            .zip(firsts)
        {
            commands += queued.commands;
            sections.extend(queued.sections.into_iter().map(|section| Section {
                process: first + section.process,
                ..section
            }));
        }
        Ok(Outcome {
            run: Run::of(sections),
            commands,
        })
    }
}

/// Waits until so many processes, dead or alive, stand in line.
async fn wait_for(number: usize, database: &Database, guard: &LockGuard) -> anyhow::Result<()> {
    let waiters = database.collection::<Document>("distributed_locks.waiters");
    let waiting = doc! { "name": guard.name(), "since": { "$ne": null } };
    let all_wait = async {
        loop {
            if waiters.count_documents(waiting.clone()).await? >= number as u64 {
                return anyhow::Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(LIMIT, all_wait).await {
        Ok(done) => done,
        Err(_) => bail!("fewer than {number} processes stand in line"),
    }
}
