use std::ops::RangeInclusive;
use std::time::Duration;

use crate::moment::Luck;

/// The pauses between attempts: each is a random time between the minimum and three times the pause before it, so that
/// many waiters spread out
/// ([*Exponential Backoff And Jitter*](https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/), "decorrelated").
#[derive(Clone, Hash)]
pub(crate) struct Backoff {
    range: RangeInclusive<Duration>,
    /// The pause that was returned last; before the first one it is the minimum.
    last: Duration,
}

impl Backoff {
    pub(crate) fn new(range: RangeInclusive<Duration>) -> Self {
        Self {
            last: *range.start(),
            range,
        }
    }

    /// The shortest pause and the longest one.
    pub(crate) fn range(&self) -> &RangeInclusive<Duration> {
        &self.range
    }

    /// The next pause.
    pub(crate) fn next(&mut self, luck: Luck) -> Duration {
        let (min, max) = (*self.range.start(), *self.range.end());
        let high = (self.last * 3).clamp(min, max);
        self.last = luck.between(min, high);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_stay_in_their_range_and_grow_and_differ() {
        let range = Duration::from_millis(10)..=Duration::from_millis(800);
        let mut backoff = Backoff::new(range.clone());
        let pauses: Vec<_> = (0..10_000).map(|_| backoff.next(Luck::draw())).collect();
        assert!(pauses.iter().all(|pause| range.contains(pause)));
        assert!(pauses.iter().any(|pause| *pause > Duration::from_millis(400)));
        assert!(pauses.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_fixed_interval_stays_fixed() {
        let mut backoff = Backoff::new(Duration::from_millis(50)..=Duration::from_millis(50));
        assert!((0..100).all(|_| backoff.next(Luck::draw()) == Duration::from_millis(50)));
    }
}
