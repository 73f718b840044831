//! The answers, compared with the reports.

use mongolock_examples::summary::Summary;
use reqwest::StatusCode;

use crate::error::Reason;
use crate::reports::Changed;
use crate::service::Content;
use crate::traffic::{OTHERS, Reply, SLOW};

/// Checks that every change is in its report and nothing else is, that the tokens rise, that requests were refused in
/// both ways, and that the slow request has delayed no request for another report.
pub(crate) fn check(replies: &[Reply], reports: &[Content]) -> Summary {
    let mut summary = Summary::default();
    let changes = replies.iter().filter_map(|reply| reply.answer.as_ref().ok());
    let changes: Vec<&Changed> = changes.collect();
    let (all, stored) = (
        changes.len(),
        changes.iter().filter(|changed| is_stored(changed, reports)),
    );
    let stored = stored.count();
    summary.row("changes", all);
    summary.zero(
        "lost updates",
        all - stored,
        format!("{} of {all} updates lost", all - stored),
    );

    let tokens = |report: &Content| report.revisions.iter().map(|it| it.token).collect::<Vec<_>>();
    let rise = |report: &Content| tokens(report).is_sorted_by(|earlier, later| earlier < later);
    let wrong = reports.iter().filter(|report| !rise(report));
    let wrong = wrong.map(|report| format!("tokens do not rise in report {}", report.id));
    let passed = "rise strictly in every report, in the order of the writes";
    summary.finding("tokens", passed, wrong);

    let refusals: Vec<Option<Reason>> = replies.iter().map(refusal).collect();
    let refused = |reason| refusals.iter().filter(|found| **found == Some(reason)).count();
    let (timeouts, busy) = (refused(Reason::LockTimeout), refused(Reason::LockBusy));
    let revisions: usize = reports.iter().map(|report| report.revisions.len()).sum();
    let unanswered = revisions.saturating_sub(stored);
    let still_changed = format!("rejected requests that still changed data: {unanswered}");
    let refused = format!("{timeouts} with 503 and Retry-After, {busy} with 409; {still_changed}");
    summary.row("refused", refused);
    summary.check(timeouts > 0, "no request was refused with 503");
    summary.check(busy > 0, "no request was refused with 409");
    summary.check(unanswered == 0, still_changed);

    let is_failed = |reply: &&Reply| reply.answer.is_err() && (reply.again || refusal(reply).is_none());
    let failed = replies.iter().filter(is_failed).count();
    summary.zero("failed", failed, format!("{failed} requests failed"));

    let (all, undelayed) = (OTHERS as usize, undelayed(replies));
    let text = format!("{undelayed} of {all} changes made while report {SLOW} was held");
    summary.check(undelayed == all, format!("only {text}"));
    summary.row("other reports", text);
    summary
}

/// Whether the report has the revision of this change.
fn is_stored(changed: &Changed, reports: &[Content]) -> bool {
    let report = reports.iter().find(|report| report.id == changed.id);
    let revision = report.and_then(|report| report.revisions.get(changed.revision.checked_sub(1)?));
    revision.is_some_and(|revision| revision.token == changed.token)
}

/// Why nothing was changed, if the answer is complete: the status, and the time to send the request again.
fn refusal(reply: &Reply) -> Option<Reason> {
    let problem = reply.answer.as_ref().err()?;
    let expected = match problem.error {
        Reason::LockTimeout => (StatusCode::SERVICE_UNAVAILABLE, true),
        Reason::LockBusy => (StatusCode::CONFLICT, false),
        _ => return None,
    };
    ((reply.status, reply.retry_after.is_some()) == expected).then_some(problem.error)
}

/// The number of changes of other reports before the end of the slow request.
fn undelayed(replies: &[Reply]) -> usize {
    let held = |reply: &Reply| reply.answer.as_ref().map_or(0, |changed| changed.held_ms);
    let slow = (0..replies.len()).filter(|at| replies[*at].id == SLOW);
    let slow = slow.max_by_key(|at| held(&replies[*at])).unwrap_or_default();
    let before = replies[..slow].iter();
    before
        .filter(|reply| reply.id != SLOW && reply.answer.is_ok())
        .count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{from_value, json};

    use super::*;
    use crate::error::Problem;

    fn changed(id: u32, revision: usize, token: i64, held_ms: u64) -> Reply {
        let changed = json!({
            "id": id, "revision": revision, "token": token, "instance": "1", "waited_ms": 0, "held_ms": held_ms
        });
        reply(id, 200, Ok(from_value(changed).unwrap()))
    }

    fn refused(status: u16, reason: &str) -> Reply {
        let problem = json!({ "error": reason, "message": "" });
        reply(SLOW, status, Err(from_value(problem).unwrap()))
    }

    fn reply(id: u32, status: u16, answer: Result<Changed, Problem>) -> Reply {
        Reply {
            instance: 1,
            id,
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: (status == 503).then_some(Duration::from_secs(1)),
            answer,
            again: false,
        }
    }

    fn content(id: u32, tokens: &[i64]) -> Content {
        let revision = |token| json!({ "token": token, "instance": "1" });
        let revisions: Vec<_> = tokens.iter().map(revision).collect();
        from_value(json!({ "id": id, "revisions": revisions })).unwrap()
    }

    /// The other requests, one refused request for each reason, and the slow one.
    fn right() -> (Vec<Reply>, Vec<Content>) {
        let tokens: Vec<i64> = (1..=OTHERS.into()).collect();
        let others = (1..).zip(&tokens);
        let others = others.map(|(revision, token)| changed(SLOW + 1, revision, *token, 20));
        let mut replies: Vec<Reply> = others.collect();
        replies.push(refused(409, "lock_busy"));
        replies.push(refused(503, "lock_timeout"));
        replies.push(changed(SLOW, 1, 7, 2000));
        (replies, vec![content(SLOW, &[7]), content(SLOW + 1, &tokens)])
    }

    /// The failures after a change of what is right.
    fn failures(change: impl FnOnce(&mut Vec<Reply>, &mut Vec<Content>)) -> Vec<String> {
        let (mut replies, mut reports) = right();
        change(&mut replies, &mut reports);
        check(&replies, &reports).failures().to_vec()
    }

    #[test]
    fn right_answers_pass() {
        assert!(failures(|_, _| {}).is_empty());
    }

    #[test]
    fn wrong_reports_are_found() {
        let lost = failures(|_, reports| reports[0] = content(SLOW, &[]));
        assert_eq!(lost, ["1 of 13 updates lost"]);
        let more = failures(|_, reports| reports[0] = content(SLOW, &[7, 9]));
        assert_eq!(more, ["rejected requests that still changed data: 1"]);
        let fell = failures(|replies, reports| {
            replies.push(changed(SLOW, 2, 6, 20));
            reports[0] = content(SLOW, &[7, 6]);
        });
        assert_eq!(fell, ["tokens do not rise in report 1"]);
    }

    #[test]
    fn a_wrong_refusal_is_a_failure() {
        let mut twice = refused(503, "lock_timeout");
        twice.again = true;
        for reply in [refused(409, "lock_timeout"), refused(500, "internal"), twice] {
            assert_eq!(failures(|replies, _| replies.push(reply)), ["1 requests failed"]);
        }
        let found = failures(|replies, _| replies.retain(|reply| reply.answer.is_ok()));
        let no = |status| format!("no request was refused with {status}");
        assert_eq!(found, [no(503), no(409)]);
    }

    #[test]
    fn changes_that_had_to_wait_for_the_slow_one_are_found() {
        let found = failures(|replies, _| {
            let slow = replies.pop().unwrap();
            replies.insert(0, slow);
        });
        assert_eq!(found, ["only 0 of 12 changes made while report 1 was held"]);
    }
}
