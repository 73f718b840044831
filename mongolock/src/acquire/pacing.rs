use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::engine::Engine;
use crate::notifier::Subscription;
use crate::timing::POLL_BESIDE_STREAM;

/// The number of "held" replies after which a waiter opens the change stream: shorter waits are not worth it.
const REPLIES_BEFORE_STREAM: u32 = 2;

/// The pauses between the requests of the waiter at the front of a queue.
pub(crate) struct Pacing<'a> {
    engine: &'a Arc<Engine>,
    name: &'a Arc<str>,
    backoff: Backoff,
    /// The number of replies that said that the lock is held.
    held_replies: u32,
    subscription: Option<Subscription>,
}

impl<'a> Pacing<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, name: &'a Arc<str>) -> Self {
        let backoff = Backoff::new(engine.config.retry_interval.clone());
        Self {
            engine,
            name,
            backoff,
            held_replies: 0,
            subscription: None,
        }
    }

    /// The pause after a request that ended with an error.
    pub(crate) fn after_error(&mut self) -> Duration {
        self.backoff.next()
    }

    /// The longest pause after a reply that found the lock held; a wake-up may end it early.
    pub(crate) fn after_held(&mut self, remaining: Option<Duration>) -> Duration {
        self.held_replies += 1;
        match &self.subscription {
            Some(subscription) => subscription.retry(),
            None if self.held_replies > REPLIES_BEFORE_STREAM => {
                self.subscription = self.engine.notifier.subscribe(self.name);
            }
            None => {}
        }
        let is_open = self.subscription.as_ref().is_some_and(Subscription::is_open);
        // The pause varies by a fifth, so that many processes do not send their requests at the same time.
        let pause = if is_open {
            POLL_BESIDE_STREAM.mul_f64(0.8 + 0.4 * fastrand::f64())
        } else {
            self.backoff.next()
        };
        until_free(pause, remaining)
    }

    /// Waits for this time, or until the lock is released.
    pub(crate) async fn pause(&mut self, longest: Duration) {
        let Some(subscription) = &self.subscription else {
            return tokio::time::sleep(longest).await;
        };
        // A wake-up and the end of the pause mean the same: it is time for a request.
        let _ = tokio::time::timeout(longest, subscription.woken()).await;
    }
}

/// Shortens a pause to the remaining time of the holder's lease by the server's clock: a longer one would be useless.
fn until_free(pause: Duration, remaining: Option<Duration>) -> Duration {
    let just_after = Duration::from_millis(1 + fastrand::u64(0..10));
    remaining.map_or(pause, |remaining| pause.min(remaining + just_after))
}
