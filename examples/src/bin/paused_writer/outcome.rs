//! What has become of the stale writes.

use std::fmt;

use mongolock_examples::summary::Summary;

use crate::ways::Way;
use crate::{FIRST_DEPOSIT, OPENING, SECOND_DEPOSIT};

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) way: Way,
    /// The balance at the end.
    pub(crate) balance: i64,
    /// Why the stale write was rejected; `None` if it was accepted.
    pub(crate) rejection: Option<String>,
}

impl Outcome {
    fn lost_update(&self) -> bool {
        self.rejection.is_none() && self.balance == OPENING + FIRST_DEPOSIT
    }

    fn kept_update(&self) -> bool {
        self.rejection.is_some() && self.balance == OPENING + SECOND_DEPOSIT
    }

    /// Nothing rejects a plain write, and the two other ways must reject a stale one.
    fn is_expected(&self) -> bool {
        match self.way {
            Way::Plain => self.lost_update(),
            Way::Fenced | Way::Guarded => self.kept_update(),
        }
    }

    /// For a line with all outcomes of a run.
    pub(crate) fn short(&self) -> String {
        let word = self.rejection.as_ref().map_or("accepted", |_| "rejected");
        format!("{word}, {}", self.balance)
    }
}

/// The end of a timeline.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let balance = self.balance;
        match &self.rejection {
            Some(reason) => write!(f, "REJECTED: the balance is {balance}\n{:>11}{reason}", ""),
            None if self.lost_update() => write!(
                f,
                "LOST UPDATE: the balance is {balance}, the {SECOND_DEPOSIT} of writer 2 are gone"
            ),
            None => write!(f, "ACCEPTED: the balance is {balance}"),
        }
    }
}

/// Checks all outcomes; a row for each way.
pub(crate) fn judge(outcomes: &[Outcome]) -> Summary {
    let mut summary = Summary::default();
    for way in Way::ALL {
        let own = || outcomes.iter().filter(|outcome| outcome.way == way);
        let all = own().count();
        let expected = own().filter(|outcome| outcome.is_expected()).count();
        let passed = match way {
            Way::Plain => "accepted: the update of writer 2 is lost",
            Way::Fenced | Way::Guarded => "rejected: the update of writer 2 is kept",
        };
        let wrong = (expected < all).then(|| {
            let title = way.title();
            format!("only {expected} of {all} stale writes were {passed} ({title})")
        });
        summary.finding(
            way.title(),
            &format!("{all} of {all} stale writes were {passed}"),
            wrong,
        );
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(way: Way, balance: i64, is_rejected: bool) -> Outcome {
        Outcome {
            way,
            balance,
            rejection: is_rejected.then(String::new),
        }
    }

    #[test]
    fn a_plain_write_has_to_destroy_and_the_others_have_to_be_rejected() {
        let right = || {
            vec![
                outcome(Way::Plain, 110, false),
                outcome(Way::Fenced, 150, true),
                outcome(Way::Guarded, 150, true),
            ]
        };
        assert!(judge(&right()).failures().is_empty());
        for (way, balance, is_rejected) in [
            (Way::Plain, 150, false),
            (Way::Plain, 150, true),
            (Way::Fenced, 110, false),
            (Way::Fenced, 110, true),
            (Way::Guarded, 160, false),
            (Way::Guarded, 100, true),
        ] {
            let mut outcomes = right();
            outcomes.push(outcome(way, balance, is_rejected));
            let summary = judge(&outcomes);
            let [failure] = summary.failures() else {
                panic!("{summary}");
            };
            let is_named =
                failure.starts_with("only 1 of 2 ") && failure.ends_with(&format!("({})", way.title()));
            assert!(is_named, "{failure}");
        }
    }
}
