use std::ops::RangeInclusive;
use std::time::Duration;

/// The pauses between attempts: each is a random time between the minimum and three times the pause before it, so that
/// many processes spread out
/// ([*Exponential Backoff And Jitter*](https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/), "decorrelated").
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

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let (min, max) = (*self.range.start(), *self.range.end());
        let high = (self.last * 3).clamp(min, max);
        self.last = min + high.saturating_sub(min).mul_f64(fastrand::f64());
        self.last
    }
}

/// The same pause, longer or shorter by a fifth at most, so that many processes do not act at the same time.
pub(crate) fn spread(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_stay_in_their_range_and_grow_and_differ() {
        let range = Duration::from_millis(10)..=Duration::from_millis(800);
        let mut backoff = Backoff::new(range.clone());
        let pauses: Vec<_> = (0..10_000).map(|_| backoff.next()).collect();
        assert!(pauses.iter().all(|pause| range.contains(pause)));
        assert!(pauses.iter().any(|pause| *pause > Duration::from_millis(400)));
        assert!(pauses.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_fixed_interval_stays_fixed() {
        let mut backoff = Backoff::new(Duration::from_millis(50)..=Duration::from_millis(50));
        assert!((0..100).all(|_| backoff.next() == Duration::from_millis(50)));
    }
}
