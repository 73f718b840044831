//! What the demonstration prints and checks.

use std::fmt;
use std::time::Duration;

use mongolock_examples::duration::show;
use reqwest::StatusCode;

use crate::answer::{Changed, Content, Reason};
use crate::client::Reply;
use crate::traffic::{OTHERS, SLOW};

/// The heading of the columns of [`line()`].
pub(crate) const HEADING: &str = "instance  report     fencing token      waited        held  status";

/// The line of an answer.
pub(crate) fn line(reply: &Reply) -> String {
    let none = || "-".to_owned();
    let millis = |millis| show(Duration::from_millis(millis));
    let (token, waited, held) = match &reply.answer {
        Ok(changed) => (
            changed.token.to_string(),
            millis(changed.waited_ms),
            millis(changed.held_ms),
        ),
        Err(problem) => (none(), problem.waited_ms.map_or_else(none, millis), none()),
    };
    let again = reply.retry_after.map_or_else(String::new, |pause| {
        format!(", again after {} s", pause.as_secs())
    });
    format!(
        "{:>8}  {:>6}  {token:>16}  {waited:>10}  {held:>10}  {}{again}",
        reply.instance,
        reply.id,
        reply.status.as_u16()
    )
}

/// The answers, in the order in which they came, and the reports at the end.
pub(crate) struct Outcome {
    pub(crate) replies: Vec<Reply>,
    pub(crate) reports: Vec<Content>,
}

impl Outcome {
    /// Nothing went wrong, and there was something to see.
    pub(crate) fn is_right(&self) -> bool {
        self.lost() == 0
            && self.unasked() == 0
            && self.tokens_rose()
            && self.refused(Reason::LockTimeout) > 0
            && self.refused(Reason::LockBusy) > 0
            && self.failed() == 0
            && self.not_held_up() == OTHERS as usize
    }

    fn changes(&self) -> impl Iterator<Item = &Changed> {
        self.replies.iter().filter_map(|reply| reply.answer.as_ref().ok())
    }

    /// Changes that are not the revision that their answer says.
    fn lost(&self) -> usize {
        self.changes().filter(|changed| !self.is_stored(changed)).count()
    }

    fn is_stored(&self, changed: &Changed) -> bool {
        let report = self.reports.iter().find(|report| report.id == changed.id);
        report
            .and_then(|report| report.revisions.get(changed.revision.checked_sub(1)?))
            .is_some_and(|revision| revision.token == changed.token)
    }

    /// Revisions of which no answer speaks: a refused request must not leave one.
    fn unasked(&self) -> usize {
        let stored: usize = self.reports.iter().map(|report| report.revisions.len()).sum();
        stored.saturating_sub(self.changes().count() - self.lost())
    }

    fn tokens_rose(&self) -> bool {
        self.reports.iter().all(|report| {
            report
                .revisions
                .is_sorted_by(|earlier, later| earlier.token < later.token)
        })
    }

    /// Requests that were turned away for this reason, in the right way.
    fn refused(&self, reason: Reason) -> usize {
        self.replies
            .iter()
            .filter(|reply| refusal(reply) == Some(reason))
            .count()
    }

    /// Neither changed nor refused, or refused twice.
    fn failed(&self) -> usize {
        self.replies
            .iter()
            .filter(|reply| reply.answer.is_err() && (reply.again || refusal(reply).is_none()))
            .count()
    }

    /// Changes of other reports that were made before the slow request was done.
    fn not_held_up(&self) -> usize {
        let held = |reply: &Reply| reply.answer.as_ref().map_or(0, |changed| changed.held_ms);
        let slow = (0..self.replies.len())
            .filter(|&at| self.replies[at].id == SLOW)
            .max_by_key(|&at| held(&self.replies[at]))
            .unwrap_or_default();
        let before = self.replies[..slow].iter();
        before
            .filter(|reply| reply.id != SLOW && reply.answer.is_ok())
            .count()
    }
}

/// Why nothing was changed, if the answer says all that it should: the status, the lock, and when to come again.
fn refusal(reply: &Reply) -> Option<Reason> {
    let problem = reply.answer.as_ref().err()?;
    let is_named = problem.lock == Some(format!("report:{}", reply.id));
    let is_right = match problem.error {
        Reason::LockTimeout => reply.status == StatusCode::SERVICE_UNAVAILABLE && reply.retry_after.is_some(),
        Reason::LockBusy => reply.status == StatusCode::CONFLICT,
        _ => false,
    };
    (is_named && is_right).then_some(problem.error)
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rose = if self.tokens_rose() {
            "rose strictly in every report, in the order of the writes"
        } else {
            "did not rise strictly"
        };
        writeln!(f)?;
        writeln!(f, "changes        {}", self.changes().count())?;
        writeln!(f, "lost updates   {}", self.lost())?;
        writeln!(f, "tokens         {rose}")?;
        writeln!(
            f,
            "refused        {} with 503 and Retry-After, {} with 409; of these made all the same: {}",
            self.refused(Reason::LockTimeout),
            self.refused(Reason::LockBusy),
            self.unasked()
        )?;
        writeln!(f, "failed         {}", self.failed())?;
        writeln!(
            f,
            "other reports  {} of {OTHERS} changes made while report {SLOW} was held",
            self.not_held_up()
        )?;
        if self.is_right() {
            write!(f, "\nEverything is right.")
        } else {
            write!(f, "\nSomething went wrong.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::answer::Problem;
    use crate::reports::Revision;

    fn token(number: i64) -> mongolock::FencingToken {
        mongodb::bson::from_bson(number.into()).unwrap()
    }

    fn changed(id: u32, revision: usize, number: i64, held_ms: u64) -> Reply {
        let changed = Changed {
            id,
            revision,
            token: token(number),
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
            lock: Some(format!("report:{SLOW}")),
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
        let revision = |number: &i64| Revision {
            token: token(*number),
            instance: "instance 1".to_owned(),
        };
        Content {
            id,
            revisions: tokens.iter().map(revision).collect(),
        }
    }

    /// The others, one refused for each reason, and the slow one.
    fn right() -> Outcome {
        let tokens: Vec<i64> = (1..=OTHERS.into()).collect();
        let others = tokens
            .iter()
            .zip(1..)
            .map(|(&token, revision)| changed(SLOW + 1, revision, token, 20));
        let mut replies: Vec<_> = others.collect();
        replies.push(refused(StatusCode::CONFLICT, Reason::LockBusy));
        replies.push(refused(StatusCode::SERVICE_UNAVAILABLE, Reason::LockTimeout));
        replies.push(changed(SLOW, 1, 7, 2000));
        Outcome {
            replies,
            reports: vec![content(SLOW, &[7]), content(SLOW + 1, &tokens)],
        }
    }

    #[test]
    fn what_is_right_is_found_right() {
        assert!(right().is_right(), "{}", right());
    }

    #[test]
    fn a_lost_update_is_found() {
        let mut outcome = right();
        outcome.reports[0] = content(SLOW, &[]);
        assert_eq!((outcome.lost(), outcome.unasked()), (1, 0));
        assert!(!outcome.is_right());
    }

    #[test]
    fn a_change_of_a_refused_request_is_found() {
        let mut outcome = right();
        outcome.reports[0] = content(SLOW, &[7, 9]);
        assert_eq!((outcome.lost(), outcome.unasked()), (0, 1));
        assert!(!outcome.is_right());
    }

    #[test]
    fn tokens_that_fall_are_found() {
        let mut outcome = right();
        outcome.replies.push(changed(SLOW, 2, 6, 20));
        outcome.reports[0] = content(SLOW, &[7, 6]);
        assert_eq!((outcome.lost(), outcome.unasked()), (0, 0));
        assert!(!outcome.is_right());
    }

    #[test]
    fn a_wrong_refusal_is_a_failure() {
        let mut outcome = right();
        outcome
            .replies
            .push(refused(StatusCode::CONFLICT, Reason::LockTimeout));
        assert_eq!(outcome.failed(), 1);
        outcome
            .replies
            .push(refused(StatusCode::INTERNAL_SERVER_ERROR, Reason::Internal));
        assert_eq!(outcome.failed(), 2);
        let mut again = refused(StatusCode::SERVICE_UNAVAILABLE, Reason::LockTimeout);
        again.again = true;
        outcome.replies.push(again);
        assert_eq!(outcome.failed(), 3);
        assert!(!outcome.is_right());
    }

    #[test]
    fn a_change_that_had_to_wait_for_the_slow_report_is_found() {
        let mut outcome = right();
        let slow = outcome.replies.pop().unwrap();
        outcome.replies.insert(0, slow);
        assert_eq!(outcome.not_held_up(), 0);
        assert!(!outcome.is_right());
    }
}
