//! An instance: it calls the job at each tick, and tells the program what the call has done.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use apalis_core::error::WorkerError;
use apalis_core::monitor::Monitor;
use apalis_core::task::data::Data;
use apalis_core::worker::builder::WorkerBuilder;
use mongodb::Collection;
use mongolock::{FencingToken, LockContext, LockProvider};
use mongolock_examples::worker::{Signal, Worker, send, stop_with_parent};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::schedule::Tick;
use crate::{Options, nightly_report};

/// The name of the collection of the runs.
pub(crate) const RUNS: &str = "runs";

/// A tick for which the job was run. In a real job this is the report itself, or a field of it.
///
/// Here a second run for a tick is a second document, so that it is seen. With the tick as `_id` the server would reject
/// it, also that of an instance that was killed between its work and the mark.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) tick: Tick,
    pub(crate) instance: u32,
    /// `None` without the lock.
    pub(crate) token: Option<FencingToken>,
}

/// A call of the job at a tick.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) tick: Tick,
    pub(crate) instance: u32,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Ran,
    /// Another instance has done it.
    Skipped,
    Failed,
}

/// What the job needs.
#[derive(Debug)]
pub(crate) struct Instance {
    number: u32,
    runs: Collection<Run>,
    options: Options,
    /// The first tick of the schedule.
    first: Tick,
    /// The last tick for which this instance has called the job.
    called: Mutex<Option<Tick>>,
    stop: Signal,
}

/// Runs an instance until it is stopped. A service would wait for its signals instead of its parent.
pub(crate) async fn run(worker: &Worker, options: &Options) -> anyhow::Result<()> {
    let stop = stop_with_parent();
    let database = worker.database().await?;
    let name = format!("instance {}", worker.number);
    LockProvider::builder(&database)
        .owner(&name)
        .build()?
        .set_global()?;
    let instance = Arc::new(Instance {
        number: worker.number,
        runs: database.collection(RUNS),
        options: options.clone(),
        first: options.first.context("a worker needs the first tick")?,
        called: Mutex::default(),
        stop: stop.clone(),
    });

    let schedule = options.schedule.clone();
    let workers = Monitor::new()
        .register(move |_| {
            WorkerBuilder::new(name.clone())
                .backend(schedule.scheduler())
                .data(Arc::clone(&instance))
                .build(at_tick)
        })
        .should_restart(|worker, error| may_restart(worker.name(), error));
    let context = workers.context();
    tokio::spawn(async move {
        let _ = stop.wait().await;
        // The worker takes no further tick, and ends when the calls have ended that have begun.
        context.shutdown()
    });
    workers.run().await?;
    LockProvider::global()?.shutdown().await;
    Ok(())
}

/// The scheduler fails if the process is delayed until after the next tick while it computes that tick. A new worker
/// continues then. The calls of the old one are cancelled, which releases their locks, so that another instance runs the
/// job. The new worker makes up for ticks that were left out.
fn may_restart(worker: &str, error: &WorkerError) -> bool {
    eprintln!("{worker}: {error}");
    matches!(error, WorkerError::BackendError(_))
}

/// What the worker does at a tick. It does not wait for the end of an earlier call: the lock also excludes calls of one
/// process from each other.
async fn at_tick(tick: apalis_cron::Tick, instance: Data<Arc<Instance>>) {
    for due in instance.due(tick.into()) {
        instance.call(due).await;
    }
}

impl Instance {
    /// Calls the job, by a clock that is up to `late` behind, and tells the program the outcome.
    async fn call(&self, tick: Tick) {
        // Only this wait is cancelled by a stop. A run that has begun is completed.
        tokio::select! {
            biased;
            _ = self.stop.wait() => return,
            () = sleep(self.options.late.mul_f64(fastrand::f64())) => {}
        }
        let complain = |error| eprintln!("instance {}, {tick}: {error:#}", self.number);
        let outcome = match self.run(tick).await {
            Ok(Some(())) => Outcome::Ran,
            Ok(None) => Outcome::Skipped,
            // A failed run does not end the service: another instance runs the job.
            Err(error) => {
                complain(error);
                Outcome::Failed
            }
        };
        let instance = self.number;
        send(&Call {
            tick,
            instance,
            outcome,
        })
        .unwrap_or_else(complain);
    }

    async fn run(&self, tick: Tick) -> anyhow::Result<Option<()>> {
        if self.options.without_lock {
            return self.build_report(tick).await.map(Some);
        }
        nightly_report(tick, self).await
    }

    /// The ticks up to this one for which this instance has not called the job yet. The lock of a tick says whether another
    /// instance has done it, so that calling it again costs nothing, also much later.
    fn due(&self, tick: Tick) -> Vec<Tick> {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.options.schedule.due(*called, self.first, tick);
        *called = (*called).max(Some(tick));
        due
    }

    /// The work itself.
    pub(crate) async fn build_report(&self, tick: Tick) -> anyhow::Result<()> {
        sleep(self.options.work).await;
        let run = Run {
            tick,
            instance: self.number,
            token: LockContext::current().map(|lock| lock.fencing_token()),
        };
        let added = self.runs.insert_one(run).await;
        added.context("cannot write the report")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use apalis_core::backend::Backend;
    use apalis_core::worker::context::WorkerContext;
    use apalis_cron::CronScheduler;
    use chrono::Utc;

    use super::*;
    use crate::schedule::Schedule;

    /// The next tick that the scheduler has for its worker.
    async fn next(scheduler: &mut CronScheduler<cron::Schedule>) -> Result<Tick, WorkerError> {
        let worker = WorkerContext::new("test");
        let polled = poll_fn(|cx| scheduler.poll_next(cx, &worker)).await;
        let task = polled.expect("this schedule has no end");
        task.map(|task| task.args.into())
            .map_err(|error| WorkerError::BackendError(error.into()))
    }

    /// The process is delayed after a tick until the next one has passed. The job makes up for that, not the scheduler.
    #[tokio::test]
    async fn a_new_worker_continues_after_a_tick_that_has_passed() {
        let schedule: Schedule = "* * * * * *".parse().unwrap();
        let mut scheduler = schedule.scheduler();
        let done = next(&mut scheduler).await.unwrap();
        // By the wall clock, as the scheduler.
        let missed = schedule.after(Utc::now()).next().unwrap();
        while schedule.after(Utc::now()).next() == Some(missed) {
            sleep(Duration::from_millis(50)).await;
        }
        let failed = next(&mut scheduler).await.unwrap_err();
        assert!(may_restart("test", &failed));

        let tick = next(&mut schedule.scheduler()).await.unwrap();
        assert!(tick > missed, "{tick} after {missed}");
        let due = schedule.due(Some(done), done, tick);
        assert!(due.contains(&missed) && due.contains(&tick), "{due:?}");
    }

    #[test]
    fn a_worker_that_ends_for_another_reason_does_not_restart() {
        let panic = WorkerError::PanicError("a bug".to_owned());
        assert!(!may_restart("test", &panic));
    }
}
