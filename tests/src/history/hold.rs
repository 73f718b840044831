//! Who held the lock when.

use std::collections::BTreeSet;
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
    /// Whether the later hold began while this one's process was stopped: no lock can prevent that. A stop before the end
    /// of the first lease cannot be the cause, and neither can one that was over well before the later hold.
    pub fn was_stopped_at_the_beginning_of(&self, later: &Self) -> bool {
        self.stops.iter().any(|(from, until)| {
            *until >= self.lease_ends && *from <= later.begun && later.begun <= *until + NOTICED_WITHIN
        })
    }

    /// Whether the holder was told that the lock is no longer its own.
    pub fn is_lost(&self) -> bool {
        self.end == End::Lost || matches!(self.release, Some(Outcome::Failed))
    }
}

/// A task while its steps are read.
#[derive(Default)]
struct Reading {
    open: Option<Hold>,
    ended: Vec<Hold>,
    /// Since when its process is stopped.
    stopped: Option<Duration>,
    /// Whether its process was killed. Its last steps may come a little later, because the kill is noted before it.
    is_killed: bool,
    /// The last call, until it has an answer.
    call: Option<Event>,
    unanswered: Vec<Event>,
}

/// All sections of these steps, in the order of their beginnings, and the calls that have no answer although their processes
/// were not killed. The steps are in the order of their times.
pub(super) fn holds(events: &[Event]) -> (Vec<Hold>, Vec<Event>) {
    let tasks: BTreeSet<(usize, usize)> = events.iter().map(|event| (event.process, event.task)).collect();
    let last = events.last().map(|event| event.at).unwrap_or_default();
    let (mut holds, mut unanswered) = (Vec::new(), Vec::new());
    for (process, task) in tasks {
        let mut reading = Reading::default();
        for event in events.iter().filter(|event| event.process == process) {
            if event.is_of_process() {
                reading.process_step(event);
            } else if event.task == task {
                reading.task_step(event);
            }
        }
        reading.end_open(last);
        holds.extend(reading.ended);
        unanswered.extend(reading.unanswered.into_iter().chain(reading.call));
    }
    holds.sort_by_key(|hold| hold.begun);
    unanswered.sort_by_key(|call| call.at);
    (holds, unanswered)
}

impl Reading {
    fn task_step(&mut self, event: &Event) {
        match &event.step {
            Step::Invoke => {
                self.end_open(event.at);
                if !self.is_killed {
                    // The task asks again, so the earlier call has no answer any more, whatever happens to its process later.
                    self.unanswered.extend(self.call.replace(event.clone()));
                }
            }
            Step::Acquired { token, lease } => {
                self.call = None;
                self.open = Some(Hold {
                    process: event.process,
                    task: event.task,
                    begun: event.at,
                    ended: event.at,
                    token: *token,
                    lease_ends: event.at + *lease,
                    end: End::Open,
                    release: None,
                    stops: Vec::new(),
                });
                if self.is_killed {
                    self.end_open(event.at);
                }
            }
            Step::NotAcquired => self.call = None,
            Step::Ended { is_lost } => {
                if let Some(mut hold) = self.open.take() {
                    hold.ended = event.at;
                    hold.end = if *is_lost { End::Lost } else { End::Held };
                    self.ended.push(hold);
                }
            }
            Step::Released(outcome) => {
                if let Some(hold) = self.ended.last_mut() {
                    hold.release = Some(*outcome);
                }
            }
            _ => {}
        }
    }

    fn process_step(&mut self, event: &Event) {
        let stopped = self.stopped.take();
        match event.step {
            Step::Stopped => self.stopped = Some(event.at),
            Step::Continued => {
                let Some(from) = stopped else { return };
                // The signal is sent before its time is noted: a section can end in between.
                let just_ended = self.ended.iter_mut();
                let just_ended = just_ended.filter(|hold| hold.begun < event.at && hold.ended > from);
                for hold in just_ended.chain(&mut self.open) {
                    hold.stops.push((from.max(hold.begun), event.at));
                }
            }
            _ => {
                self.end_open(stopped.unwrap_or(event.at));
                self.is_killed = true;
                self.call = None;
            }
        }
    }

    /// Ends the open section without a word about its end.
    fn end_open(&mut self, at: Duration) {
        let ended = self.open.take().map(|hold| Hold {
            ended: at.max(hold.begun),
            ..hold
        });
        self.ended.extend(ended);
    }
}
