//! What the sections of the soak say, beside its faults.

use std::time::Duration;

use mongolock_tests::{End, History, Hold, Verdict};

use super::faults::Fault;
use super::fleet::{Life, Place};
use crate::queue::Client;
use crate::samples::{Samples, Turns, ratio};

/// The time after a fault that is not quiet.
const AFTERMATH: Duration = Duration::from_secs(5);
/// The time in which a command takes effect that was sent before a fault.
const AT_ONCE: Duration = Duration::from_millis(100);
/// The shortest quiet time whose waits count.
const SHORTEST: Duration = Duration::from_secs(2);

/// All that was seen.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) places: Vec<Place>,
    pub(crate) lives: Vec<Life>,
    pub(crate) history: History,
    /// What the history says of the lock.
    pub(crate) verdict: Verdict,
    /// The sections of the history.
    pub(crate) holds: Vec<Hold>,
    pub(crate) faults: Vec<Fault>,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Span {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// A time in which something was missing, and the part of it that no fault explains.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gap {
    pub(crate) span: Span,
    pub(crate) place: usize,
    pub(crate) unexplained: Duration,
}

impl Span {
    pub(crate) fn time(&self) -> Duration {
        self.to.saturating_sub(self.from)
    }
}

impl Seen {
    pub(crate) fn new(places: Vec<Place>, lives: Vec<Life>, history: History, faults: Vec<Fault>) -> Self {
        Self {
            places,
            lives,
            verdict: history.judge(),
            holds: history.holds(),
            history,
            faults,
        }
    }

    /// The times in which nobody held the lock.
    pub(crate) fn free(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut ended: Option<Duration> = None;
        for hold in &self.holds {
            if let Some(ended) = ended.filter(|ended| *ended < hold.begun) {
                let span = Span {
                    from: ended,
                    to: hold.begun,
                };
                gaps.push(Gap {
                    span,
                    place: self.place(hold),
                    unexplained: span.time().saturating_sub(self.explained_free(span)),
                });
            }
            ended = ended.max(Some(hold.held_until()));
        }
        gaps
    }

    /// The times that the processes of ours were without a turn.
    pub(crate) fn without_a_turn(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for (number, life) in self.lives.iter().enumerate() {
            if !self.is_ours(life.place) {
                continue;
            }
            let own = self.holds.iter().filter(|hold| hold.process == number);
            let mut from = life.begun;
            for to in own.map(|hold| hold.begun).chain(life.ended) {
                let span = Span { from, to };
                let unexplained = span.time().saturating_sub(self.disturbed_time(span));
                gaps.push(Gap {
                    span,
                    place: life.place,
                    unexplained,
                });
                from = from.max(to);
            }
        }
        gaps
    }

    /// The quiet times.
    pub(crate) fn quiet(&self) -> Vec<Span> {
        let mut faults: Vec<Span> = self.faults.iter().map(Self::disturbed).collect();
        faults.sort_unstable_by_key(|span| span.from);
        let (first, last) = (self.holds.first(), self.holds.last());
        let end = last.map(|hold| hold.begun).unwrap_or_default();
        let mut quiet = Vec::new();
        let mut from = first.map(|hold| hold.begun).unwrap_or_default() + AFTERMATH;
        for fault in faults {
            quiet.push(Span { from, to: fault.from });
            from = from.max(fault.to + AFTERMATH);
        }
        quiet.push(Span { from, to: end });
        quiet.retain(|span| span.time() >= SHORTEST);
        quiet
    }

    /// The waits of our processes that lie in one stretch of time.
    pub(crate) fn waits(&self, within: Span) -> Samples {
        let inside = |hold: &&Hold| hold.asked >= within.from && hold.begun <= within.to;
        let ours = self.holds.iter().filter(|hold| self.is_ours(self.place(hold)));
        let waits = ours
            .filter(inside)
            .map(|hold| hold.begun.saturating_sub(hold.asked));
        waits.collect()
    }

    /// The longest wait divided by the mean one, for each quiet time.
    pub(crate) fn unfairness(&self) -> Turns {
        let waits = self.quiet().into_iter().map(|span| self.waits(span));
        waits.map(|waits| ratio(waits.max(), waits.mean())).collect()
    }

    /// The sections of neighbours in one process, counted as one.
    pub(crate) fn turns(&self) -> usize {
        let changes = self
            .holds
            .windows(2)
            .filter(|pair| pair[0].process != pair[1].process);
        changes.count() + 1
    }

    pub(crate) fn sections_of(&self, place: usize) -> usize {
        self.holds.iter().filter(|hold| self.place(hold) == place).count()
    }

    /// The sections in which a process was killed, and those in which one was stopped.
    pub(crate) fn hit(&self) -> (usize, usize) {
        let killed = self.holds.iter().filter(|hold| hold.end == End::Open);
        let is_stopped = |hold: &&Hold| !hold.stops.is_empty();
        (killed.count(), self.holds.iter().filter(is_stopped).count())
    }

    /// The place of the process of a section.
    pub(crate) fn place(&self, hold: &Hold) -> usize {
        self.lives[hold.process].place
    }

    pub(crate) fn is_ours(&self, place: usize) -> bool {
        self.places[place].client != Client::Dotnet
    }

    fn disturbed(fault: &Fault) -> Span {
        Span {
            from: fault.begun,
            to: fault.ended.max(fault.explains_until()),
        }
    }

    /// The part of a time in which the lock was free that is explained by faults.
    fn explained_free(&self, span: Span) -> Duration {
        let applies = |fault: &&Fault| !fault.explains_once() || span.from <= fault.begun + AT_ONCE;
        let faults = self.faults.iter().filter(applies);
        covered(
            span,
            faults.map(|fault| Span {
                from: fault.begun,
                to: fault.explains_until(),
            }),
        )
    }

    /// The part of a stretch of time in which processes had died or were stopped, or the server had no primary.
    fn disturbed_time(&self, span: Span) -> Duration {
        covered(
            span,
            self.faults
                .iter()
                .filter(|fault| fault.explains_until() > fault.begun)
                .map(Self::disturbed),
        )
    }
}

/// The part of a stretch of time that is covered by others, which may overlap.
fn covered(span: Span, others: impl Iterator<Item = Span>) -> Duration {
    let mut others: Vec<Span> = others
        .map(|other| Span {
            from: other.from.max(span.from),
            to: other.to.min(span.to),
        })
        .filter(|other| other.from < other.to)
        .collect();
    others.sort_unstable_by_key(|other| other.from);
    let (mut covered, mut until) = (Duration::ZERO, span.from);
    for other in others {
        covered += other.to.saturating_sub(other.from.max(until));
        until = until.max(other.to);
    }
    covered
}
