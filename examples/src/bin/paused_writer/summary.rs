//! What the program prints, and what it makes of the outcomes.

use std::collections::BTreeSet;
use std::fmt;

use mongolock_examples::duration::show;

use crate::account::{FIRST_DEPOSIT, OPENING, SECOND_DEPOSIT};
use crate::options::Options;
use crate::ways::Way;

/// What has become of the late write.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) way: Way,
    /// What the document holds in the end.
    pub(crate) balance: i64,
    /// The message with which the late write was refused; `None` if it was accepted.
    pub(crate) refusal: Option<String>,
}

impl Outcome {
    fn is_lost(&self) -> bool {
        self.refusal.is_none() && self.balance == OPENING + FIRST_DEPOSIT
    }

    fn is_refused(&self) -> bool {
        self.refusal.is_some() && self.balance == OPENING + SECOND_DEPOSIT
    }

    /// Only the plain write has nothing to refuse it.
    fn is_right(&self) -> bool {
        match self.way {
            Way::Plain => self.is_lost(),
            Way::Fenced | Way::Guarded => self.is_refused(),
        }
    }

    fn late_write(&self) -> &'static str {
        if self.refusal.is_some() {
            "refused"
        } else {
            "accepted"
        }
    }
}

/// The end of the scene.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.refusal {
            Some(_) => write!(f, "REFUSED, the balance is {}", self.balance),
            None if self.is_lost() => {
                let lost = SECOND_DEPOSIT;
                write!(
                    f,
                    "LOST UPDATE, the balance is {}: the {lost} of writer 2 are gone",
                    self.balance
                )
            }
            None => write!(f, "the balance is {}", self.balance),
        }
    }
}

/// The first lines.
pub(crate) fn heading(options: &Options) -> String {
    let lease = show(options.expiry);
    let scene = format!(
        "Two writers add {FIRST_DEPOSIT} and {SECOND_DEPOSIT} to a balance of {OPENING}: read, work, write back, under \
         the lock `account:<way>`.\nWriter 1 is stopped at its work for longer than its lease of {lease}."
    );
    if options.runs == 1 {
        scene
    } else {
        format!(
            "{scene}\n\n  run  {:<14}  {:<14}  guarded commit",
            "plain", "fenced"
        )
    }
}

/// The line before a scene.
pub(crate) fn headline(way: Way) -> String {
    let how = match way {
        Way::Plain => "`replace_one` of the driver",
        Way::Fenced => "`replace_one` of a `FencedCollection`",
        Way::Guarded => "a transaction, ended with `LockContext::commit`",
    };
    format!("\n{}: {how}", way.title())
}

/// The line of a run.
pub(crate) fn line(run: u32, outcomes: &[Outcome]) -> String {
    let columns: Vec<String> = outcomes
        .iter()
        .map(|outcome| format!("{:<14}", format!("{}, {}", outcome.late_write(), outcome.balance)))
        .collect();
    format!("{run:>5}  {}", columns.join("  ")).trim_end().to_owned()
}

/// The last lines, and the exit status.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    outcomes: Vec<Outcome>,
}

impl Summary {
    pub(crate) fn add(&mut self, outcomes: Vec<Outcome>) {
        self.outcomes.extend(outcomes);
    }

    /// Every plain write destroyed the other's update, and every other one was refused.
    pub(crate) fn is_right(&self) -> bool {
        self.outcomes.iter().all(Outcome::is_right)
    }

    fn of(&self, way: Way) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(move |outcome| outcome.way == way)
    }

    fn late_writes(&self, way: Way) -> String {
        let word = match way {
            Way::Plain => "accepted",
            Way::Fenced | Way::Guarded => "refused",
        };
        let count = self
            .of(way)
            .filter(|outcome| outcome.late_write() == word)
            .count();
        format!("{count} of {} {word}", self.of(way).count())
    }

    fn balances(&self, way: Way) -> String {
        let balances: BTreeSet<i64> = self.of(way).map(|outcome| outcome.balance).collect();
        let balances: Vec<String> = balances.iter().map(ToString::to_string).collect();
        balances.join(", ")
    }

    fn verdict(&self, way: Way) -> &'static str {
        if self.of(way).all(Outcome::is_lost) {
            "the update of writer 2 is lost"
        } else if self.of(way).all(Outcome::is_refused) {
            "the update of writer 2 stands"
        } else {
            "not always the same"
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nway to write    late writes        the document holds  verdict"
        )?;
        for way in Way::ALL {
            writeln!(
                f,
                "{:<14}  {:<17}  {:<18}  {}",
                way.title(),
                self.late_writes(way),
                self.balances(way),
                self.verdict(way)
            )?;
        }
        if self.is_right() {
            write!(
                f,
                "\nThe lock alone does not stop a late write; the fence and the guarded commit do."
            )
        } else {
            write!(f, "\nSomething went wrong: see the verdicts.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(way: Way, balance: i64, refused: bool) -> Outcome {
        Outcome {
            way,
            balance,
            refusal: refused.then(|| "too late".to_owned()),
        }
    }

    fn is_right(outcomes: Vec<Outcome>) -> bool {
        Summary { outcomes }.is_right()
    }

    #[test]
    fn a_plain_write_has_to_destroy_and_the_others_to_be_refused() {
        let right = || {
            vec![
                outcome(Way::Plain, 110, false),
                outcome(Way::Fenced, 150, true),
                outcome(Way::Guarded, 150, true),
            ]
        };
        assert!(is_right(right()));
        for wrong in [
            outcome(Way::Plain, 150, false),
            outcome(Way::Plain, 150, true),
            outcome(Way::Fenced, 110, false),
            outcome(Way::Fenced, 110, true),
            outcome(Way::Guarded, 160, false),
            outcome(Way::Guarded, 100, true),
        ] {
            let mut outcomes = right();
            outcomes.push(wrong);
            assert!(!is_right(outcomes));
        }
    }

    #[test]
    fn the_table_counts() {
        let outcomes = vec![outcome(Way::Fenced, 150, true), outcome(Way::Fenced, 110, false)];
        let table = Summary { outcomes }.to_string();
        for part in [
            "1 of 2 refused",
            "110, 150",
            "not always the same",
            "Something went wrong",
        ] {
            assert!(table.contains(part), "{part}: {table}");
        }
    }
}
