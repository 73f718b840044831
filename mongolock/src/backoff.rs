use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The first pause, and the least one.
const LEAST: Duration = Duration::from_millis(20);

const LONGEST: Duration = Duration::from_secs(1);

/// The repetitions of a request. The pause before each is a random time between the least one and three times the pause
/// before it, so that many processes spread out
/// ([*Exponential Backoff And Jitter*](https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/), "decorrelated").
pub(crate) struct Repetitions {
    /// The time from which the request is not sent again.
    until: Instant,
    /// The last pause; before the first one it is the least one.
    pause: Duration,
}

impl Repetitions {
    /// Repetitions for this time from now on.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            until: Instant::now() + limit,
            pause: LEAST,
        }
    }

    /// Waits for the next repetition; `false` if the time for them has passed.
    pub(crate) async fn next(&mut self) -> bool {
        let more = (self.pause * 3).min(LONGEST).saturating_sub(LEAST);
        self.pause = LEAST + more.mul_f64(fastrand::f64());
        let has_time = Instant::now() + self.pause < self.until;
        if has_time {
            sleep(self.pause).await;
        }
        has_time
    }
}

/// The same pause, longer or shorter by a fifth at most, so that many processes do not act at the same time.
pub(crate) fn spread(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_stay_in_their_range_and_grow_and_differ_until_the_time_has_passed() {
        let (begun, limit) = (Instant::now(), Duration::from_secs(3600));
        let mut repetitions = Repetitions::new(limit);
        let mut pauses = Vec::new();
        while repetitions.next().await {
            pauses.push(repetitions.pause);
        }
        // A sleep of tokio ends at a whole millisecond.
        let (passed, rounded) = (begun.elapsed(), Duration::from_millis(1));
        assert!(passed < limit + rounded && passed + LONGEST > limit, "{passed:?}");
        assert!(pauses.iter().all(|pause| (LEAST..=LONGEST).contains(pause)));
        assert!(pauses.iter().any(|pause| *pause > LONGEST / 2));
        assert!(pauses.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
