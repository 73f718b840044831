//! What the calls add up to, and what went wrong among them.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::event::{CallKey, Event, Kind};
use crate::store::Report;

/// Follows the events in the order in which they were written.
///
/// How overlaps are found: all processes write to one pipe, and the system keeps the order of the writes. A body
/// writes its first line after the lock was acquired and its last line before the lock is released. So if the lock
/// works, the first line of a body always comes after the last line of the body before it; and a first line between
/// the two lines of another body proves that both ran at the same time. No clock is compared with another, and the
/// MongoDB under test is not asked.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    reports: BTreeMap<u32, Calls>,
}

/// The calls for one report.
#[derive(Debug, Default)]
struct Calls {
    /// The bodies that run, each with the number of others that began after it.
    running: HashMap<CallKey, usize>,
    ended: HashSet<CallKey>,
    overlaps: usize,
}

/// The verdict on one report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) id: u32,
    pub(crate) calls: usize,
    /// Calls that said they had written, but are not in the report.
    pub(crate) lost: usize,
    pub(crate) overlaps: usize,
    pub(crate) tokens: Tokens,
}

/// How the fencing tokens went, in the order of the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tokens {
    Rose,
    DidNotRise,
    /// Some or all calls were made without a lock.
    Missing,
}

impl Tally {
    pub(crate) fn count(&mut self, event: &Event) {
        let calls = self.reports.entry(event.id).or_default();
        match event.kind {
            Kind::Begin => {
                calls.running.values_mut().for_each(|others| *others += 1);
                calls.running.insert(event.call, 0);
            }
            // Counted here and not when the other one began: the body of a process that was killed does not run on,
            // but nobody says so.
            Kind::End(_) => {
                calls.overlaps += calls.running.remove(&event.call).unwrap_or_default();
                calls.ended.insert(event.call);
            }
        }
    }

    /// Compares what the calls said with what has become of a report.
    pub(crate) fn judge(&self, report: &Report) -> Verdict {
        let none = Calls::default();
        let calls = self.reports.get(&report.id).unwrap_or(&none);
        let written: HashSet<CallKey> = report.revisions.iter().map(|revision| revision.of).collect();
        let tokens: Vec<_> = report.revisions.iter().map(|revision| revision.token).collect();
        Verdict {
            id: report.id,
            calls: calls.ended.len(),
            lost: calls.ended.difference(&written).count(),
            overlaps: calls.overlaps,
            tokens: if tokens.contains(&None) {
                Tokens::Missing
            } else if tokens.is_sorted_by(|earlier, later| earlier < later) {
                Tokens::Rose
            } else {
                Tokens::DidNotRise
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::End;
    use crate::store::Revision;

    const FIRST: CallKey = CallKey {
        process: 1,
        number: 1,
    };
    const SECOND: CallKey = CallKey {
        process: 2,
        number: 1,
    };

    fn event(call: CallKey, kind: Kind) -> Event {
        Event { call, id: 1, kind }
    }

    fn end() -> Kind {
        Kind::End(End {
            token: None,
            waited: std::time::Duration::ZERO,
            held: std::time::Duration::ZERO,
        })
    }

    fn judge(events: &[Event], written: &[(CallKey, i64)]) -> Verdict {
        let mut tally = Tally::default();
        for event in events {
            tally.count(event);
        }
        let token = |token: i64| mongodb::bson::from_bson(token.into()).unwrap();
        let revisions = written.iter().map(|(of, number)| Revision {
            of: *of,
            token: Some(token(*number)),
        });
        tally.judge(&Report {
            id: 1,
            revisions: revisions.collect(),
        })
    }

    #[test]
    fn calls_in_turn_are_right() {
        let events = [
            event(FIRST, Kind::Begin),
            event(FIRST, end()),
            event(SECOND, Kind::Begin),
            event(SECOND, end()),
        ];
        let verdict = judge(&events, &[(FIRST, 5), (SECOND, 9)]);
        let right = Verdict {
            id: 1,
            calls: 2,
            lost: 0,
            overlaps: 0,
            tokens: Tokens::Rose,
        };
        assert_eq!(verdict, right);
        assert_eq!(judge(&events, &[(FIRST, 5)]).lost, 1);
        assert_eq!(
            judge(&events, &[(FIRST, 5), (SECOND, 5)]).tokens,
            Tokens::DidNotRise
        );
    }

    #[test]
    fn two_bodies_at_once_overlap_once() {
        let (begin_first, begin_second) = (event(FIRST, Kind::Begin), event(SECOND, Kind::Begin));
        let (end_first, end_second) = (event(FIRST, end()), event(SECOND, end()));
        let crossed = [
            begin_first.clone(),
            begin_second.clone(),
            end_first.clone(),
            end_second.clone(),
        ];
        assert_eq!(judge(&crossed, &[]).overlaps, 1);
        let nested = [
            begin_first.clone(),
            begin_second.clone(),
            end_second.clone(),
            end_first,
        ];
        assert_eq!(judge(&nested, &[]).overlaps, 1);
        let killed = [begin_first, begin_second, end_second];
        assert_eq!(judge(&killed, &[]).overlaps, 0);
    }
}
