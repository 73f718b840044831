//! Whether the stream costs more than it brings.
//!
//! The server pays for each release and each stream, and no stream knows of the others. Two things show a process that it
//! is too much: its own stream reports many releases that wake no waiter, or the server replies late. Then the process
//! polls for a while, as it does where there are no streams, and opens the stream again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::timing::{
    STREAM_COST_WINDOW, STREAM_LATE, STREAM_POLL_MAX, STREAM_POLL_MIN, STREAM_PROVED, STREAM_USELESS_EVENTS,
};

/// The number of replies without an event whose lateness counts: one a second, so a short delay means nothing.
const REPLIES: usize = 20;

/// What one reply of the stream has brought.
#[derive(Debug, Clone, Copy)]
pub(super) enum Brought {
    /// It has told a waiter something.
    Use,
    /// It has reported a release that no waiter here waits for.
    Useless,
    /// It has brought no event, and came this much later than the server was asked to send it.
    Nothing { late: Duration },
}

/// What the stream of a provider has brought of late.
pub(super) struct StreamCost {
    /// The time at which the stream was opened.
    opened: Instant,
    /// The time from which useless events count.
    since: Instant,
    useless: u32,
    /// The lateness of the last replies without an event.
    late: VecDeque<Duration>,
    /// The time for which the process polls when the stream costs too much again.
    pause: Duration,
}

impl StreamCost {
    pub(super) fn new() -> Self {
        Self {
            opened: Instant::now(),
            since: Instant::now(),
            useless: 0,
            late: VecDeque::new(),
            pause: STREAM_POLL_MIN,
        }
    }

    /// Notes that a stream was opened.
    pub(super) fn opened(&mut self) {
        *self = Self {
            pause: self.pause,
            ..Self::new()
        };
    }

    /// Decides between the stream and polling: after a reply of the stream it returns how long the process is to poll
    /// before it opens a stream again, or `None` if the stream is worth its cost. Each time in a row takes longer.
    pub(super) fn judge(&mut self, brought: Brought, awaited: usize) -> Option<Duration> {
        match brought {
            Brought::Use => {}
            Brought::Useless => self.useless += 1,
            Brought::Nothing { late } => {
                self.late.push_back(late);
                if self.late.len() > REPLIES {
                    self.late.pop_front();
                }
            }
        }
        if !(self.has_too_many_events(awaited) || self.is_late()) {
            return None;
        }
        if self.opened.elapsed() >= STREAM_PROVED {
            self.pause = STREAM_POLL_MIN;
        }
        // The pause varies by a fifth, so that many processes do not open their streams at the same time.
        let pause = self.pause.mul_f64(0.8 + 0.4 * fastrand::f64());
        self.pause = (self.pause * 2).min(STREAM_POLL_MAX);
        Some(pause)
    }

    /// Whether more useless events arrived in the last window than polling would look at locks, which costs less for each
    /// lock than an event.
    fn has_too_many_events(&mut self, awaited: usize) -> bool {
        let lasted = self.since.elapsed();
        if lasted < STREAM_COST_WINDOW {
            return false;
        }
        let per_second = f64::from(self.useless) / lasted.as_secs_f64();
        (self.since, self.useless) = (Instant::now(), 0);
        let awaited = f64::from(u32::try_from(awaited).unwrap_or(u32::MAX));
        per_second > f64::from(STREAM_USELESS_EVENTS).max(awaited)
    }

    /// Whether more than half of the last replies came late.
    fn is_late(&self) -> bool {
        let late = self.late.iter().filter(|late| **late >= STREAM_LATE);
        late.count() > REPLIES / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: Brought = Brought::Nothing {
        late: Duration::from_millis(5),
    };
    const LATE: Brought = Brought::Nothing { late: STREAM_LATE };

    /// Judges so many replies of each second for this time, and returns the pause if there is one.
    async fn judge_for(
        cost: &mut StreamCost,
        time: Duration,
        per_second: u32,
        brought: Brought,
        awaited: usize,
    ) -> Option<Duration> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for _ in 0..per_second {
                if let Some(pause) = cost.judge(brought, awaited) {
                    return Some(pause);
                }
            }
        }
        None
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn many_useless_events_end_the_stream() {
        let (few, many) = (STREAM_USELESS_EVENTS / 2, STREAM_USELESS_EVENTS * 2);
        let mut cost = StreamCost::new();
        assert!(
            judge_for(&mut cost, MINUTE, few, Brought::Useless, 70)
                .await
                .is_none()
        );
        assert!(
            judge_for(&mut cost, MINUTE, many, Brought::Use, 70)
                .await
                .is_none()
        );
        // Polling for so many locks would cost more.
        let all = many as usize * 2;
        assert!(
            judge_for(&mut cost, MINUTE, many, Brought::Useless, all)
                .await
                .is_none()
        );
        cost.opened();
        let pause = judge_for(&mut cost, MINUTE, many, Brought::Useless, 70).await;
        assert!(
            pause.is_some_and(|pause| pause >= STREAM_POLL_MIN.mul_f64(0.79)),
            "{pause:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn late_replies_end_the_stream_unless_they_are_few() {
        let mut cost = StreamCost::new();
        assert!(judge_for(&mut cost, MINUTE, 1, PROMPT, 1).await.is_none());
        let short = Duration::from_secs(REPLIES as u64 / 2);
        assert!(judge_for(&mut cost, short, 1, LATE, 1).await.is_none());
        assert!(judge_for(&mut cost, MINUTE, 1, PROMPT, 1).await.is_none());
        assert!(judge_for(&mut cost, MINUTE, 1, LATE, 1).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn polling_lasts_longer_each_time_in_a_row() {
        let mut cost = StreamCost::new();
        let mut last = Duration::ZERO;
        for _ in 0..3 {
            cost.opened();
            let pause = judge_for(&mut cost, MINUTE, 1, LATE, 1).await.unwrap();
            assert!(pause > last, "{pause:?} after {last:?}");
            last = pause;
        }
        for _ in 0..10 {
            cost.opened();
            last = judge_for(&mut cost, MINUTE, 1, LATE, 1).await.unwrap();
        }
        assert!(last <= STREAM_POLL_MAX.mul_f64(1.2), "{last:?}");
        cost.opened();
        assert!(judge_for(&mut cost, STREAM_PROVED, 1, PROMPT, 1).await.is_none());
        let pause = judge_for(&mut cost, MINUTE, 1, LATE, 1).await.unwrap();
        assert!(
            pause <= STREAM_POLL_MIN.mul_f64(1.2),
            "it was worth its cost: {pause:?}"
        );
    }
}
