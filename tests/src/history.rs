//! Histories: what the processes of a test did with one lock, and when. One checker judges them, whatever test has
//! written them.
//!
//! A process notes each step with the time of a clock that all processes of the machine share ([`monotonic_now`]), and the
//! test that kills or stops a process notes that. The order in which the steps are added does not matter.

mod hold;
mod verdict;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

pub use self::hold::Hold;
pub use self::verdict::Verdict;

/// Now, by the system's monotonic clock.
///
/// `CLOCK_MONOTONIC` counts from the start of the machine for every process, is never set, and does not go backwards from
/// one core to another: a process that another one wakes reads no earlier time than that one did. `std::time::Instant` is
/// the same clock, but does not show its value.
pub fn monotonic_now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

/// A step of one task, or something that has happened to its process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// The task asks for the lock.
    Invoke,
    /// The call has succeeded, and the lock was held at this time.
    Acquired {
        /// The fencing token; `None` for a client whose tokens count from 1 again.
        token: Option<i64>,
        /// The time until the lease ends if nobody renews it.
        lease: Duration,
    },
    /// The call has failed.
    NotAcquired,
    /// The section is over. If it is not marked as lost, the holder still relied on the lock at this time.
    Ended {
        /// Whether the holder has found that the lock was lost.
        is_lost: bool,
    },
    /// The release has ended.
    Released(Outcome),
    /// The process was killed. The time is one before the kill.
    Killed,
    /// The process was stopped. The time is one before the signal.
    Stopped,
    /// The process continues. The time is one after the signal.
    Continued,
}

/// How a release has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The claim had the lock until then.
    Ok,
    /// The claim no longer had the lock.
    Failed,
    /// The release may have taken effect or not.
    Unknown,
}

/// A step with its place in the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The number of the process. A process that takes the place of a killed one has a number of its own.
    pub process: usize,
    /// The number of the task within its process; of no meaning for a step that concerns the process.
    pub task: usize,
    /// The time by [`monotonic_now`].
    pub at: Duration,
    /// What has happened.
    pub step: Step,
}

impl Event {
    /// A step that happens now, of a process that does not know its number: the test sets it.
    pub fn now(task: usize, step: Step) -> Self {
        Self::at(task, monotonic_now(), step)
    }

    /// The same for a step with this time.
    pub fn at(task: usize, at: Duration, step: Step) -> Self {
        Self {
            process: 0,
            task,
            at,
            step,
        }
    }

    /// Whether it has happened to the process, and not to one of its tasks.
    fn is_of_process(&self) -> bool {
        matches!(self.step, Step::Killed | Step::Stopped | Step::Continued)
    }

    /// The step as one of the process with this number.
    #[must_use]
    pub fn of(self, process: usize) -> Self {
        Self { process, ..self }
    }
}

/// All steps that concern one lock.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
}

impl History {
    /// Adds a step.
    pub fn add(&mut self, event: Event) {
        self.events.push(event);
    }

    /// The steps of these tasks, with what has happened to their processes.
    #[must_use]
    pub fn of_tasks(&self, is_meant: impl Fn(usize) -> bool) -> Self {
        let events = self.events.iter().cloned();
        let is_kept = |event: &Event| event.is_of_process() || is_meant(event.task);
        let events = events.filter(is_kept).collect();
        Self { events }
    }

    /// The steps in the order of their times. Steps of one time stay in the order in which they were added.
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.events.clone();
        events.sort_by_key(|event| event.at);
        events
    }

    /// All holds in the order of their beginnings.
    pub fn holds(&self) -> Vec<Hold> {
        hold::holds(&self.events()).0
    }

    /// What the history says.
    pub fn judge(&self) -> Verdict {
        Verdict::of(self)
    }
}
