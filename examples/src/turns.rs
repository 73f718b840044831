//! Bodies that run at the same time, found by the order of their events.
//!
//! All processes of a demonstration write to one pipe, and the system keeps the order of the writes. A body sends its
//! first event after the lock was acquired, and its last one before the lock is released. If the lock works, the first
//! event of a body therefore comes after the last one of the body before it. A first event between the two of another
//! body proves that both ran at the same time. No clock is compared with another, and the MongoDB server under test is
//! not asked.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use mongolock::FencingToken;
use serde::{Deserialize, Serialize};

use crate::duration::show;

/// A body, with an id of type `B`, has begun or ended to change a resource of type `R`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Event<R, B> {
    /// What the body changes, under a lock.
    pub resource: R,
    /// Which body it is.
    pub body: B,
    /// `None` for the first event.
    pub end: Option<Hold>,
}

/// One hold of a lock.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Hold {
    /// `None` without the lock.
    pub token: Option<FencingToken>,
    /// The time from the call to the lock.
    pub waited: Duration,
    /// The time from the lock to the end of the body.
    pub held: Duration,
}

/// The events so far.
#[derive(Debug, Default)]
pub struct Turns<R, B> {
    running: Vec<Running<R, B>>,
    begun: Vec<(R, B)>,
    ended: Vec<(R, B)>,
    overlaps: BTreeMap<R, usize>,
    in_parallel: usize,
}

/// A body that has begun, and the numbers of bodies that began after it, for the same and for other resources.
#[derive(Debug)]
struct Running<R, B> {
    resource: R,
    body: B,
    same: usize,
    other: usize,
}

impl<R: Ord + Clone, B: PartialEq + Copy> Turns<R, B> {
    /// Adds an event. Each pair of bodies that run at the same time is counted once, at the end of the one that began
    /// first. A body that never ends, because its process was killed, counts nothing: the time of its end is not known.
    pub fn add(&mut self, event: Event<R, B>) {
        let Event { resource, body, end } = event;
        if end.is_none() {
            for running in &mut self.running {
                let is_same = running.resource == resource;
                *(if is_same {
                    &mut running.same
                } else {
                    &mut running.other
                }) += 1;
            }
            self.begun.push((resource.clone(), body));
            let (same, other) = (0, 0);
            self.running.push(Running {
                resource,
                body,
                same,
                other,
            });
            return;
        }
        let is_it = |running: &Running<R, B>| running.resource == resource && running.body == body;
        if let Some(index) = self.running.iter().rposition(is_it) {
            let ended = self.running.remove(index);
            *self.overlaps.entry(resource.clone()).or_default() += ended.same;
            self.in_parallel += ended.other;
        }
        self.ended.push((resource, body));
    }

    /// The bodies that have begun, in that order.
    #[must_use]
    pub fn begun(&self) -> &[(R, B)] {
        &self.begun
    }

    /// The bodies that have ended, in that order.
    #[must_use]
    pub fn ended(&self) -> &[(R, B)] {
        &self.ended
    }

    /// The number of pairs of bodies that ran at the same time, for each resource that has any.
    pub fn overlaps(&self) -> impl Iterator<Item = (&R, usize)> {
        let overlaps = self.overlaps.iter().map(|(resource, count)| (resource, *count));
        overlaps.filter(|(_, count)| *count > 0)
    }

    /// The number of pairs of bodies that changed different resources at the same time.
    #[must_use]
    pub fn in_parallel(&self) -> usize {
        self.in_parallel
    }
}

/// Three columns: token, waiting time and holding time.
impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.map_or("none".to_owned(), |token| token.to_string());
        write!(
            f,
            "{token:>16}  {:>10}  {:>10}",
            show(self.waited),
            show(self.held)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums after these steps: `+` begins and `-` ends a body, named by its resource and its number.
    fn overlaps(steps: &str) -> (usize, usize) {
        let mut turns = Turns::default();
        for step in steps.split(' ') {
            let (kind, body) = step.split_at(1);
            let (resource, body) = body.split_at(1);
            let end = (kind == "-").then(Hold::default);
            turns.add(Event { resource, body, end });
        }
        (
            turns.overlaps().map(|(_, count)| count).sum(),
            turns.in_parallel(),
        )
    }

    #[test]
    fn each_pair_that_overlaps_counts_once() {
        assert_eq!(overlaps("+a1 -a1 +a2 -a2"), (0, 0), "in turn");
        assert_eq!(overlaps("+a1 +a2 -a1 -a2"), (1, 0), "crossed");
        assert_eq!(overlaps("+a1 +a2 -a2 -a1"), (1, 0), "nested");
        assert_eq!(overlaps("+a1 +b1 -a1 -b1"), (0, 1), "different resources");
        assert_eq!(overlaps("+a1 +a2 +b1 -a2 -b1 -a1"), (1, 2), "all pairs");
        assert_eq!(overlaps("+a1 +a2 -a2"), (0, 0), "the first was killed");
        assert_eq!(
            overlaps("+a1 +a2 -a2 +a1 -a1"),
            (0, 0),
            "the first was given up and repeated"
        );
    }
}
