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
    let changes: Vec<&Changed> = replies
        .iter()
        .filter_map(|reply| reply.answer.as_ref().ok())
        .collect();
    let lost = changes
        .iter()
        .filter(|changed| !is_stored(changed, reports))
        .count();
    let mut summary = Summary::default();
    summary.row("changes", changes.len().to_string());
    summary.row("lost updates", lost.to_string());
    summary.check(lost == 0, || format!("{lost} of {} updates lost", changes.len()));

    let rise = |report: &Content| {
        report
            .revisions
            .is_sorted_by(|earlier, later| earlier.token < later.token)
    };
    let wrong = reports.iter().filter(|report| !rise(report));
    let wrong = wrong.map(|report| format!("tokens do not rise in report {}", report.id));
    summary.finding(
        "tokens",
        "rise strictly in every report, in the order of the writes",
        wrong,
    );

    let refused = |reason| {
        replies
            .iter()
            .filter(|reply| refusal(reply) == Some(reason))
            .count()
    };
    let (timeouts, busy) = (refused(Reason::LockTimeout), refused(Reason::LockBusy));
    // The revisions that no answer names.
    let stored: usize = reports.iter().map(|report| report.revisions.len()).sum();
    let unanswered = stored.saturating_sub(changes.len() - lost);
    let still_changed = format!("rejected requests that still changed data: {unanswered}");
    summary.row(
        "refused",
        format!("{timeouts} with 503 and Retry-After, {busy} with 409; {still_changed}"),
    );
    summary.check(timeouts > 0, || "no request was refused with 503".to_owned());
    summary.check(busy > 0, || "no request was refused with 409".to_owned());
    summary.check(unanswered == 0, || still_changed);

    let is_failed = |reply: &&Reply| reply.answer.is_err() && (reply.again || refusal(reply).is_none());
    let failed = replies.iter().filter(is_failed).count();
    summary.row("failed", failed.to_string());
    summary.check(failed == 0, || format!("{failed} requests failed"));

    let undelayed = undelayed(replies);
    let all = OTHERS as usize;
    let text = format!("{undelayed} of {all} changes made while report {SLOW} was held");
    summary.row("other reports", text);
    summary.check(undelayed == all, || {
        format!(
            "{} requests for other reports were delayed",
            all.saturating_sub(undelayed)
        )
    });
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

    use mongolock::FencingToken;

    use super::*;
    use crate::error::Problem;
    use crate::reports::Revision;

    fn changed(id: u32, revision: usize, token: i64, held_ms: u64) -> Reply {
        let changed = Changed {
            id,
            revision,
            token: FencingToken::from(token),
            instance: "instance 1".to_owned(),
            waited_ms: 0,
            held_ms,
        };
        reply(id, StatusCode::OK, Ok(changed))
    }

    fn refused(status: StatusCode, error: Reason) -> Reply {
        let problem = Problem {
            error,
            message: String::new(),
            waited_ms: None,
        };
        reply(SLOW, status, Err(problem))
    }

    fn reply(id: u32, status: StatusCode, answer: Result<Changed, Problem>) -> Reply {
        Reply {
            instance: 1,
            id,
            status,
            retry_after: (status == StatusCode::SERVICE_UNAVAILABLE).then_some(Duration::from_secs(1)),
            answer,
            again: false,
        }
    }

    fn content(id: u32, tokens: &[i64]) -> Content {
        let revision = |token: &i64| Revision {
            token: FencingToken::from(*token),
            instance: "instance 1".to_owned(),
        };
        Content {
            id,
            revisions: tokens.iter().map(revision).collect(),
        }
    }

    /// The other requests, one refused request for each reason, and the slow one.
    fn right() -> (Vec<Reply>, Vec<Content>) {
        let tokens: Vec<i64> = (1..=OTHERS.into()).collect();
        let others = tokens
            .iter()
            .zip(1..)
            .map(|(token, revision)| changed(SLOW + 1, revision, *token, 20));
        let mut replies: Vec<Reply> = others.collect();
        replies.push(refused(StatusCode::CONFLICT, Reason::LockBusy));
        replies.push(refused(StatusCode::SERVICE_UNAVAILABLE, Reason::LockTimeout));
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
        for reply in [
            refused(StatusCode::CONFLICT, Reason::LockTimeout),
            refused(StatusCode::INTERNAL_SERVER_ERROR, Reason::Internal),
            Reply {
                again: true,
                ..refused(StatusCode::SERVICE_UNAVAILABLE, Reason::LockTimeout)
            },
        ] {
            assert_eq!(failures(|replies, _| replies.push(reply)), ["1 requests failed"]);
        }
        let found = failures(|replies, _| replies.retain(|reply| reply.answer.is_ok()));
        assert_eq!(
            found,
            [
                "no request was refused with 503",
                "no request was refused with 409"
            ]
        );
    }

    #[test]
    fn changes_that_had_to_wait_for_the_slow_one_are_found() {
        let found = failures(|replies, _| {
            let slow = replies.pop().unwrap();
            replies.insert(0, slow);
        });
        assert_eq!(found, ["12 requests for other reports were delayed"]);
    }
}
