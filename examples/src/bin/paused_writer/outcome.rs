//! What has become of the stale writes.

use std::collections::BTreeSet;
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

    fn word(&self) -> &'static str {
        if self.rejection.is_some() {
            "rejected"
        } else {
            "accepted"
        }
    }

    /// For a line with all outcomes of a run.
    pub(crate) fn short(&self) -> String {
        format!("{}, {}", self.word(), self.balance)
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

/// A line for each way.
pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let lines = Way::ALL.map(|way| row(way, &of(way, outcomes)));
    format!(
        "\nway to write    stale writes       final balance  result\n{}",
        lines.join("\n")
    )
}

/// Checks all outcomes.
pub(crate) fn judge(outcomes: &[Outcome]) -> Summary {
    let mut summary = Summary::default();
    for way in Way::ALL {
        let own = of(way, outcomes);
        let wrong = own.iter().filter(|outcome| !outcome.is_expected()).count();
        summary.check(wrong == 0, || {
            let title = way.title();
            format!(
                "{wrong} of {} stale writes ended in an unexpected way ({title})",
                own.len()
            )
        });
    }
    summary
}

fn of(way: Way, outcomes: &[Outcome]) -> Vec<&Outcome> {
    outcomes.iter().filter(|outcome| outcome.way == way).collect()
}

fn row(way: Way, outcomes: &[&Outcome]) -> String {
    let word = if way == Way::Plain { "accepted" } else { "rejected" };
    let count = outcomes.iter().filter(|outcome| outcome.word() == word).count();
    let balances: BTreeSet<i64> = outcomes.iter().map(|outcome| outcome.balance).collect();
    let balances: Vec<String> = balances.iter().map(i64::to_string).collect();
    let result = if outcomes.iter().all(|outcome| outcome.lost_update()) {
        "the update of writer 2 is lost"
    } else if outcomes.iter().all(|outcome| outcome.kept_update()) {
        "the update of writer 2 is kept"
    } else {
        "not always the same"
    };
    let counted = format!("{count} of {} {word}", outcomes.len());
    format!(
        "{:<14}  {counted:<17}  {:<13}  {result}",
        way.title(),
        balances.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(way: Way, balance: i64, rejected: bool) -> Outcome {
        Outcome {
            way,
            balance,
            rejection: rejected.then(|| "LockError::Stale".to_owned()),
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
        for (wrong, title) in [
            (outcome(Way::Plain, 150, false), "plain"),
            (outcome(Way::Plain, 150, true), "plain"),
            (outcome(Way::Fenced, 110, false), "fenced"),
            (outcome(Way::Fenced, 110, true), "fenced"),
            (outcome(Way::Guarded, 160, false), "guarded commit"),
            (outcome(Way::Guarded, 100, true), "guarded commit"),
        ] {
            let mut outcomes = right();
            outcomes.push(wrong);
            let failure = format!("1 of 2 stale writes ended in an unexpected way ({title})");
            assert_eq!(judge(&outcomes).failures(), [failure]);
        }
    }

    #[test]
    fn the_table_counts() {
        let (kept, lost) = (outcome(Way::Fenced, 150, true), outcome(Way::Fenced, 110, false));
        let row = row(Way::Fenced, &[&kept, &lost]);
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "fenced 1 of 2 rejected 110, 150 not always the same"
        );
    }
}
