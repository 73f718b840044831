//! One instance: a worker that calls the job at each tick, and reports what came of it.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apalis_core::error::WorkerError;
use apalis_core::monitor::Monitor;
use apalis_core::task::data::Data;
use apalis_core::worker::builder::WorkerBuilder;
use mongolock::{LockContext, LockProvider};
use mongolock_examples::processes;
use tokio::sync::watch;
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

/// Calls the job as the command line says.
#[derive(Debug)]
struct Caller {
    job: Job,
    late: Duration,
    without_lock: bool,
    /// Whether the instance is to stop.
    stopping: watch::Receiver<bool>,
}

/// Runs the instance until it is told to stop.
pub(crate) async fn run(instance: &options::Instance, options: &Options) -> anyhow::Result<ExitCode> {
    // A service would listen to its signals here.
    let stopped = processes::stop_with_parent();
    let database = processes::database(&instance.database).await?;
    let name = format!("instance {}", instance.number);
    LockProvider::builder(&database)
        .owner(&name)
        .build()?
        .set_global()?;

    let (stop, stopping) = watch::channel(false);
    let job = Job {
        store: Store::new(&database),
        schedule: options.schedule.clone(),
        first: instance.first,
        instance: instance.number,
        work: options.work,
    };
    let caller = Arc::new(Caller {
        job,
        late: options.late,
        without_lock: options.without_lock,
        stopping,
    });
    let schedule = options.schedule.clone();
    let workers = Monitor::new()
        .register(move |_| {
            WorkerBuilder::new(name.clone())
                .backend(schedule.scheduler())
                .data(Arc::clone(&caller))
                .build(at_tick)
        })
        .should_restart(|worker, error| may_start_again(worker.name(), error));
    let context = workers.context();
    tokio::spawn(async move {
        stopped.await;
        stop.send_replace(true);
        context.shutdown()
    });
    // The worker takes no further tick then, and ends when the calls that have begun have ended.
    workers.run().await?;
    LockProvider::global()?.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// The scheduler gives up if the process is held up just when it looks for the next tick, until that has passed. A new
/// worker goes on then. The calls of the old one are broken off, which releases the lock, and what they have not done
/// is made up.
fn may_start_again(worker: &str, error: &WorkerError) -> bool {
    eprintln!("{worker}: {error}");
    matches!(error, WorkerError::BackendError(_))
}

/// What the worker does at a tick. It does not wait for an earlier call to end: the lock also keeps the calls of one
/// process apart.
async fn at_tick(tick: apalis_cron::Tick, caller: Data<Arc<Caller>>) {
    caller.call(tick.into()).await;
}

impl Caller {
    /// Calls the job by a clock that is up to `late` behind, and says what came of it.
    async fn call(&self, tick: Tick) {
        if self.is_stopped_before_the_call().await {
            return;
        }
        let outcome = match self.run(tick).await {
            Ok(Some(ran)) if ran.is_empty() => Outcome::Late,
            Ok(Some(_)) => Outcome::Ran,
            Ok(None) => Outcome::Skipped,
            // A run that fails does not end the service: the next one makes it up.
            Err(error) => {
                self.complain(tick, &error);
                Outcome::Failed
            }
        };
        let call = Call {
            tick,
            instance: self.job.instance,
            outcome,
        };
        if let Err(error) = self.job.store.add_call(&call).await {
            self.complain(tick, &error);
        }
    }

    /// Only the wait is broken off. A run that has begun ends as it would anyway.
    async fn is_stopped_before_the_call(&self) -> bool {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => true,
            () = sleep(self.late.mul_f64(fastrand::f64())) => false,
        }
    }

    async fn run(&self, tick: Tick) -> anyhow::Result<Option<Vec<Tick>>> {
        if self.without_lock {
            self.job.build_report(tick).await?;
            return Ok(Some(vec![tick]));
        }
        nightly_report(tick, &self.job).await
    }

    fn complain(&self, tick: Tick, error: &anyhow::Error) {
        eprintln!("instance {}, {tick}: {error:#}", self.job.instance);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use apalis_core::backend::Backend;
    use apalis_core::worker::context::WorkerContext;
    use apalis_cron::CronScheduler;
    use chrono::Utc;

    use super::*;

    /// What the scheduler has for its worker next.
    async fn next(scheduler: &mut CronScheduler<cron::Schedule>) -> Result<Tick, WorkerError> {
        let worker = WorkerContext::new("test");
        let polled = poll_fn(|cx| scheduler.poll_next(cx, &worker)).await;
        let task = polled.expect("this schedule has no end");
        task.map(|task| task.args.into())
            .map_err(|error| WorkerError::BackendError(error.into()))
    }

    /// The process is held up after a tick until the next one has passed. The job makes that up, not the scheduler.
    #[tokio::test]
    async fn a_new_worker_goes_on_after_a_tick_that_has_passed() {
        let schedule: Schedule = "* * * * * *".parse().unwrap();
        let mut scheduler = schedule.scheduler();
        let done = next(&mut scheduler).await.unwrap();
        // By the wall clock, as the scheduler.
        let missed = schedule.after(Utc::now()).next().unwrap();
        while schedule.after(Utc::now()).next() == Some(missed) {
            sleep(Duration::from_millis(50)).await;
        }
        let gave_up = next(&mut scheduler).await.unwrap_err();
        assert!(may_start_again("test", &gave_up));

        let tick = next(&mut schedule.scheduler()).await.unwrap();
        assert!(tick > missed, "{tick} after {missed}");
        let due = schedule.due(Some(done), done, tick);
        assert!(due.contains(&missed) && due.contains(&tick), "{due:?}");
    }

    #[test]
    fn a_worker_that_ends_for_another_reason_does_not_start_again() {
        assert!(!may_start_again(
            "test",
            &WorkerError::PanicError("a bug".to_owned())
        ));
    }
}
