//! The end of a hold, which may take as long as its lease lasts.

use std::pin::pin;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::time::sleep;

use super::Signals;
use crate::failure::warn;
use crate::text::short;

/// The time after which a missing confirmation is reported.
const SILENCE: Duration = Duration::from_secs(2);

/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// The shortest time for which the library renews a lease after the end of the work, until its mark or its detachment
/// is confirmed.
const RENEWED: Duration = Duration::from_secs(60);

/// The longest time for which the library repeats a mark or a detachment: the lease is renewed for one expiry, or for [`RENEWED`],
/// and then lasts for one expiry.
pub(crate) fn longest_end(expiry: Duration) -> Duration {
    expiry.max(RENEWED) + expiry
}

/// Waits for the end of a hold. If that takes long, it prints what is not confirmed yet, why, and for how long the
/// library still tries, and a signal ends the wait. A signal does not interrupt an end that is confirmed soon.
pub(crate) async fn patiently<T>(
    signals: &mut Signals,
    what: &str,
    most: Duration,
    reason: impl Fn() -> Option<String>,
    ending: impl Future<Output = T>,
) -> Result<T, Signal> {
    let ends = Instant::now() + most;
    let mut ending = pin!(ending);
    let mut pause = SILENCE;
    loop {
        tokio::select! {
            biased;
            ended = ending.as_mut() => return Ok(ended),
            signal = signals.passed_on(), if pause > SILENCE => return Err(signal),
            () = sleep(pause) => {}
        }
        let left = short(ends.saturating_duration_since(Instant::now()));
        let reason = reason().map_or_else(String::new, |reason| format!(": {reason}"));
        warn(format_args!(
            "{what} is not confirmed, trying for at most {left} more{reason}"
        ));
        pause = INTERVAL;
    }
}
