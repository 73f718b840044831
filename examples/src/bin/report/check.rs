//! What the calls have done, compared with the reports.

use std::collections::{BTreeSet, HashSet};

use mongolock_examples::summary::{Summary, count};
use mongolock_examples::turns::Turns;

use crate::{Call, Options, Report};

/// Checks that every call has ended, that each has left its revision, that no two of them overlap, and that the tokens
/// rise strictly in each report.
pub(crate) fn check(turns: &Turns<u32, Call>, reports: &[Report], options: &Options) -> Summary {
    let mut summary = Summary::default();
    let expected = options.processes as usize * options.calls as usize;
    let calls = turns.ended().len();
    summary.row("calls", format!("{calls} of {expected}"));
    summary.check(calls == expected, format!("{calls} of {expected} calls ended"));

    let written = |report: &Report| {
        let id = report.id;
        let calls = report.revisions.iter().map(move |revision| (id, revision.call));
        calls.collect::<Vec<_>>()
    };
    let written: HashSet<(u32, Call)> = reports.iter().flat_map(written).collect();
    let lost: Vec<_> = turns
        .ended()
        .iter()
        .filter(|call| !written.contains(call))
        .collect();
    let lost_in = places(lost.iter().map(|(report, _)| *report));
    let lost = lost.len();
    summary.zero(
        "lost updates",
        lost,
        format!("{lost} of {calls} updates lost ({lost_in})"),
    );

    let overlaps: usize = turns.overlaps().map(|(_, pairs)| pairs).sum();
    let overlaps_in = places(turns.overlaps().map(|(report, _)| *report));
    let counted = count(overlaps, "overlap", "overlaps");
    summary.zero("overlaps", overlaps, format!("{counted} ({overlaps_in})"));

    if options.without_lock {
        summary.row("tokens", "none");
    } else {
        let wrong = reports.iter().filter(|report| !tokens_rise(report));
        let wrong = wrong.map(|report| format!("tokens do not rise in report {}", report.id));
        let passed = "rise strictly in every report, in the order of the writes";
        summary.finding("tokens", passed, wrong);
    }
    summary
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
    use clap::Parser;
    use mongolock::FencingToken;
    use mongolock_examples::turns::{Event, Hold};

    use super::*;
    use crate::Revision;

    fn call(process: u32) -> Call {
        Call { process, number: 1 }
    }

    /// The failures of two processes with one call each. A positive number is the beginning of the call of that process, a
    /// negative one is its end. The report has revisions of these processes with these tokens.
    fn failures(events: &[i32], revisions: &[(u32, i64)]) -> Vec<String> {
        let mut turns = Turns::default();
        for number in events {
            turns.add(Event {
                resource: 1,
                body: call(number.unsigned_abs()),
                end: (*number < 0).then(Hold::default),
            });
        }
        let revisions = revisions.iter().map(|(process, token)| Revision {
            call: call(*process),
            token: Some(FencingToken::from(*token)),
        });
        let report = Report {
            id: 1,
            revisions: revisions.collect(),
        };
        let options = Options::parse_from(["report", "--processes=2", "--calls=1", "--ids=1"]);
        check(&turns, &[report], &options).failures().to_vec()
    }

    #[test]
    fn each_problem_is_found() {
        let (in_turn, written) = ([1, -1, 2, -2], [(1, 5), (2, 9)]);
        assert!(failures(&in_turn, &written).is_empty());
        assert_eq!(failures(&in_turn, &[(1, 5)]), ["1 of 2 updates lost (report 1)"]);
        assert_eq!(
            failures(&in_turn, &[(1, 5), (2, 5)]),
            ["tokens do not rise in report 1"]
        );
        assert_eq!(failures(&[1, 2, -1, -2], &written), ["1 overlap (report 1)"]);
        assert_eq!(failures(&[1, 2, -2], &written), ["1 of 2 calls ended"]);
    }

    #[test]
    fn up_to_ten_reports_are_listed() {
        assert_eq!(places([3].into_iter()), "report 3");
        assert_eq!(places([3, 1, 3].into_iter()), "reports 1, 3");
        assert_eq!(places(1..=11), "11 reports");
    }
}
