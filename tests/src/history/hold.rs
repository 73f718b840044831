//! Who held the lock when.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{Event, Outcome, Step};

/// The time that a holder needs after a stop to find its loss, and a later holder from its claim to its note of it.
const NOTICED_WITHIN: Duration = Duration::from_millis(100);

/// How a section has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Its process still relied on the lock at its end.
    Held,
    /// Its process has found that the lock was lost.
    Lost,
    /// Its process was killed, or its task asked again, or the history ends, without a word about the end of the section.
    Open,
}

/// One section under the lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// The number of its process.
    pub process: usize,
    /// The number of its task.
    pub task: usize,
    /// When the task began to ask for the lock; calls that have failed count as one with the call that succeeded.
    pub asked: Duration,
    /// When it began.
    pub begun: Duration,
    /// When it ended: a process that was killed while it was stopped did its last step before it was stopped.
    pub ended: Duration,
    /// The fencing token, if the client has tokens that rise.
    pub token: Option<i64>,
    /// The end of the lease that was known at the beginning.
    pub lease_ends: Duration,
    /// How it ended.
    pub end: End,
    /// How the release has ended; `None` if none was sent or the history has no reply.
    pub release: Option<Outcome>,
    /// The parts of the section in which its process was stopped.
    pub stops: Vec<(Duration, Duration)>,
}

impl Hold {
    /// Until when the lock was held: the lease of a stopped holder can end before its section.
    #[must_use]
    pub fn held_until(&self) -> Duration {
        match self.end {
            End::Lost => self.ended.min(self.lease_ends.max(self.begun)),
            End::Held | End::Open => self.ended,
        }
    }

    /// Whether its process was stopped over the end of the lease that it knew of at the beginning. Renewals may have moved
    /// the end since, so this alone excuses no overlap.
    #[must_use]
    pub fn was_stopped_over_the_end(&self) -> bool {
        self.stops.iter().any(|(_, until)| *until >= self.lease_ends)
    }

    /// Whether the later hold began while this one's process was stopped: no lock can prevent that. A stop before the end
    /// of the first lease cannot be the cause, and neither can one that was over well before the later hold.
    #[must_use]
    pub fn was_stopped_at_the_beginning_of(&self, later: &Self) -> bool {
        self.stops.iter().any(|(from, until)| {
            *until >= self.lease_ends && *from <= later.begun && later.begun <= *until + NOTICED_WITHIN
        })
    }

    /// Whether the holder was told that the lock is no longer its own.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.end == End::Lost || matches!(self.release, Some(Outcome::Failed(_)))
    }
}

/// The tasks while the history is read.
#[derive(Default)]
struct Reading {
    asked: HashMap<(usize, usize), Duration>,
    open: HashMap<(usize, usize), Hold>,
    /// The processes that are stopped, and since when.
    stopped: HashMap<usize, Duration>,
    /// The processes that were killed. Their last steps may come a little later, because the kill is noted before it.
    killed: HashSet<usize>,
    ended: Vec<Hold>,
}

/// All sections of these steps, which are in the order of their times, in the order of their beginnings.
pub(super) fn holds(events: &[Event]) -> Vec<Hold> {
    let mut reading = Reading::default();
    for event in events {
        reading.read(event);
    }
    let last = events.last().map(|event| event.at).unwrap_or_default();
    reading.end_open(|_| true, last);
    let mut holds = reading.ended;
    holds.sort_by_key(|hold| hold.begun);
    holds
}

impl Reading {
    fn read(&mut self, event: &Event) {
        let task = (event.process, event.task);
        match &event.step {
            Step::Invoke => {
                self.end_open(|hold| (hold.process, hold.task) == task, event.at);
                self.asked.entry(task).or_insert(event.at);
            }
            Step::Acquired { token, lease } => {
                let hold = Hold {
                    process: event.process,
                    task: event.task,
                    asked: self.asked.remove(&task).unwrap_or(event.at),
                    begun: event.at,
                    ended: event.at,
                    token: *token,
                    lease_ends: event.at + *lease,
                    end: End::Open,
                    release: None,
                    stops: Vec::new(),
                };
                if self.killed.contains(&event.process) {
                    self.ended.push(hold);
                } else {
                    self.open.insert(task, hold);
                }
            }
            Step::Ended { is_lost } => {
                if let Some(mut hold) = self.open.remove(&task) {
                    hold.ended = event.at;
                    hold.end = if *is_lost { End::Lost } else { End::Held };
                    self.ended.push(hold);
                }
            }
            Step::Released(outcome) => {
                let of_task = |hold: &&mut Hold| (hold.process, hold.task) == task;
                if let Some(hold) = self.ended.iter_mut().rev().find(of_task) {
                    hold.release = Some(outcome.clone());
                }
            }
            Step::Stopped => drop(self.stopped.insert(event.process, event.at)),
            Step::Continued => self.go_on(event.process, event.at),
            Step::Killed => {
                let last_step = self.stopped.remove(&event.process).unwrap_or(event.at);
                self.end_open(|hold| hold.process == event.process, last_step);
                self.killed.insert(event.process);
            }
            Step::NotAcquired { .. } | Step::Written { .. } => {}
        }
    }

    /// A process continues: it was stopped in the sections that are open.
    fn go_on(&mut self, process: usize, at: Duration) {
        let Some(from) = self.stopped.remove(&process) else {
            return;
        };
        for hold in self.open.values_mut().filter(|hold| hold.process == process) {
            hold.stops.push((from.max(hold.begun), at));
        }
        // The signal is sent before its time is noted: a section can end in between.
        let just_ended = |hold: &&mut Hold| hold.process == process && hold.begun < at && hold.ended > from;
        for hold in self.ended.iter_mut().filter(just_ended) {
            hold.stops.push((from.max(hold.begun), at));
        }
    }

    /// Ends these open sections.
    fn end_open(&mut self, is_meant: impl Fn(&Hold) -> bool, at: Duration) {
        let ended = self.open.extract_if(|_, hold| is_meant(hold));
        let ended = ended.map(|(_, hold)| Hold {
            ended: at.max(hold.begun),
            ..hold
        });
        self.ended.extend(ended);
    }
}
