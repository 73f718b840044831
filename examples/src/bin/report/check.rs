//! What the calls have done, compared with the reports.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use mongolock_examples::summary::{Summary, count};
use mongolock_examples::turns::Turns;

use crate::{Call, Event, Options, Report};

/// The calls so far, from their events in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    turns: Turns<u32, Call>,
    ended: Vec<(u32, Call)>,
    /// Pairs of bodies that ran at the same time, by their report.
    overlaps: BTreeMap<u32, usize>,
}

impl Calls {
    pub(crate) fn add(&mut self, event: Event) {
        match event {
            Event::Begin { report, call } => self.turns.begin(report, call),
            Event::End(end) => {
                let overlaps = self.turns.end(&end.report, &end.call).same;
                *self.overlaps.entry(end.report).or_default() += overlaps;
                self.ended.push((end.report, end.call));
            }
        }
    }

    /// Checks that every call has ended, that each has left its revision, that no two of them overlap, and that the
    /// tokens rise strictly in each report.
    pub(crate) fn compare(&self, reports: &[Report], options: &Options) -> Summary {
        let expected = options.processes as usize * options.calls as usize;
        let calls = self.ended.len();
        let lost = self.lost(reports);
        let overlaps: usize = self.overlaps.values().sum();

        let mut summary = Summary::default();
        summary.row("calls", format!("{calls} of {expected}"));
        summary.check(calls == expected, || format!("{calls} of {expected} calls ended"));
        summary.row("lost updates", lost.len().to_string());
        summary.check(lost.is_empty(), || {
            let places = places(lost.iter().map(|(report, _)| *report));
            format!("{} of {calls} updates lost ({places})", lost.len())
        });
        summary.row("overlaps", overlaps.to_string());
        summary.check(overlaps == 0, || {
            let wrong = self.overlaps.iter().filter(|(_, count)| **count > 0);
            format!(
                "{} ({})",
                count(overlaps, "overlap", "overlaps"),
                places(wrong.map(|(report, _)| *report))
            )
        });
        if options.without_lock {
            summary.row("tokens", "none");
        } else {
            let wrong = reports.iter().filter(|report| !tokens_rise(report));
            let wrong = wrong.map(|report| format!("tokens do not rise in report {}", report.id));
            summary.finding(
                "tokens",
                "rise strictly in every report, in the order of the writes",
                wrong,
            );
        }
        summary
    }

    /// The calls that have ended, but have left no revision in their report.
    fn lost(&self, reports: &[Report]) -> Vec<(u32, Call)> {
        let revisions = |report: &Report| {
            let id = report.id;
            let calls = report.revisions.iter().map(move |revision| (id, revision.call));
            calls.collect::<Vec<_>>()
        };
        let written: HashSet<(u32, Call)> = reports.iter().flat_map(revisions).collect();
        let ended = self.ended.iter().copied();
        ended.filter(|call| !written.contains(call)).collect()
    }
}

fn tokens_rise(report: &Report) -> bool {
    let tokens = || report.revisions.iter().map(|revision| revision.token);
    tokens().all(|token| token.is_some()) && tokens().is_sorted_by(|earlier, later| earlier < later)
}

/// "report 1", "reports 1, 2", "14 reports".
fn places(reports: impl Iterator<Item = u32>) -> String {
    let reports: BTreeSet<u32> = reports.collect();
    let list: Vec<String> = reports.iter().map(u32::to_string).collect();
    match list.len() {
        1 => format!("report {}", list[0]),
        2..=10 => format!("reports {}", list.join(", ")),
        many => format!("{many} reports"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use mongolock::FencingToken;

    use super::*;
    use crate::{End, Revision};

    const FIRST: Call = Call {
        process: 1,
        number: 1,
    };
    const SECOND: Call = Call {
        process: 2,
        number: 1,
    };

    fn begin(call: Call) -> Event {
        Event::Begin { report: 1, call }
    }

    fn end(call: Call) -> Event {
        Event::End(End {
            report: 1,
            call,
            token: None,
            waited: Duration::ZERO,
            held: Duration::ZERO,
        })
    }

    /// The failures of two processes with one call each, after these events, with these revisions in the report.
    fn failures(events: impl IntoIterator<Item = Event>, written: &[(Call, i64)]) -> Vec<String> {
        let mut calls = Calls::default();
        for event in events {
            calls.add(event);
        }
        let revisions = written.iter().map(|(call, token)| Revision {
            call: *call,
            token: Some(FencingToken::from(*token)),
        });
        let report = Report {
            id: 1,
            revisions: revisions.collect(),
        };
        let options = Options::parse_from(["report", "--processes=2", "--calls=1", "--ids=1"]);
        calls.compare(&[report], &options).failures().to_vec()
    }

    #[test]
    fn calls_in_turn_pass() {
        let events = [begin(FIRST), end(FIRST), begin(SECOND), end(SECOND)];
        assert!(failures(events, &[(FIRST, 5), (SECOND, 9)]).is_empty());
    }

    #[test]
    fn a_lost_update_an_overlap_and_a_missing_call_fail() {
        let events = || [begin(FIRST), end(FIRST), begin(SECOND), end(SECOND)];
        assert_eq!(
            failures(events(), &[(FIRST, 5)]),
            ["1 of 2 updates lost (report 1)"]
        );
        let equal = failures(events(), &[(FIRST, 5), (SECOND, 5)]);
        assert_eq!(equal, ["tokens do not rise in report 1"]);
        let crossed = [begin(FIRST), begin(SECOND), end(FIRST), end(SECOND)];
        let written = [(FIRST, 5), (SECOND, 9)];
        assert_eq!(failures(crossed, &written), ["1 overlap (report 1)"]);
        let killed = [begin(FIRST), begin(SECOND), end(SECOND)];
        assert_eq!(failures(killed, &written), ["1 of 2 calls ended"]);
    }

    #[test]
    fn up_to_ten_reports_are_listed() {
        assert_eq!(places([3].into_iter()), "report 3");
        assert_eq!(places([3, 1, 3].into_iter()), "reports 1, 3");
        assert_eq!(places(1..=11), "11 reports");
    }
}
