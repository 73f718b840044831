//! Bodies that run at the same time, found by the order of their events.
//!
//! All processes of a demonstration write to one pipe, and the system keeps the order of the writes. A body sends its
//! first event after the lock was acquired, and its last one before the lock is released. If the lock works, the first
//! event of a body therefore comes after the last one of the body before it. A first event between the two of another
//! body proves that both ran at the same time. No clock is compared with another, and the MongoDB server under test is
//! not asked.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use mongolock::{FencingToken, LockContext};
use serde::{Deserialize, Serialize};

use crate::show;
use crate::worker::send;

/// What happens to a body, with an id of type `B`, that changes a resource of type `R` under a lock.
#[derive(Debug, Serialize, Deserialize)]
pub struct Event<R, B> {
    /// What the body changes.
    pub resource: R,
    /// Which body it is.
    pub body: B,
    /// What happens.
    pub step: Step,
}

/// What happens to a body.
#[derive(Debug, Serialize, Deserialize)]
pub enum Step {
    /// It begins.
    Begun,
    /// It ends.
    Ended(Hold),
    /// Anything else, in words.
    Note(String),
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

/// Runs a body of a call that was made at this time, and sends an event before it and one after it. No event follows an
/// error.
pub async fn turn<R: Serialize + Copy, B: Serialize + Copy, T>(
    (resource, body): (R, B),
    called: Instant,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let (waited, begun) = (called.elapsed(), Instant::now());
    let token = LockContext::current().map(|lock| lock.fencing_token());
    let event = |step| send(&Event { resource, body, step });
    event(Step::Begun)?;
    let done = work.await?;
    let held = begun.elapsed();
    event(Step::Ended(Hold { token, waited, held }))?;
    Ok(done)
}

/// Tells the parent something about a body.
pub fn note<R: Serialize, B: Serialize>((resource, body): (R, B), text: &str) -> anyhow::Result<()> {
    let step = Step::Note(text.to_owned());
    send(&Event { resource, body, step })
}

/// The events so far.
#[derive(Debug, Default)]
pub struct Turns<R, B> {
    /// The bodies that have begun, and for each the numbers of bodies that began after it, for the same and for other resources.
    running: Vec<((R, B), usize, usize)>,
    ended: Vec<(R, B)>,
    overlaps: BTreeMap<R, usize>,
    in_parallel: usize,
}

impl<R: Ord + Clone, B: PartialEq + Clone> Turns<R, B> {
    /// Adds an event. Each pair of bodies that run at the same time is counted once, at the end of the one that began
    /// first. A body that never ends, because its process was killed, counts nothing: the time of its end is not known.
    pub fn add(&mut self, event: &Event<R, B>) {
        let id = (event.resource.clone(), event.body.clone());
        match event.step {
            Step::Begun => {
                for (running, same, other) in &mut self.running {
                    *(if running.0 == id.0 { same } else { other }) += 1;
                }
                self.running.push((id, 0, 0));
            }
            Step::Ended(_) => {
                if let Some(index) = self.running.iter().rposition(|running| running.0 == id) {
                    let (_, same, other) = self.running.remove(index);
                    *self.overlaps.entry(id.0.clone()).or_default() += same;
                    self.in_parallel += other;
                }
                self.ended.push(id);
            }
            Step::Note(_) => {}
        }
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

    #[test]
    fn each_pair_that_overlaps_counts_once() {
        // `+` begins and `-` ends a body, named by its resource and its number.
        for (steps, overlaps, in_parallel) in [
            ("+a1 -a1 +a2 -a2", 0, 0),
            ("+a1 +a2 -a1 -a2", 1, 0),
            ("+a1 +a2 -a2 -a1", 1, 0),
            ("+a1 +b1 -a1 -b1", 0, 1),
            ("+a1 +a2 +b1 -a2 -b1 -a1", 1, 2),
            // The first one was killed, or was given up and repeated.
            ("+a1 +a2 -a2", 0, 0),
            ("+a1 +a2 -a2 +a1 -a1", 0, 0),
        ] {
            let mut turns = Turns::default();
            for step in steps.split(' ') {
                let (resource, body) = (&step[1..2], &step[2..]);
                let step = if step.starts_with('+') {
                    Step::Begun
                } else {
                    Step::Ended(Hold::default())
                };
                turns.add(&Event { resource, body, step });
            }
            let sum: usize = turns.overlaps().map(|(_, pairs)| pairs).sum();
            assert_eq!((sum, turns.in_parallel()), (overlaps, in_parallel), "{steps}");
        }
    }
}
