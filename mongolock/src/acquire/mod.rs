mod attempt;
mod pacing;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::acquire::attempt::{Attempt, AttemptOutcome};
use crate::acquire::pacing::Waiting;
use crate::engine::Engine;
use crate::lease::{Entry, Hold, LeaseOptions, Turn};
use crate::options::Options;
use crate::queue::FrontStatus;
use crate::store::LeaseId;
use crate::store::driver_error;
use crate::timing::{ACQUIRE_OVERDUE, RELEASE_LIMIT};
use crate::{LockError, task, trace};

/// One call that wants a lock: how it waits and how it fails.
pub(crate) struct Acquire<'a> {
    engine: &'a Arc<Engine>,
    name: &'a Arc<str>,
    options: &'a Options,
    begun: Instant,
}

/// What to do after a reply.
enum Step {
    Acquired(Hold),
    /// Wait for the holder, whose lease lasts so long.
    Held(Option<Duration>),
    /// Send another request after this pause.
    AskAgain(Duration),
}

impl<'a> Acquire<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, name: &'a Arc<str>, options: &'a Options) -> Self {
        Self {
            engine,
            name,
            options,
            begun: Instant::now(),
        }
    }

    /// Waits for the lock until the acquire timeout.
    pub(crate) async fn wait(&self) -> Result<Hold, LockError> {
        let span = trace::acquire_span(self.name, &self.engine.owner);
        let outcome = match self.options.acquire_timeout {
            // No time to wait still is time to ask.
            Some(Duration::ZERO) => Box::pin(self.once()).instrument(span.clone()).await,
            limit => {
                let deadline = limit.map(|limit| self.begun + limit);
                self.in_turn(deadline).instrument(span.clone()).await.map(Some)
            }
        };
        self.observe(&span, &outcome);
        outcome?.ok_or_else(|| self.timeout())
    }

    /// Asks once, and not at all if this process itself holds or awaits the lock.
    pub(crate) async fn try_once(&self) -> Result<Option<Hold>, LockError> {
        let span = trace::acquire_span(self.name, &self.engine.owner);
        let outcome = self.once().instrument(span.clone()).await;
        self.observe(&span, &outcome);
        outcome
    }

    fn observe(&self, span: &Span, outcome: &Result<Option<Hold>, LockError>) {
        let token = outcome
            .as_ref()
            .map(|guard| guard.as_ref().map(|guard| guard.lease().token));
        trace::acquire_ended(span, self.begun.elapsed(), token);
    }

    async fn once(&self) -> Result<Option<Hold>, LockError> {
        self.ready()?;
        let entry = self.engine.queues.join(self.name);
        let turn = match entry.try_turn() {
            Some(turn) => turn,
            None => match Box::pin(self.turn_unless_busy(&entry)).await? {
                Some(turn) => turn,
                None => return Ok(None),
            },
        };
        let deadline = Some(self.begun + self.options.attempt_limit());
        let asked = self.bounded(
            &entry,
            deadline,
            Box::pin(self.one_answer(&entry, &turn, deadline)),
        );
        match asked.await? {
            Some(answered) => Ok(answered?.map(|guard| won(guard, &entry, turn))),
            None => match entry.front().status() {
                FrontStatus::Held => Ok(None),
                status => Err(self.gave_up(status)),
            },
        }
    }

    /// Asks until the server has said whether the lock is free.
    async fn one_answer(
        &self,
        entry: &Arc<Entry>,
        turn: &Turn,
        deadline: Option<Instant>,
    ) -> Result<Option<Hold>, LockError> {
        if let Some(guard) = self.taken_over(entry, turn).await {
            return Ok(Some(guard));
        }
        let mut waiting = Waiting::new(self.engine, self.name);
        let mut claim = self.claim(entry);
        loop {
            let attempt = claim.ask(deadline).await;
            match self.step(entry, &mut claim, &mut waiting, attempt).await? {
                Step::Acquired(guard) => return Ok(Some(guard)),
                Step::Held(_) => return Ok(None),
                Step::AskAgain(pause) => tokio::time::sleep(pause).await,
            }
        }
    }

    /// Asks at once if no caller in this process is in the way. Whatever takes longer goes on on the heap: a wait may
    /// cost an allocation, and the future of a call stays small.
    async fn in_turn(&self, deadline: Option<Instant>) -> Result<Hold, LockError> {
        self.ready()?;
        let entry = self.engine.queues.join(self.name);
        let (turn, first) = match entry.try_turn() {
            Some(turn) if turn.is_fresh() => {
                let mut claim = self.claim(&entry);
                match self.first_reply(&mut claim, deadline).await? {
                    Some(AttemptOutcome::Won(guard)) if !guard.lease().is_over() => {
                        return Ok(won(guard, &entry, turn));
                    }
                    attempt => (Some(turn), Some((claim, attempt))),
                }
            }
            turn => (turn, None),
        };
        Box::pin(self.until_deadline(entry, turn, first, deadline)).await
    }

    /// The reply to the first request; `None` if that cannot be sent at once or the reply is overdue.
    async fn first_reply(
        &self,
        claim: &mut Attempt,
        deadline: Option<Instant>,
    ) -> Result<Option<AttemptOutcome>, LockError> {
        let Some(overdue) = claim.try_send(deadline) else {
            return Ok(None);
        };
        tokio::select! {
            biased;
            reply = tokio::time::timeout_at(overdue, claim.reply()) => Ok(reply.ok()),
            () = self.engine.until_closed() => Err(self.shut_down()),
        }
    }

    async fn until_deadline(
        &self,
        entry: Arc<Entry>,
        turn: Option<Turn>,
        first: Option<(Attempt, Option<AttemptOutcome>)>,
        deadline: Option<Instant>,
    ) -> Result<Hold, LockError> {
        let waiting = self.patiently(&entry, turn, first, deadline);
        match self.bounded(&entry, deadline, waiting).await? {
            Some(ended) => ended,
            None => Err(self.gave_up(entry.front().status())),
        }
    }

    async fn patiently(
        &self,
        entry: &Arc<Entry>,
        turn: Option<Turn>,
        first: Option<(Attempt, Option<AttemptOutcome>)>,
        deadline: Option<Instant>,
    ) -> Result<Hold, LockError> {
        let turn = match turn {
            Some(turn) => turn,
            None => entry.turn().await,
        };
        if first.is_none()
            && let Some(guard) = self.begin(entry, &turn).await
        {
            return Ok(won(guard, entry, turn));
        }
        let mut waiting = Waiting::new(self.engine, self.name);
        let (mut claim, mut attempt) = first.unwrap_or_else(|| (self.claim(entry), None));
        loop {
            let answered = match attempt.take() {
                Some(attempt) => attempt,
                None => claim.ask(deadline).await,
            };
            let pause = match self.step(entry, &mut claim, &mut waiting, answered).await? {
                Step::Acquired(guard) => return Ok(won(guard, entry, turn)),
                Step::Held(remaining) => {
                    turn.budget().shrink();
                    let pause = waiting.after_held(remaining);
                    trace::waiting(self.name, remaining, pause);
                    pause
                }
                Step::AskAgain(pause) => pause,
            };
            // A reply that is overdue may come now, and may be a win.
            tokio::select! {
                biased;
                late = claim.reply() => attempt = Some(late),
                () = waiting.pause(pause) => {}
            }
        }
    }

    /// What a reply means for the wait.
    async fn step(
        &self,
        entry: &Arc<Entry>,
        claim: &mut Attempt,
        waiting: &mut Waiting<'_>,
        attempt: AttemptOutcome,
    ) -> Result<Step, LockError> {
        let error = match attempt {
            AttemptOutcome::Stopped => return Err(self.shut_down()),
            _ if self.engine.is_closed() => return Err(self.shut_down()),
            // The caller's thread was not free to take it in time.
            AttemptOutcome::Won(guard) if !guard.lease().is_over() => return Ok(Step::Acquired(guard)),
            // The old claim releases itself; its id must not be used again.
            AttemptOutcome::Won(_) | AttemptOutcome::TooLate => {
                *claim = self.claim(entry);
                return Ok(Step::AskAgain(Duration::ZERO));
            }
            AttemptOutcome::Held { holder, remaining } => match self.release_given_up(holder).await {
                Ok(true) => return Ok(Step::AskAgain(Duration::ZERO)),
                Ok(false) => {
                    entry.front().heard_held();
                    return Ok(Step::Held(remaining));
                }
                Err(error) => error,
            },
            AttemptOutcome::OutOfTime(error)
                if matches!(
                    entry.front().status(),
                    FrontStatus::Failed(_) | FrontStatus::NoReply
                ) =>
            {
                error
            }
            // Held when it was heard of last, and too little time was left to ask again.
            AttemptOutcome::OutOfTime(_) => return Ok(Step::AskAgain(waiting.after_error())),
            AttemptOutcome::Failed(error) => error,
        };
        if !driver_error::is_transient(&error) {
            return Err(error);
        }
        let pause = waiting.after_error();
        trace::retrying(self.name, &error, pause);
        entry.front().heard_failure(error);
        Ok(Step::AskAgain(pause))
    }

    /// Releases the claim that has the lock if this process has given it up: a lost reply or a cancelled call must not
    /// make the lock busy. `false` if it is another's.
    async fn release_given_up(&self, holder: Option<Arc<str>>) -> Result<bool, LockError> {
        let Some(lock_id) = holder else {
            return Ok(false);
        };
        let Some(min_hold) = self.engine.renewer.given_up.find(&lock_id) else {
            return Ok(false);
        };
        let (store, name) = (Arc::clone(&self.engine.store), Arc::clone(self.name));
        let key = LeaseId { name, lock_id };
        let silent = Arc::clone(&self.engine.queues.silent);
        let release = async move { silent.count(store.release(&key, min_hold, RELEASE_LIMIT)).await };
        // Without a reply the next request tells whether the claim still stands.
        match tokio::time::timeout(ACQUIRE_OVERDUE, task::to_end(release)).await {
            Ok(released) => released.map(|_| true),
            Err(_) => Ok(true),
        }
    }

    /// The hold that was handed over with the turn; if there is none, others get their moment.
    async fn begin(&self, entry: &Entry, turn: &Turn) -> Option<Hold> {
        let taken_over = self.taken_over(entry, turn).await;
        if taken_over.is_none() {
            let yield_to_others = turn.budget().yield_to_others();
            if let Some(moment) = yield_to_others {
                turn.budget().grow();
                tokio::time::sleep(moment).await;
            }
        }
        taken_over
    }

    /// The hold that was handed over with the turn, if it fits what this call asks for.
    async fn taken_over(&self, entry: &Entry, turn: &Turn) -> Option<Hold> {
        let mut guard = turn.take_over()?;
        if guard.lease().options == self.lease_options() && !guard.lease().is_over() {
            trace::acquired(&guard.lease().fields());
            return Some(guard);
        }
        // Its outcome does not matter to this call, which asks for the lock anew; a release without a reply does.
        entry.front().asked();
        let _ = Box::pin(guard.release()).await;
        None
    }

    fn ready(&self) -> Result<(), LockError> {
        if self.engine.is_closed() {
            return Err(self.shut_down());
        }
        self.engine.ensure_running();
        Ok(())
    }

    fn claim(&self, entry: &Arc<Entry>) -> Attempt {
        Attempt::new(self.engine, self.name, self.lease_options(), entry)
    }

    fn lease_options(&self) -> LeaseOptions {
        let options = self.options;
        LeaseOptions {
            expiry: options.expiry,
            renew_interval: options.renew_interval(),
            min_hold: options.min_hold,
            max_hold: options.max_hold,
        }
    }

    /// One step of the call; `None` at its deadline or, without one, when the server has been silent for too long.
    async fn bounded<F: Future>(
        &self,
        entry: &Entry,
        deadline: Option<Instant>,
        step: F,
    ) -> Result<Option<F::Output>, LockError> {
        let time_is_up = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => entry.front().silence(self.begun).await,
            }
        };
        tokio::select! {
            biased;
            output = step => Ok(Some(output)),
            () = self.engine.until_closed() => Err(self.shut_down()),
            () = time_is_up => Ok(None),
        }
    }

    /// The turn for a try whose name another caller in this process holds or asks for; `None` if it is busy. That is what
    /// it is, unless the first thing that is heard from the server is that it does not work, or the other leaves before.
    async fn turn_unless_busy(&self, entry: &Arc<Entry>) -> Result<Option<Turn>, LockError> {
        let by = self.begun + self.options.attempt_limit();
        let status = tokio::select! {
            biased;
            status = entry.front().first_news() => status,
            turn = entry.turn() => return Ok(Some(turn)),
            () = tokio::time::sleep_until(by) => entry.front().status(),
        };
        match status {
            FrontStatus::Failed(error) => Err(*error),
            FrontStatus::NoReply if entry.front().is_silent() => Err(self.gave_up(FrontStatus::NoReply)),
            FrontStatus::Held | FrontStatus::NoReply => Ok(None),
        }
    }

    fn gave_up(&self, status: FrontStatus) -> LockError {
        match status {
            FrontStatus::Held => self.timeout(),
            FrontStatus::Failed(error) => *error,
            FrontStatus::NoReply => LockError::no_reply("claim", self.begun.elapsed()),
        }
    }

    fn timeout(&self) -> LockError {
        LockError::Timeout {
            name: self.name.to_string(),
            waited: self.begun.elapsed(),
        }
    }

    fn shut_down(&self) -> LockError {
        LockError::ShutDown {
            name: self.name.to_string(),
        }
    }
}

/// From now on the turn goes with the lease; those behind wait for its holder.
fn won(guard: Hold, entry: &Entry, turn: Turn) -> Hold {
    entry.front().heard_held();
    guard.lease().deliver(turn);
    guard
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockProvider;
    use crate::task::is_pending;

    /// The lock is won at once, and the caller's thread is busy until its lease is over.
    #[tokio::test(start_paused = true)]
    async fn a_hold_that_is_over_is_not_handed_out() {
        let expiry = Duration::from_secs(1);
        let lock = LockProvider::in_memory().lock("n").expiry(expiry);
        let mut acquiring = Box::pin(lock.max_hold(Duration::ZERO).acquire());
        assert!(is_pending(acquiring.as_mut()).await);
        tokio::time::sleep(expiry * 2).await;
        let guard = acquiring.await.unwrap();
        assert!(!guard.lease().is_over());
        assert!(guard.remaining() > expiry / 2);
    }
}
