//! Calls whose work may succeed only once: in each period, or for each tick.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::{Instant, sleep, timeout};

use super::errors;
use super::verdict::ONE_ANSWER;
use super::wish::{How, Wish};
use super::worker::Worker;
use super::{between, chance};
use crate::once::Once;
use crate::store::LeaseId;
use crate::{DistributedLock, LockContext, LockError, LockGuard};

/// The lengths of the periods of the names, and the times between two ticks.
const PERIODS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(15),
];
const TICKS: [Duration; 2] = [Duration::from_millis(700), Duration::from_secs(5)];

/// The tolerance for the ends of periods.
const BLUR: Duration = Duration::from_millis(50);

/// One work.
struct Job {
    name: Arc<str>,
    once: Once,
}

/// How a body of a job failed.
enum JobError {
    Failed,
    Lock(LockError),
}

impl From<LockError> for JobError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl Worker {
    /// Runs a job that may be done already.
    pub(super) async fn call_job(&mut self) -> Result<(), LockError> {
        let wish = Wish::new(&self.world.plan, &mut self.rng).uncapped();
        let job = self.job(&wish);
        let begun = (Instant::now(), self.world.server.memory.server_time());
        let _present = self.process.contacts.call(&job.name);
        let mut lock = self
            .provider
            .lock(&*job.name)
            .expiry(wish.expiry)
            .acquire_timeout(wish.limit);
        lock = match job.once {
            Once::PerPeriod(period) => lock.once_per(period),
            Once::Kept(_) => lock.once(),
        };
        let guard = match wish.how {
            How::Run => return self.run_job(&wish, &job, lock, begun).await,
            How::Wait => lock.acquire().await.map(Some),
            How::Try => lock.try_acquire().await,
        };
        self.check_wait(&wish, begun.0);
        match guard {
            Ok(Some(guard)) => self.hold_job(guard, &wish, &job).await,
            Ok(None) => {}
            Err(error) => return self.job_failed(&wish, &job, begun, error),
        }
        Ok(())
    }

    fn job(&mut self, wish: &Wish) -> Job {
        if self.rng.bool() {
            let once = Once::PerPeriod(PERIODS[wish.name % PERIODS.len()]);
            return Job {
                name: wish.name.to_string().into(),
                once,
            };
        }
        let line = self.rng.usize(0..TICKS.len());
        let tick = self.world.server.elapsed().as_millis() / TICKS[line].as_millis();
        Job {
            name: format!("tick-{line}-{tick}").into(),
            once: Once::Kept(Duration::ZERO),
        }
    }

    async fn run_job(
        &mut self,
        wish: &Wish,
        job: &Job,
        lock: DistributedLock,
        begun: (Instant, DateTime),
    ) -> Result<(), LockError> {
        let succeeds = chance(&mut self.rng, 800);
        let mut succeeded = None;
        let body = async |context: LockContext| {
            self.check_wait(wish, begun.0);
            let _held = self.begin(&context);
            let key = self.begin_job(&context, job);
            sleep(wish.hold).await;
            self.world.note_progress();
            if !succeeds {
                return Err(JobError::Failed);
            }
            self.note_success(&context, &key);
            succeeded = Some(key);
            Ok(())
        };
        let outcome = lock.run(body).await;
        match (outcome, succeeded) {
            (Ok(()), Some(key)) => self.check_confirmed(&key),
            (Ok(()), None) => self.check(false, || format!("{} has succeeded without a run", job.name)),
            (Err(JobError::Failed | JobError::Lock(LockError::Lost { .. })), _) => {}
            // The work has succeeded, and its mark is not confirmed.
            (Err(JobError::Lock(error)), Some(_)) => {
                self.check_says_overloaded(&error);
                let has_trouble = !self.is_untroubled_since(begun.0, std::slice::from_ref(&job.name));
                let is_expected = has_trouble && matches!(error, LockError::Mongo(_));
                self.check(is_expected, || {
                    format!("a mark of {} failed: {error:?}", job.name)
                });
            }
            (Err(JobError::Lock(error)), None) => {
                self.check_wait(wish, begun.0);
                return self.job_failed(wish, job, begun, error);
            }
        }
        Ok(())
    }

    async fn hold_job(&mut self, guard: LockGuard, wish: &Wish, job: &Job) {
        let context = guard.context();
        let _held = self.begin(&context);
        let key = self.begin_job(&context, job);
        sleep(wish.hold).await;
        self.world.note_progress();
        match self.rng.u8(0..10) {
            0 => drop(guard.release().await),
            1 => drop(guard),
            ending => {
                self.note_success(&context, &key);
                // Some callers do not wait for the reply.
                let patience = if ending < 5 {
                    between(&mut self.rng, 0, 20)
                } else {
                    Duration::from_secs(600)
                };
                if let Ok(Ok(())) = timeout(patience, guard.done()).await {
                    self.check_confirmed(&key);
                }
            }
        }
    }

    fn begin_job(&self, context: &LockContext, job: &Job) -> LeaseId {
        let lease = context.lease();
        let works = &self.world.server.works;
        match lease.once {
            Some(once) => {
                // An operator may have taken the lock away before its caller learned that it has it.
                let was_forced = self.world.server.ledger.was_forced(lease.key());
                for breach in works.begin(&self.process, lease.key(), once, job.once) {
                    self.check(was_forced, || breach);
                }
            }
            None => self.check(false, || format!("{} is not held for one work", job.name)),
        }
        lease.key().clone()
    }

    /// Notes the success of a body, unless its lease is over: then another process may run the job.
    fn note_success(&self, context: &LockContext, key: &LeaseId) {
        let number = self.process.number;
        self.world
            .server
            .note(|| format!("{number} succeeds with {}", key.name));
        if !context.lease().is_over() {
            self.world.server.works.succeeded(key);
        }
    }

    /// Checks a work whose completion was confirmed.
    fn check_confirmed(&self, key: &LeaseId) {
        let breach = self.world.server.works.confirmed(key);
        self.check(breach.is_none(), || breach.unwrap_or_default());
    }

    fn job_failed(
        &self,
        wish: &Wish,
        job: &Job,
        begun: (Instant, DateTime),
        error: LockError,
    ) -> Result<(), LockError> {
        let server = &self.world.server;
        server.note(|| format!("{} gives up: {error}", self.process.number));
        self.check_says_overloaded(&error);
        // After a late reply a process takes a period to end later than it does, and a new call for one of that period.
        let has_late_replies = !self.is_untroubled_since(begun.0, std::slice::from_ref(&job.name));
        let is_periodic = matches!(job.once, Once::PerPeriod(_));
        let may_be_over = is_periodic && has_late_replies || self.is_period_over(job, begun.1);
        let expected = match &error {
            LockError::Done { until, .. } => server.works.has_mark(&job.name, *until),
            LockError::Timeout { .. } => wish.limit.is_some() || may_be_over,
            LockError::Mongo(error) if errors::is_permanent(error) => true,
            LockError::Mongo(_) => {
                let may_end = wish.limit.is_some() || wish.how == How::Try || may_be_over;
                let is_short = wish.attempt_limit().is_some_and(|limit| limit < ONE_ANSWER);
                may_end && (is_short || !self.is_untroubled_since(begun.0, std::slice::from_ref(&job.name)))
            }
            LockError::ShutDown { .. } => true,
            _ => false,
        };
        self.check(expected, || {
            format!("{wish:?} for {} ended with {error:?}", job.name)
        });
        Err(error)
    }

    /// Whether the period in which a call began is over, or that in which its process took it to begin.
    fn is_period_over(&self, job: &Job, begun: DateTime) -> bool {
        let now = self.world.server.memory.server_time();
        let blur = i64::try_from(BLUR.as_millis()).unwrap_or(0);
        let begun = DateTime::from_millis(begun.timestamp_millis() - blur);
        let end = job.once.period_end(begun);
        end.is_some_and(|end| end.timestamp_millis() <= now.timestamp_millis() + blur)
    }
}
