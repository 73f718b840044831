//! What the program prints, in columns.

use std::fmt;
use std::time::Duration;

use mongolock_examples::duration::show;

use crate::event::{End, Event};
use crate::options::Options;
use crate::tally::{Tokens, Verdict};

/// The first lines.
pub(crate) fn heading(options: &Options) -> String {
    let Options {
        processes,
        calls,
        ids,
        hold,
        without_lock,
        ..
    } = options;
    let lock = if *without_lock {
        "WITHOUT the lock"
    } else {
        "under the lock `report:<id>`"
    };
    format!(
        "{} with {} each on {}: read, pause for {}, write back, {lock}.\n\n\
         process  report     fencing token      waited        held",
        count(*processes, "process", "processes"),
        count(*calls, "call", "calls"),
        count(*ids, "report", "reports"),
        show(*hold)
    )
}

fn count(number: u32, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// The line of a call.
pub(crate) fn line(event: &Event, end: &End) -> String {
    let token = end.token.map_or("none".to_owned(), |token| token.to_string());
    format!(
        "{:>7}  {:>6}  {token:>16}  {:>10}  {:>10}",
        event.call.process,
        event.id,
        show(end.waited),
        show(end.held)
    )
}

/// The last lines, and the exit status.
pub(crate) struct Summary<'a> {
    pub(crate) options: &'a Options,
    pub(crate) took: Duration,
    pub(crate) verdicts: Vec<Verdict>,
    /// The processes that failed, with how they ended.
    pub(crate) failed: Vec<String>,
}

impl Summary<'_> {
    /// Nothing went wrong.
    pub(crate) fn is_right(&self) -> bool {
        self.failed.is_empty()
            && self.calls() == self.expected()
            && self.lost() == 0
            && self.overlaps() == 0
            && (self.count(Tokens::Rose) == self.verdicts.len() || self.options.without_lock)
    }

    fn calls(&self) -> usize {
        self.verdicts.iter().map(|verdict| verdict.calls).sum()
    }

    fn lost(&self) -> usize {
        self.verdicts.iter().map(|verdict| verdict.lost).sum()
    }

    fn overlaps(&self) -> usize {
        self.verdicts.iter().map(|verdict| verdict.overlaps).sum()
    }

    fn expected(&self) -> usize {
        self.options.processes as usize * self.options.calls as usize
    }

    fn count(&self, tokens: Tokens) -> usize {
        self.verdicts
            .iter()
            .filter(|verdict| verdict.tokens == tokens)
            .count()
    }

    fn tokens(&self) -> String {
        let wrong = self.count(Tokens::DidNotRise);
        if wrong > 0 {
            return format!("did not rise in {wrong} of {} reports", self.verdicts.len());
        }
        if self.count(Tokens::Missing) > 0 {
            return "none".to_owned();
        }
        "rose strictly in every report, in the order of the writes".to_owned()
    }

    /// Where it went wrong, if it did not go wrong everywhere.
    fn places(&self) -> String {
        let wrong = |verdict: &&Verdict| verdict.lost + verdict.overlaps > 0;
        let places: Vec<_> = self
            .verdicts
            .iter()
            .filter(wrong)
            .map(|verdict| verdict.id.to_string())
            .collect();
        match places.len() {
            0 => String::new(),
            1 => format!(" in report {}", places[0]),
            2..=10 => format!(" in reports {}", places.join(", ")),
            more => format!(" in {more} reports"),
        }
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        writeln!(f, "calls         {} of {}", self.calls(), self.expected())?;
        writeln!(f, "lost updates  {}", self.lost())?;
        writeln!(f, "overlaps      {}", self.overlaps())?;
        writeln!(f, "tokens        {}", self.tokens())?;
        writeln!(f, "time          {}", show(self.took))?;
        for failure in &self.failed {
            writeln!(f, "failed        {failure}")?;
        }
        if self.is_right() {
            write!(f, "\nEverything is right.")
        } else {
            write!(f, "\nSomething went wrong{}.", self.places())
        }
    }
}
