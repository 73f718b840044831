//! What the program prints, in columns, and its verdict.

use std::fmt;

use mongolock_examples::duration::show;

use crate::journal::{Entry, Journal};
use crate::options::Options;
use crate::schedule::Tick;
use crate::store::{Outcome, Run};

/// The first lines.
pub(crate) fn heading(options: &Options, instances: u32) -> String {
    let lock = if options.without_lock {
        "WITHOUT the lock"
    } else {
        "under the lock `nightly-report`"
    };
    format!(
        "{instances} instances with the schedule `{}` and a job that takes {}, {lock}.\n\n\
         {:8}  {:>7}  {:>16}  {:>8}  skipped by",
        options.schedule,
        show(options.work),
        "tick",
        "ran on",
        "fencing token",
        "took"
    )
}

/// The line of a tick.
pub(crate) fn line(tick: Tick, entry: &Entry) -> String {
    let first = entry.runs.first();
    let token = first.and_then(|run| run.token);
    let mut others = vec![list(entry.instances(Outcome::Skipped))];
    for (outcome, what) in [(Outcome::Late, "found it done"), (Outcome::Failed, "failed")] {
        let instances = entry.instances(outcome);
        if !instances.is_empty() {
            others.push(format!("{} {what}", list(instances)));
        }
    }
    if entry.is_made_up() {
        others.push("made up at a later tick".to_owned());
    }
    format!(
        "{tick:8}  {:>7}  {:>16}  {:>8}  {}",
        list(entry.runs.iter().map(|run| run.instance)),
        token.map_or("none".to_owned(), |token| token.to_string()),
        first.map_or("none".to_owned(), |run| show(run.took)),
        others.join("; ")
    )
}

fn list(instances: impl IntoIterator<Item = u32>) -> String {
    let instances: Vec<_> = instances
        .into_iter()
        .map(|instance| instance.to_string())
        .collect();
    if instances.is_empty() {
        "none".to_owned()
    } else {
        instances.join(", ")
    }
}

/// The last lines, and the exit status.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) killed: Option<u32>,
    /// The instances that failed, with how they ended.
    pub(crate) failed: Vec<String>,
}

impl Summary<'_> {
    /// Each tick ran once, under a token of its own or with its neighbours in one hold, and nobody failed.
    pub(crate) fn is_right(&self) -> bool {
        self.failed.is_empty()
            && self.journal.entries().all(|(tick, entry)| {
                self.journal.is_complete(tick)
                    && entry.runs.len() == 1
                    && entry.instances(Outcome::Failed).is_empty()
            })
            && self.tokens_rose()
    }

    fn ticks(&self, has: impl Fn(usize) -> bool) -> usize {
        self.journal
            .entries()
            .filter(|(_, entry)| has(entry.runs.len()))
            .count()
    }

    fn calls(&self, outcome: Outcome) -> usize {
        self.journal
            .entries()
            .map(|(_, entry)| entry.instances(outcome).len())
            .sum()
    }

    fn runs(&self) -> Vec<&Run> {
        self.journal
            .entries()
            .flat_map(|(_, entry)| &entry.runs)
            .collect()
    }

    /// From one tick to the next. Only what was made up has the token of its neighbour: it ran in the same hold.
    fn tokens_rose(&self) -> bool {
        self.runs().windows(2).all(|pair| {
            let [before, after] = pair else { return false };
            let same_hold = before.instance == after.instance && before.token == after.token;
            before.token.is_some() && (before.token < after.token || same_hold)
        })
    }

    fn tokens(&self) -> &'static str {
        if self.runs().iter().any(|run| run.token.is_none()) {
            "none"
        } else if self.tokens_rose() {
            "rose from hold to hold"
        } else {
            "did not rise"
        }
    }
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        writeln!(f, "ticks           {}", self.ticks(|_| true))?;
        writeln!(f, "ran once        {}", self.ticks(|runs| runs == 1))?;
        writeln!(f, "more than once  {}", self.ticks(|runs| runs > 1))?;
        writeln!(f, "not at all      {}", self.ticks(|runs| runs == 0))?;
        let (ran, skipped) = (self.calls(Outcome::Ran), self.calls(Outcome::Skipped));
        let (late, failed) = (self.calls(Outcome::Late), self.calls(Outcome::Failed));
        let all = ran + skipped + late + failed;
        writeln!(
            f,
            "calls           {all}: {ran} ran the job, {skipped} skipped it, {late} found it done, {failed} failed"
        )?;
        writeln!(f, "tokens          {}", self.tokens())?;
        if let Some(instance) = self.killed {
            writeln!(f, "killed          instance {instance}")?;
        }
        for failure in &self.failed {
            writeln!(f, "failed          {failure}")?;
        }
        if self.is_right() {
            write!(f, "\nEverything is right: each tick ran once.")
        } else {
            write!(f, "\nSomething went wrong.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Call;
    use std::time::Duration;

    const INSTANCES: u32 = 2;

    fn tick(seconds: u8) -> Tick {
        seconds.to_string().parse().unwrap()
    }

    fn run(seconds: u8, instance: u32, token: Option<i64>) -> Run {
        Run {
            tick: tick(seconds),
            instance,
            token: token.map(|token| mongodb::bson::from_bson(token.into()).unwrap()),
            took: Duration::ZERO,
        }
    }

    fn call(seconds: u8, instance: u32, outcome: Outcome) -> Call {
        Call {
            tick: tick(seconds),
            instance,
            outcome,
        }
    }

    /// Two ticks; each is run by the instance of its number, and skipped by the other.
    fn calls() -> Vec<Call> {
        vec![
            call(1, 1, Outcome::Ran),
            call(1, 2, Outcome::Skipped),
            call(2, 1, Outcome::Skipped),
            call(2, 2, Outcome::Ran),
        ]
    }

    fn is_right(runs: Vec<Run>, calls: Vec<Call>) -> bool {
        let mut journal = Journal::new(&[tick(1), tick(2)], INSTANCES);
        journal.replace(runs, calls);
        let summary = Summary {
            journal: &journal,
            killed: None,
            failed: Vec::new(),
        };
        summary.is_right()
    }

    #[test]
    fn one_run_for_each_tick_is_right() {
        let runs = vec![run(1, 1, Some(5)), run(2, 2, Some(9)), run(3, 1, Some(12))];
        assert!(is_right(runs.clone(), calls()));
        assert!(
            !is_right(runs.clone(), calls()[..3].to_vec()),
            "an instance has not come to the last tick"
        );
        assert!(!is_right(runs[1..].to_vec(), calls()), "a run is missing");
        let twice = [runs, vec![run(2, 1, Some(10))]].concat();
        assert!(!is_right(twice, calls()));
    }

    #[test]
    fn tokens_have_to_rise_from_hold_to_hold() {
        assert!(!is_right(vec![run(1, 1, Some(9)), run(2, 2, Some(5))], calls()));
        assert!(!is_right(vec![run(1, 1, Some(9)), run(2, 2, Some(9))], calls()));
        assert!(!is_right(vec![run(1, 1, None), run(2, 2, None)], calls()));
    }

    #[test]
    fn a_failed_call_is_wrong_even_if_another_instance_ran_the_job() {
        let mut calls = calls();
        calls[1].outcome = Outcome::Failed;
        assert!(!is_right(vec![run(1, 1, Some(5)), run(2, 2, Some(9))], calls));
    }

    #[test]
    fn what_was_left_out_may_run_in_the_next_hold() {
        let calls = vec![
            call(1, 1, Outcome::Skipped),
            call(1, 2, Outcome::Skipped),
            call(2, 1, Outcome::Late),
            call(2, 2, Outcome::Ran),
        ];
        assert!(is_right(vec![run(1, 2, Some(5)), run(2, 2, Some(5))], calls));
    }

    #[test]
    fn nothing_is_expected_of_an_instance_that_was_killed() {
        let mut journal = Journal::new(&[tick(1)], INSTANCES);
        journal.replace(vec![run(1, 1, Some(5))], vec![call(1, 1, Outcome::Ran)]);
        assert!(!journal.is_complete(tick(1)));
        journal.forget(2);
        assert!(journal.is_complete(tick(1)));
    }

    #[test]
    fn an_instance_may_leave_a_tick_out() {
        let runs = vec![run(1, 1, Some(5)), run(2, 2, Some(9))];
        let calls = vec![
            call(1, 1, Outcome::Ran),
            call(2, 1, Outcome::Skipped),
            call(2, 2, Outcome::Ran),
        ];
        assert!(is_right(runs, calls));
    }
}
