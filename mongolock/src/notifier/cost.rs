//! Whether the stream costs more than it brings.
//!
//! The server pays for each release and each stream, and no stream knows of the others. Two things show a process that it
//! is too much: its own stream reports many releases that wake no waiter, or the server replies late. Then the process
//! polls for a while, as it does where there are no streams, and opens the stream again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::timing::{
    STREAM_AWAIT, STREAM_COST_WINDOW, STREAM_LATE, STREAM_LATE_REPLIES, STREAM_POLL_MAX, STREAM_POLL_MIN,
    STREAM_PROVED, STREAM_USELESS_EVENTS,
};

/// One reply of the stream.
#[derive(Debug, Clone, Copy)]
pub(super) enum StreamReply {
    /// It has told a waiter something.
    Use,
    /// It has reported a release that no waiter here waits for.
    Useless,
    /// It has brought no event, and came after this time.
    Empty { after: Duration },
    /// It has brought no event, and another stream was opened after it.
    Switched,
}

/// What the stream of a provider has brought of late.
pub(super) struct StreamCost {
    /// The time at which the stream was opened.
    opened: Instant,
    /// The time from which useless events count.
    since: Instant,
    useless: u32,
    /// The times of the last replies without an event.
    empty: VecDeque<Duration>,
    /// The shortest of these times since the stream was opened: it includes the way to the server and back.
    shortest: Option<Duration>,
    /// The time for which the process polls when the stream costs too much again.
    pause: Duration,
}

impl StreamCost {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            opened: now,
            since: now,
            useless: 0,
            empty: VecDeque::new(),
            shortest: None,
            pause: STREAM_POLL_MIN,
        }
    }

    /// Notes that a stream was opened.
    pub(super) fn opened(&mut self, now: Instant) {
        *self = Self {
            pause: self.pause,
            ..Self::new(now)
        };
    }

    /// Decides between the stream and polling: after a reply of the stream it returns how long the process is to poll
    /// before it opens a stream again, or `None` if the stream is worth its cost. Each time in a row takes longer.
    pub(super) fn polling_pause(
        &mut self,
        now: Instant,
        reply: StreamReply,
        awaited: usize,
    ) -> Option<Duration> {
        match reply {
            StreamReply::Use | StreamReply::Switched => {}
            StreamReply::Useless => self.useless += 1,
            StreamReply::Empty { after } => {
                // The first reply of a stream may come at once.
                if after >= STREAM_AWAIT {
                    self.shortest = Some(self.shortest.map_or(after, |shortest| shortest.min(after)));
                }
                self.empty.push_back(after);
                if self.empty.len() > STREAM_LATE_REPLIES {
                    self.empty.pop_front();
                }
            }
        }
        if !(self.has_too_many_events(now, awaited) || self.is_late()) {
            return None;
        }
        if now - self.opened >= STREAM_PROVED {
            self.pause = STREAM_POLL_MIN;
        }
        let next = (self.pause * 2).min(STREAM_POLL_MAX);
        Some(std::mem::replace(&mut self.pause, next))
    }

    /// Whether more useless events arrived in the last window than polling would look at locks, which costs less for each
    /// lock than an event.
    fn has_too_many_events(&mut self, now: Instant, awaited: usize) -> bool {
        let lasted = now - self.since;
        if lasted < STREAM_COST_WINDOW {
            return false;
        }
        let per_second = f64::from(self.useless) / lasted.as_secs_f64();
        (self.since, self.useless) = (now, 0);
        let awaited = f64::from(u32::try_from(awaited).unwrap_or(u32::MAX));
        per_second > f64::from(STREAM_USELESS_EVENTS).max(awaited)
    }

    /// Whether more than half of the last replies came late, compared with the fastest one.
    fn is_late(&self) -> bool {
        let Some(shortest) = self.shortest else {
            return false;
        };
        let late = self
            .empty
            .iter()
            .filter(|after| **after >= shortest + STREAM_LATE);
        late.count() > STREAM_LATE_REPLIES / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way to the server and back.
    const WAY: Duration = Duration::from_millis(200);
    const PROMPT: StreamReply = StreamReply::Empty {
        after: STREAM_AWAIT.saturating_add(WAY),
    };
    const LATE: StreamReply = StreamReply::Empty {
        after: STREAM_AWAIT.saturating_add(WAY).saturating_add(STREAM_LATE),
    };
    const AT_ONCE: StreamReply = StreamReply::Empty {
        after: Duration::ZERO,
    };

    /// A stream that was just opened, with its first replies.
    fn open(now: Instant, cost: &mut StreamCost) {
        cost.opened(now);
        assert_eq!(cost.polling_pause(now, AT_ONCE, 1), None);
        assert_eq!(cost.polling_pause(now, PROMPT, 1), None);
    }

    /// Notes so many replies of each second for this time, and returns the pause if there is one.
    fn pause_for(
        now: &mut Instant,
        cost: &mut StreamCost,
        time: Duration,
        per_second: u32,
        reply: StreamReply,
        awaited: usize,
    ) -> Option<Duration> {
        let end = *now + time;
        while *now < end {
            *now += Duration::from_secs(1);
            for _ in 0..per_second {
                if let Some(pause) = cost.polling_pause(*now, reply, awaited) {
                    return Some(pause);
                }
            }
        }
        None
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn many_useless_events_end_the_stream() {
        let mut now = Instant::now();
        let (few, many) = (STREAM_USELESS_EVENTS / 2, STREAM_USELESS_EVENTS * 2);
        let mut cost = StreamCost::new(now);
        assert!(pause_for(&mut now, &mut cost, MINUTE, few, StreamReply::Useless, 70).is_none());
        assert!(pause_for(&mut now, &mut cost, MINUTE, many, StreamReply::Use, 70).is_none());
        // Polling for so many locks would cost more.
        let all = many as usize * 2;
        assert!(pause_for(&mut now, &mut cost, MINUTE, many, StreamReply::Useless, all).is_none());
        cost.opened(now);
        let pause = pause_for(&mut now, &mut cost, MINUTE, many, StreamReply::Useless, 70);
        assert_eq!(pause, Some(STREAM_POLL_MIN));
    }

    #[test]
    fn late_replies_end_the_stream_unless_they_are_few() {
        let mut now = Instant::now();
        let mut cost = StreamCost::new(now);
        assert!(pause_for(&mut now, &mut cost, MINUTE, 1, PROMPT, 1).is_none());
        let short = Duration::from_secs(STREAM_LATE_REPLIES as u64 / 2);
        assert!(pause_for(&mut now, &mut cost, short, 1, LATE, 1).is_none());
        assert!(pause_for(&mut now, &mut cost, MINUTE, 1, PROMPT, 1).is_none());
        assert!(pause_for(&mut now, &mut cost, MINUTE, 1, LATE, 1).is_some());
    }

    /// A server that is far away is not busy.
    #[test]
    fn the_way_to_the_server_does_not_count_as_late() {
        let mut now = Instant::now();
        let mut cost = StreamCost::new(now);
        let far = StreamReply::Empty {
            after: STREAM_AWAIT + STREAM_LATE * 5,
        };
        assert_eq!(cost.polling_pause(now, AT_ONCE, 1), None);
        assert!(pause_for(&mut now, &mut cost, MINUTE, 1, far, 1).is_none());
    }

    #[test]
    fn polling_lasts_longer_each_time_in_a_row() {
        let mut now = Instant::now();
        let mut cost = StreamCost::new(now);
        let mut last = Duration::ZERO;
        for _ in 0..3 {
            open(now, &mut cost);
            let pause = pause_for(&mut now, &mut cost, MINUTE, 1, LATE, 1).unwrap();
            assert!(pause > last, "{pause:?} after {last:?}");
            last = pause;
        }
        for _ in 0..10 {
            open(now, &mut cost);
            last = pause_for(&mut now, &mut cost, MINUTE, 1, LATE, 1).unwrap();
        }
        assert_eq!(last, STREAM_POLL_MAX);
        open(now, &mut cost);
        assert!(pause_for(&mut now, &mut cost, STREAM_PROVED, 1, PROMPT, 1).is_none());
        let pause = pause_for(&mut now, &mut cost, MINUTE, 1, LATE, 1);
        assert_eq!(pause, Some(STREAM_POLL_MIN), "it was worth its cost");
    }
}
