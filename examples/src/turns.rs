//! Bodies that run at the same time, found by the order of what they send.
//!
//! All processes of a demonstration write to one pipe, and the system keeps the order of the writes. A body writes its
//! first line after the lock was acquired, and its last line before the lock is released. If the lock works, the first
//! line of a body therefore comes after the last line of the body before it. A first line between the two lines of
//! another body proves that both ran at the same time. No clock is compared with another, and the MongoDB server under
//! test is not asked.

/// Follows bodies with an id of type `B`, each of which changes a resource of type `R`.
#[derive(Debug)]
pub struct Turns<R, B> {
    running: Vec<Running<R, B>>,
}

/// A body that has begun, and the bodies that began after it.
#[derive(Debug)]
struct Running<R, B> {
    resource: R,
    body: B,
    overlaps: Overlaps,
}

/// How many bodies began while another one ran, by the resource that they change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overlaps {
    /// Bodies that change the same resource.
    pub same: usize,
    /// Bodies that change other resources.
    pub other: usize,
}

impl<R, B> Default for Turns<R, B> {
    fn default() -> Self {
        Self { running: Vec::new() }
    }
}

impl<R: PartialEq, B: PartialEq> Turns<R, B> {
    /// A body has begun.
    pub fn begin(&mut self, resource: R, body: B) {
        for running in &mut self.running {
            if running.resource == resource {
                running.overlaps.same += 1;
            } else {
                running.overlaps.other += 1;
            }
        }
        self.running.push(Running {
            resource,
            body,
            overlaps: Overlaps::default(),
        });
    }

    /// A body has ended. Each pair of bodies that ran at the same time is counted once, at the end of the one that began
    /// first. A body that never ends, because its process was killed, counts nothing: the time of its end is not known.
    pub fn end(&mut self, resource: &R, body: &B) -> Overlaps {
        let ended = |running: &Running<R, B>| running.resource == *resource && running.body == *body;
        self.running
            .iter()
            .position(ended)
            .map_or_else(Overlaps::default, |index| {
                self.running.swap_remove(index).overlaps
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums after these steps: `+` begins and `-` ends a body, named by its resource and its number.
    fn overlaps(steps: &str) -> (usize, usize) {
        let mut turns = Turns::default();
        let mut sums = (0, 0);
        for step in steps.split(' ') {
            let (kind, body) = step.split_at(1);
            let (resource, number) = body.split_at(1);
            if kind == "+" {
                turns.begin(resource, number);
            } else {
                let found = turns.end(&resource, &number);
                sums = (sums.0 + found.same, sums.1 + found.other);
            }
        }
        sums
    }

    #[test]
    fn each_pair_that_overlaps_counts_once() {
        assert_eq!(overlaps("+a1 -a1 +a2 -a2"), (0, 0), "in turn");
        assert_eq!(overlaps("+a1 +a2 -a1 -a2"), (1, 0), "crossed");
        assert_eq!(overlaps("+a1 +a2 -a2 -a1"), (1, 0), "nested");
        assert_eq!(overlaps("+a1 +b1 -a1 -b1"), (0, 1), "different resources");
        assert_eq!(overlaps("+a1 +a2 +b1 -a2 -b1 -a1"), (1, 2), "all pairs");
        assert_eq!(overlaps("+a1 +a2 -a2"), (0, 0), "the first was killed");
    }
}
