//! The lease under which the command runs, and its end: a mark, a detachment or a release, for which this program waits as long as
//! the lease lasts.

use std::fmt::Display;
use std::process;
use std::time::{Duration, Instant};

use mongolock::{LockError, LockProvider};

use super::events::{DETACH_FAILED, Failures, MARK_FAILED, RELEASE_FAILED};
use super::resumed::Resumed;
use crate::acquire::{CommandHold, Signals, longest_end, patiently};
use crate::driver;
use crate::exit;
use crate::failure::{Failure, warn};
use crate::text::short;

/// The lease under which the command runs.
pub(super) struct CommandLease {
    pub(super) hold: CommandHold,
    /// The names of its locks, or that of its semaphore.
    pub(super) names: Vec<String>,
    /// The file of its handle, if it was resumed.
    pub(super) resumed: Option<Resumed>,
    pub(super) provider: LockProvider,
    pub(super) failures: Failures,
    pub(super) expiry: Duration,
}

impl CommandLease {
    /// Ends the hold after a failure of this program, which is the reason for its exit code.
    pub(super) async fn end_after_failure(self, signals: &mut Signals) {
        let ended = self.end(false, signals).await;
        ended.unwrap_or_else(|failure| failure.print());
    }

    /// Ends the hold of a command that has succeeded or not.
    pub(super) async fn end(self, has_succeeded: bool, signals: &mut Signals) -> Result<(), Failure> {
        let names = self.names.join(", ");
        if let Some(resumed) = &self.resumed {
            if let Some(ttl) = resumed.then_detach() {
                let detaching = resumed.detach(self.hold, ttl);
                let (what, reason) = (
                    format!("the detachment of {names}"),
                    newest(&self.failures, DETACH_FAILED),
                );
                let detached = patiently(signals, &what, longest_end(self.expiry), reason, detaching).await;
                return detached.unwrap_or_else(|_| give_up(&what, self.expiry.max(ttl)));
            }
            // Its handle is no longer valid.
            resumed.delete();
        }
        if has_succeeded && self.hold.is_once() {
            let (what, reason) = (
                format!("the mark of {names}"),
                newest(&self.failures, MARK_FAILED),
            );
            let marking = self.hold.finish(true);
            let marked = patiently(signals, &what, longest_end(self.expiry), reason, marking).await;
            return match marked {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error @ LockError::Lost { .. })) => {
                    Err(Failure::new(error.to_string()).code(exit::LOST))
                }
                // Without the mark the work may run again.
                Ok(Err(error)) => Err(Failure::new(format!(
                    "the command has succeeded, but is not marked as done: {}",
                    Failure::from(error)
                ))),
                Err(_) => give_up(&format!("{what} (the command will run again)"), self.expiry),
            };
        }
        let (what, expiry) = (format!("the release of {names}"), self.expiry);
        let releasing = self.release(has_succeeded);
        let released = patiently(signals, &what, expiry, || None, releasing).await;
        released.unwrap_or_else(|_| {
            warn(not_released(&"ended by a signal"));
            Ok(())
        })
    }

    /// Releases the lock. The library repeats the release while the lease lasts, and this program waits for that.
    async fn release(self, has_succeeded: bool) -> Result<(), Failure> {
        let error = match self.hold.finish(false).await {
            Ok(()) => return Ok(()),
            Err(error @ LockError::Lost { .. }) if has_succeeded => {
                return Err(Failure::new(error.to_string()).code(exit::LOST));
            }
            Err(error @ LockError::Lost { .. }) => {
                warn(not_released(&Failure::from(error)));
                return Ok(());
            }
            Err(error) => error,
        };
        let begun = Instant::now();
        self.provider.shutdown_after(self.expiry).await;
        // The exit code of the command is more important: the lock was held to its end.
        if self.failures.take(RELEASE_FAILED).is_some() || begun.elapsed() >= self.expiry {
            warn(not_released(&Failure::from(error)));
        }
        Ok(())
    }
}

fn not_released(reason: &dyn Display) -> String {
    format!("the lock was not released, and expires by itself: {reason}")
}

/// The newest error of an event, in short.
fn newest(failures: &Failures, event: &'static str) -> impl Fn() -> Option<String> + use<> {
    let failures = failures.clone();
    move || failures.take(event).map(|error| driver::brief(&error))
}

/// Ends this program at once after a signal: the lock stays taken for this time at most.
fn give_up(what: &str, left: Duration) -> ! {
    let left = short(left);
    warn(format_args!(
        "ended by a signal: {what} is not confirmed; the lock stays taken for at most {left}"
    ));
    process::exit(exit::FAILED.into())
}
