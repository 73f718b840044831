use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::claim::{Attempt, Claim};
use crate::engine::Engine;
use crate::lease::Terms;
use crate::options::Options;
use crate::queue::{News, Place, Turn};
use crate::waiting::Waiting;
use crate::{LockError, LockGuard, fault, trace};

/// A request without an answer after this time is left to itself and a new one is sent.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A wait without a limit ends when MongoDB has given no usable answer for so long: an election takes less, and a wait
/// for a server that is gone would never end.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// One call that wants a lock: how it waits and how it fails.
pub(crate) struct Acquire<'a> {
    engine: &'a Arc<Engine>,
    name: &'a Arc<str>,
    options: &'a Options,
    begun: Instant,
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
    pub(crate) async fn wait(&self) -> Result<LockGuard, LockError> {
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
    pub(crate) async fn try_once(&self) -> Result<Option<LockGuard>, LockError> {
        let span = trace::acquire_span(self.name, &self.engine.owner);
        let outcome = self.once().instrument(span.clone()).await;
        self.observe(&span, &outcome);
        outcome
    }

    fn observe(&self, span: &Span, outcome: &Result<Option<LockGuard>, LockError>) {
        let token = outcome
            .as_ref()
            .map(|guard| guard.as_ref().map(LockGuard::fencing_token));
        trace::acquire_ended(span, self.begun.elapsed(), token);
    }

    async fn once(&self) -> Result<Option<LockGuard>, LockError> {
        self.ready()?;
        let place = self.engine.queues.join(self.name);
        let Some(turn) = place.try_turn() else {
            return Ok(None);
        };
        if let Some(guard) = self.taken_over(&turn).await {
            return Ok(Some(won(guard, &place, turn)));
        }
        let deadline = Some(self.begun + self.options.attempt_limit());
        match self.answer(&place, self.claim(&place).send(), deadline).await? {
            Attempt::Won(guard) => Ok(Some(won(guard, &place, turn))),
            Attempt::Held(..) => Ok(None),
            Attempt::Failed(_, error) => Err(error),
            Attempt::TooLate => Err(self.gave_up(News::NoAnswer)),
            Attempt::Unanswered => match place.news() {
                News::Held => Ok(None),
                news => Err(self.gave_up(news)),
            },
        }
    }

    /// Asks at once if nobody in this process is in the way. Whatever takes longer goes on on the heap: a wait may cost
    /// an allocation, and the future of a call stays small.
    async fn in_turn(&self, deadline: Option<Instant>) -> Result<LockGuard, LockError> {
        self.ready()?;
        let place = self.engine.queues.join(self.name);
        let Some(turn) = place.try_turn() else {
            return Box::pin(self.patiently(&place, None, None, deadline)).await;
        };
        if !turn.is_fresh() {
            return Box::pin(self.patiently(&place, Some(turn), None, deadline)).await;
        }
        match self.answer(&place, self.claim(&place).send(), deadline).await? {
            Attempt::Won(guard) => Ok(won(guard, &place, turn)),
            answer => Box::pin(self.patiently(&place, Some(turn), Some(answer), deadline)).await,
        }
    }

    async fn patiently(
        &self,
        place: &Arc<Place>,
        turn: Option<Turn>,
        mut first: Option<Attempt>,
        deadline: Option<Instant>,
    ) -> Result<LockGuard, LockError> {
        let turn = if let Some(turn) = turn {
            turn
        } else {
            let turn = self.unless_closed(deadline, place.turn()).await?;
            turn.ok_or_else(|| self.gave_up(place.news()))?
        };
        if first.is_none() {
            let begun = self.unless_closed(deadline, self.begin(&turn)).await?;
            if let Some(guard) = begun.ok_or_else(|| self.gave_up(News::Held))? {
                return Ok(won(guard, place, turn));
            }
        }
        let mut claim: Option<Claim> = None;
        let mut waiting = Waiting::new(self.engine, self.name);
        let mut silent_since = first.as_ref().map(|_| self.begun);
        loop {
            let silent = *silent_since.get_or_insert_with(Instant::now);
            let answer = if let Some(answer) = first.take() {
                answer
            } else {
                let claim = claim.take().unwrap_or_else(|| self.claim(place));
                self.answer(place, claim.send(), deadline).await?
            };
            let mut pause = Duration::ZERO;
            claim = match answer {
                Attempt::Won(guard) => return Ok(won(guard, place, turn)),
                Attempt::Held(claim, remaining) => {
                    place.tell(News::Held);
                    silent_since = None;
                    turn.streak().others_want_it();
                    pause = waiting.after_held(remaining);
                    trace::waiting(self.name, remaining, pause);
                    Some(claim)
                }
                Attempt::Failed(_, error) if !fault::is_passing(&error) => return Err(error),
                Attempt::Failed(claim, error) => {
                    pause = waiting.after_error();
                    trace::retrying(self.name, &error, pause);
                    place.tell(News::Failed(Box::new(error)));
                    Some(claim)
                }
                // The old claim withdraws itself; its id must not be used again.
                Attempt::TooLate | Attempt::Unanswered => None,
            };
            let waited = self.unless_closed(deadline, waiting.pause(pause)).await?;
            let give_up = deadline.or(silent_since.map(|_| silent + SILENCE_LIMIT));
            if waited.is_none() || give_up.is_some_and(|moment| moment <= Instant::now()) {
                return Err(self.gave_up(place.news()));
            }
        }
    }

    /// The answer to a question to the server.
    async fn answer(
        &self,
        place: &Place,
        asked: JoinHandle<Attempt>,
        deadline: Option<Instant>,
    ) -> Result<Attempt, LockError> {
        place.ask();
        let by = earlier(deadline, Instant::now() + ANSWER_LIMIT);
        match self.unless_closed(Some(by), asked).await? {
            None => Ok(Attempt::Unanswered),
            Some(Ok(_)) if self.engine.is_closed() => Err(self.shut_down()),
            // The thread was not free to take it in time.
            Some(Ok(Attempt::Won(guard))) if guard.is_lost() => Ok(Attempt::TooLate),
            Some(Ok(attempt)) => Ok(attempt),
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is going down, and the provider's tasks with it.
                Err(_) => Err(self.shut_down()),
            },
        }
    }

    /// The hold that was handed over with the turn; if there is none, others get their moment.
    async fn begin(&self, turn: &Turn) -> Option<LockGuard> {
        let taken_over = self.taken_over(turn).await;
        if taken_over.is_none() {
            let courtesy = turn.streak().courtesy();
            if let Some(moment) = courtesy {
                turn.streak().nobody_wants_it();
                tokio::time::sleep(moment).await;
            }
        }
        taken_over
    }

    /// The hold that was handed over with the turn, if it fits what this call asks for.
    async fn taken_over(&self, turn: &Turn) -> Option<LockGuard> {
        let guard = turn.take_over()?;
        if guard.lease().terms == self.terms() && !guard.is_lost() {
            trace::acquired(guard.lease());
            return Some(guard);
        }
        // What comes of it is nothing to this call: it asks for the lock anew.
        let _ = Box::pin(guard.release()).await;
        None
    }

    fn ready(&self) -> Result<(), LockError> {
        if self.engine.is_closed() {
            return Err(self.shut_down());
        }
        self.engine.keeper.ensure_running();
        Ok(())
    }

    fn claim(&self, place: &Arc<Place>) -> Claim {
        Claim::new(self.engine, self.name, self.terms(), place)
    }

    fn terms(&self) -> Terms {
        let options = self.options;
        Terms {
            expiry: options.expiry,
            renew_interval: options.renew_interval(),
            min_hold: options.min_hold,
            max_hold: options.max_hold,
        }
    }

    /// `None` at the deadline.
    async fn unless_closed<F: Future>(
        &self,
        deadline: Option<Instant>,
        future: F,
    ) -> Result<Option<F::Output>, LockError> {
        let bounded = async {
            match deadline {
                Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
                None => Some(future.await),
            }
        };
        tokio::select! {
            biased;
            output = bounded => Ok(output),
            () = self.engine.until_closed() => Err(self.shut_down()),
        }
    }

    fn gave_up(&self, news: News) -> LockError {
        match news {
            News::Held => self.timeout(),
            News::Failed(error) => *error,
            News::NoAnswer => fault::unanswered("claim", self.begun.elapsed()),
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
fn won(guard: LockGuard, place: &Place, turn: Turn) -> LockGuard {
    place.tell(News::Held);
    guard.lease().deliver(turn);
    guard
}

fn earlier(deadline: Option<Instant>, other: Instant) -> Instant {
    deadline.map_or(other, |deadline| deadline.min(other))
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
        assert!(!guard.is_lost());
        assert!(guard.remaining() > expiry / 2);
    }
}
