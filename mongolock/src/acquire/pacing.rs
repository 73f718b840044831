use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::engine::Engine;
use crate::notifier::Subscription;
use crate::timing::{POLL_BESIDE_STREAM, WOKEN_START};

/// So many attempts may fail before a wait is thought worth a stream.
const SHORT_WAIT: u32 = 2;

/// The pauses of the one in this process who asks the server for a held lock.
pub(crate) struct Waiting<'a> {
    engine: &'a Arc<Engine>,
    name: &'a Arc<str>,
    backoff: Backoff,
    failed: u32,
    watch: Option<Subscription>,
    /// How often it was woken, and others were faster.
    woken: usize,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(engine: &'a Arc<Engine>, name: &'a Arc<str>) -> Self {
        let backoff = Backoff::new(engine.config.retry_interval.clone());
        Self {
            engine,
            name,
            backoff,
            failed: 0,
            watch: None,
            woken: 0,
        }
    }

    /// The pause after an attempt that ended with an error.
    pub(crate) fn after_error(&mut self) -> Duration {
        self.backoff.next()
    }

    /// The longest pause after an attempt that found the lock held; a wake-up may end it early.
    pub(crate) fn after_held(&mut self, remaining: Option<Duration>) -> Duration {
        self.failed += 1;
        match &self.watch {
            Some(watch) => watch.retry(),
            None if self.failed > SHORT_WAIT => self.watch = self.engine.notifier.subscribe(self.name),
            None => {}
        }
        let open = self.watch.as_ref().is_some_and(Subscription::is_open);
        // A fifth more or less, so that a fleet does not look again together.
        let pause = if open {
            POLL_BESIDE_STREAM.mul_f64(0.8 + 0.4 * fastrand::f64())
        } else {
            self.backoff.next()
        };
        until_free(pause, remaining)
    }

    /// Waits so long, or until the lock is released.
    pub(crate) async fn pause(&mut self, longest: Duration) {
        let Some(watch) = &self.watch else {
            return tokio::time::sleep(longest).await;
        };
        if tokio::time::timeout(longest, watch.woken()).await.is_ok() {
            let start = WOKEN_START[self.woken.min(WOKEN_START.len() - 1)];
            self.woken += 1;
            if !start.is_zero() {
                tokio::time::sleep(start).await;
            }
        }
    }
}

/// Nobody need wait longer than the holder's lease lasts, by the server's own count.
fn until_free(pause: Duration, remaining: Option<Duration>) -> Duration {
    let just_after = Duration::from_millis(1 + fastrand::u64(0..10));
    remaining.map_or(pause, |remaining| pause.min(remaining + just_after))
}
