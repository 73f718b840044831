use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::call::Call;
use crate::LockError;
use crate::engine::Engine;
use crate::lease::Turn;
use crate::moment::Moment;
use crate::notifier::{Counted, Pauses, Subscription, left_to_others};
use crate::store::driver_error;

/// The pauses between the requests of the caller that has the turn of a name. They last no longer than the turn.
pub(crate) struct Pacing<'a> {
    call: &'a Call<'a>,
    turn: &'a Turn,
    pauses: Pauses,
    subscription: Option<Subscription<'a>>,
    /// Given after the first "held" reply: this waiter is one of those that the notifier counts.
    counted: Option<Counted>,
    /// Whether the reply before this pause found the lock held: then the subscription decides when to send the next
    /// request.
    is_resting: bool,
    /// The number of waiters that ask at once when the lock is released: those of a semaphore are as many as its permits.
    width: usize,
}

impl<'a> Pacing<'a> {
    pub(crate) fn new(call: &'a Call<'a>, turn: &'a Turn) -> Self {
        Self {
            call,
            turn,
            pauses: Pauses::new(call.engine.backoff(), 0),
            subscription: None,
            counted: None,
            is_resting: false,
            width: 1,
        }
    }

    /// The same for a waiter for any of so many permits.
    pub(crate) fn of_semaphore(self, permits: u32) -> Self {
        let width = usize::try_from(permits).unwrap_or(usize::MAX);
        Self { width, ..self }
    }

    /// The same for a call that has had replies of this number in an earlier turn, which found the lock held.
    pub(crate) fn after_replies(self, held_replies: u32) -> Self {
        let pauses = Pauses::new(self.call.engine.backoff(), held_replies);
        Self { pauses, ..self }
    }

    /// The number of replies that found the lock held.
    pub(crate) fn held_replies(&self) -> u32 {
        self.pauses.held_replies()
    }

    /// The pause after a request that ended with an error, or that was of no use.
    pub(crate) fn after_error(&mut self, error: Option<&LockError>) -> Duration {
        self.is_resting = false;
        if error.is_some_and(driver_error::is_overload) {
            // All calls of the provider have this pause in common, because they make the load together.
            return self.call.engine.store.admissions().pause_after_rejection();
        }
        self.pauses.after_error(Moment::present())
    }

    /// The longest pause after a reply to a request of this claim that found the lock held; a wake-up may end it early, and
    /// a look at the lock may make it longer.
    pub(crate) fn after_held(&mut self, lock_id: &Arc<str>, remaining: Option<Duration>) -> Duration {
        let name = self.turn.entry().name();
        let Engine { lines, notifier, .. } = &**self.call.engine;
        self.counted.get_or_insert_with(|| notifier.count());
        let is_in_line = lines.standing(name).is_some();
        let registers = self.pauses.held(is_in_line, notifier.has_many());
        if registers.stream {
            self.subscribe();
        }
        if registers.line {
            self.enter();
        }
        self.is_resting = self.subscription.is_some();
        if let Some(subscription) = &self.subscription {
            subscription.set_claim(lock_id, self.ends_with_mark());
            return subscription.rest(remaining);
        }
        self.pauses.after_held(Moment::present(), remaining)
    }

    /// Waits before the first request while this provider leaves the lock to others: after its own release, or because they
    /// stand before it in line. A call with a deadline keeps some of its time. Cancel safe.
    pub(crate) async fn wait_while_yielding(&mut self) {
        let (engine, entry) = (self.call.engine, self.turn.entry());
        if engine.lines.standing(entry.name()).is_none() {
            return;
        }
        // The provider keeps its place as long as this caller waits.
        self.enter();
        let Some(until) = yields_until(engine, entry.name()) else {
            return;
        };
        entry.front().yield_lock();
        let (deadline, ends_with_mark) = (self.call.deadline, self.ends_with_mark());
        let subscription = self.subscribe();
        subscription.rest_while_yielding(until, ends_with_mark);
        match deadline {
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                subscription.woken_within(left_to_others(left)).await;
            }
            None => subscription.woken().await,
        }
    }

    /// Whether a mark ends a rest as a release does: the next request of the call finds it then.
    fn ends_with_mark(&self) -> bool {
        self.call.options.once.is_some()
    }

    /// Enters the line of the name, or keeps the place there.
    fn enter(&mut self) {
        let Engine { lines, notifier, .. } = &**self.call.engine;
        let (entry, has_stream) = (self.turn.entry(), notifier.expects_stream());
        lines.enter(
            entry.name(),
            entry.user(),
            self.width,
            has_stream,
            Some(self.call.begun),
        );
    }

    fn subscribe(&mut self) -> &Subscription<'a> {
        let (notifier, turn, pauses) = (&self.call.engine.notifier, self.turn, &self.pauses);
        self.subscription
            .get_or_insert_with(|| notifier.subscribe(turn, pauses.backoff()))
    }

    /// Waits for this time, or until it is time to send a request. Cancel safe.
    pub(crate) async fn pause(&mut self, longest: Duration) {
        // Each reply decides anew: after one that asks for another request at once nothing else would end the rest.
        let is_resting = std::mem::take(&mut self.is_resting);
        // It does not matter whether a release or the end of a pause has ended the wait.
        match &self.subscription {
            Some(subscription) if is_resting => subscription.woken().await,
            Some(subscription) => subscription.woken_within(longest).await,
            None => tokio::time::sleep(longest).await,
        }
    }
}

/// Until when the next caller of this name leaves a lock that may be free to others; `None` if it does not.
pub(crate) fn yields_until(engine: &Engine, name: &str) -> Option<Instant> {
    engine.lines.standing(name)?.yields_until
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::LockProvider;
    use crate::name::RenderedName;
    use crate::notifier::{OWN_REQUESTS, REPLIES_BEFORE_WAIT};
    use crate::options::OnBusy;
    use crate::queue::FrontStatus;

    /// A claim of this process that had the lock was just released: no event and no time would end another rest soon.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_due_at_once_does_not_wait_for_the_subscription() {
        let provider = LockProvider::in_memory();
        let (engine, name) = (provider.engine(), Arc::from("n"));
        let entry = engine.queues.join(&name);
        let turn = entry.try_turn().unwrap();
        let (rendered, options) = (RenderedName::new("n"), Arc::default());
        let call = Call::new(engine, &rendered, &options, false, OnBusy::Wait);
        let mut pacing = Pacing::new(&call, &turn);
        for _ in 0..=REPLIES_BEFORE_WAIT {
            let longest = pacing.after_held(&"own".into(), None);
            pacing.pause(longest).await;
        }
        assert!(pacing.subscription.is_some());
        let begun = Instant::now();
        pacing.pause(Duration::ZERO).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    /// Another provider stands before this one in line: a call whose time ends here has waited for it, and for no reply.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_leaves_the_lock_to_others_finds_it_held() {
        let holder = LockProvider::in_memory();
        let _held = holder.lock("n").acquire().await.unwrap();
        let [first, second] = [(); 2].map(|()| holder.to_builder().build().unwrap());
        let wait = |provider: &LockProvider| {
            let lock = provider.lock("n").acquire_timeout(None);
            tokio::spawn(async move { lock.acquire().await })
        };
        let long = Duration::from_secs(5);
        let _before = wait(&first);
        tokio::time::sleep(long).await;
        let ended = wait(&second);
        tokio::time::sleep(long).await;
        ended.abort();
        assert!(ended.await.is_err());
        let (engine, name) = (second.engine(), Arc::from("n"));
        let entry = engine.queues.join(&name);
        assert!(yields_until(engine, &name).is_some());
        assert!(matches!(entry.front().status(), FrontStatus::NoReply));
        let turn = entry.try_turn().unwrap();
        let (rendered, options) = (RenderedName::new("n"), Arc::default());
        let mut call = Call::new(engine, &rendered, &options, false, OnBusy::Wait);
        call.deadline = Some(call.begun + OWN_REQUESTS);
        let mut pacing = Pacing::new(&call, &turn);
        pacing.wait_while_yielding().await;
        assert!(matches!(entry.front().status(), FrontStatus::Held(_)));
    }
}
