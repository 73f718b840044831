//! One instance: waits for the ticks, calls the job at each, and reports what came of it.

use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mongolock::{LockContext, LockProvider};
use mongolock_examples::processes;
use tokio::time::sleep;

use crate::nightly_report;
use crate::options::{self, Options};
use crate::schedule::{Schedule, Tick};
use crate::store::{Call, Outcome, Run, Store};

/// What the job needs.
#[derive(Debug)]
pub(crate) struct Job {
    store: Store,
    schedule: Schedule,
    /// Nothing was due before it.
    first: Tick,
    instance: u32,
    work: Duration,
}

impl Job {
    /// The ticks up to this one for which the job has not been run. After a long stop these are many; a job that is
    /// only about today would take the last of them.
    pub(crate) async fn due(&self, tick: Tick) -> anyhow::Result<Vec<Tick>> {
        let done = self.store.last_done().await?;
        Ok(self.schedule.due(done, self.first, tick))
    }

    /// The work itself, and its record. An instance that dies between the two leaves work that is done again: to be
    /// run twice must do no harm, or the record must be part of the work, as in one document or one transaction.
    pub(crate) async fn build_report(&self, tick: Tick) -> anyhow::Result<()> {
        let begun = Instant::now();
        sleep(self.work).await;
        let run = Run {
            tick,
            instance: self.instance,
            token: LockContext::current().map(|lock| lock.fencing_token()),
            took: begun.elapsed(),
        };
        self.store.add_run(&run).await
    }
}

/// Runs the instance until it is told to stop.
pub(crate) async fn run(instance: &options::Instance, options: &Options) -> anyhow::Result<ExitCode> {
    // A service would listen to its signals here.
    let mut stopped = pin!(processes::stop_with_parent());
    let database = processes::database(&instance.database).await?;
    LockProvider::builder(&database)
        .owner(format!("instance {}", instance.number))
        .build()?
        .set_global()?;

    let job = Job {
        store: Store::new(&database),
        schedule: options.schedule.clone(),
        first: instance.first,
        instance: instance.number,
        work: options.work,
    };
    // Only the wait is broken off. A run that has begun ends as it would anyway.
    for tick in options.schedule.from(instance.first) {
        tokio::select! {
            biased;
            () = &mut stopped => break,
            () = wait(tick, options.late) => call(tick, &job, options.without_lock).await?,
        }
    }
    LockProvider::global()?.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// Until the tick has come by a clock that is up to `late` behind.
async fn wait(tick: Tick, late: Duration) {
    tick.wait().await;
    sleep(late.mul_f64(fastrand::f64())).await;
}

async fn call(tick: Tick, job: &Job, without_lock: bool) -> anyhow::Result<()> {
    let called = if without_lock {
        job.build_report(tick).await.map(|()| Some(vec![tick]))
    } else {
        nightly_report(tick, job).await
    };
    let outcome = match called {
        Ok(Some(ran)) if ran.is_empty() => Outcome::Late,
        Ok(Some(_)) => Outcome::Ran,
        Ok(None) => Outcome::Skipped,
        // A run that fails does not end the service: the next one makes it up.
        Err(error) => {
            eprintln!("instance {}, {tick}: {error:#}", job.instance);
            Outcome::Failed
        }
    };
    let call = Call {
        tick,
        instance: job.instance,
        outcome,
    };
    job.store.add_call(&call).await
}
