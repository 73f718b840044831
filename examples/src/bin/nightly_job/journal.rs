//! What the instances have done, tick by tick, and whether that is right.

use mongolock_examples::summary::Summary;

use crate::Options;
use crate::instance::{Call, Outcome, Run};
use crate::schedule::Tick;

/// The runs and the calls. The instances continue until they are stopped; what they do at later ticks does not count.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) ticks: Vec<Tick>,
    /// In the order of their ticks.
    pub(crate) runs: Vec<Run>,
    pub(crate) calls: Vec<Call>,
    /// The instances that were not killed.
    pub(crate) alive: Vec<u32>,
}

impl Journal {
    /// Whether the job was run for this tick, and all instances have called it for this tick or a later one. An instance
    /// may leave a tick out, for example if it has started later than the others.
    pub(crate) fn is_complete(&self, tick: Tick) -> bool {
        let has_reached = |instance: &u32| {
            let mut calls = self.calls.iter();
            calls.any(|call| call.instance == *instance && call.tick >= tick)
        };
        self.first_run(tick).is_some() && self.alive.iter().all(has_reached)
    }

    pub(crate) fn first_run(&self, tick: Tick) -> Option<&Run> {
        self.runs_of(tick).next()
    }

    fn runs_of(&self, tick: Tick) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.tick == tick)
    }

    /// The instances whose call at this tick had this outcome.
    fn instances(&self, tick: Tick, outcome: Outcome) -> Vec<u32> {
        let calls = self.calls.iter();
        let mut instances: Vec<u32> = calls
            .filter(|call| call.tick == tick && call.outcome == outcome)
            .map(|call| call.instance)
            .collect();
        instances.sort_unstable();
        instances
    }

    /// Whether an instance was killed after its work for this tick and before it has reported the end of its call: the mark
    /// may be missing then, and the job runs again.
    fn was_killed_in(&self, tick: Tick) -> bool {
        self.runs_of(tick).any(|run| {
            let has_reported = |call: &Call| call.tick == tick && call.instance == run.instance;
            !self.alive.contains(&run.instance) && !self.calls.iter().any(has_reported)
        })
    }

    /// The line of a tick.
    pub(crate) fn line(&self, tick: Tick) -> String {
        let mut others = vec![list(self.instances(tick, Outcome::Skipped))];
        let failed = self.instances(tick, Outcome::Failed);
        if !failed.is_empty() {
            others.push(format!("{} failed", list(failed)));
        }
        if self.was_killed_in(tick) {
            others.push("killed before its mark".to_owned());
        }
        let token = self.first_run(tick).and_then(|run| run.token);
        let token = token.map_or("none".to_owned(), |token| token.to_string());
        let instances = list(self.runs_of(tick).map(|run| run.instance));
        format!("{tick:8}  {instances:>7}  {token:>16}  {}", others.join("; "))
    }

    /// Checks that each tick ran once and all instances have come that far, that no call failed, and that each run had a
    /// fencing token. A tick may run again if its instance was killed before its mark.
    pub(crate) fn check(&self, options: &Options) -> Summary {
        let runs = || self.ticks.iter().map(|tick| self.runs_of(*tick).count());
        let (again, often): (Vec<Tick>, Vec<Tick>) = {
            let often = self.ticks.iter().filter(|tick| self.runs_of(**tick).count() > 1);
            often.partition(|tick| self.was_killed_in(**tick))
        };
        let (all, again, often) = (self.ticks.len(), again.len(), often.len());
        let never = runs().filter(|runs| *runs == 0).count();
        let mut summary = Summary::default();
        summary.row("ticks", all);
        summary.row("ran once", all - again - often - never);
        if again > 0 {
            summary.row("again after a kill", again);
        }
        summary.zero(
            "more than once",
            often,
            format!("{often} of {all} ticks ran more than once"),
        );
        summary.zero("not at all", never, format!("{never} of {all} ticks did not run"));

        let calls = |outcome| -> usize {
            let calls = self.ticks.iter().map(|tick| self.instances(*tick, outcome).len());
            calls.sum()
        };
        summary.row("calls that ran it", calls(Outcome::Ran));
        summary.row("found it done", calls(Outcome::Skipped));
        let failed = calls(Outcome::Failed);
        summary.zero("failed", failed, format!("{failed} calls failed"));
        let are_complete = never > 0 || self.ticks.iter().all(|tick| self.is_complete(*tick));
        summary.check(are_complete, "not all instances have reached the last tick");
        if options.without_lock {
            summary.row("tokens", "none");
        } else {
            let wrong = (!self.all_have_tokens()).then(|| "a run had no token".to_owned());
            summary.finding("tokens", "one for each run", wrong);
        }
        summary
    }

    /// Whether each run had a fencing token. Those of different ticks are not compared, because each tick has its own lock.
    fn all_have_tokens(&self) -> bool {
        let mut runs = self.ticks.iter().flat_map(|tick| self.runs_of(*tick));
        runs.all(|run| run.token.is_some())
    }
}

fn list(instances: impl IntoIterator<Item = u32>) -> String {
    let instances: Vec<String> = instances.into_iter().map(|number| number.to_string()).collect();
    if instances.is_empty() {
        "none".to_owned()
    } else {
        instances.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use mongolock::FencingToken;

    use super::Outcome::{Failed, Ran, Skipped};
    use super::*;

    fn tick(seconds: u8) -> Tick {
        seconds.to_string().parse().unwrap()
    }

    /// A journal of two instances with these ticks, these runs (tick, instance and token), and these calls (tick, instance
    /// and outcome).
    fn journal(ticks: u8, runs: &[(u8, u32, i64)], calls: &[(u8, u32, Outcome)]) -> Journal {
        let ticks = (1..=ticks).map(tick).collect();
        let runs = runs.iter().map(|(seconds, instance, token)| Run {
            tick: tick(*seconds),
            instance: *instance,
            token: (*token > 0).then(|| FencingToken::from(*token)),
        });
        let calls = calls.iter().map(|(seconds, instance, outcome)| Call {
            tick: tick(*seconds),
            instance: *instance,
            outcome: *outcome,
        });
        Journal {
            ticks,
            runs: runs.collect(),
            calls: calls.collect(),
            alive: vec![1, 2],
        }
    }

    /// The failures after two ticks.
    fn failures(runs: &[(u8, u32, i64)], calls: &[(u8, u32, Outcome)]) -> Vec<String> {
        let options = Options::parse_from(["nightly_job"]);
        journal(2, runs, calls).check(&options).failures().to_vec()
    }

    /// Two ticks: each is run by the instance of its number, and skipped by the other.
    const RUNS: [(u8, u32, i64); 2] = [(1, 1, 5), (2, 2, 9)];
    const CALLS: [(u8, u32, Outcome); 4] = [(1, 1, Ran), (1, 2, Skipped), (2, 1, Skipped), (2, 2, Ran)];

    #[test]
    fn one_run_for_each_tick_passes() {
        assert!(failures(&RUNS, &CALLS).is_empty());
        let later = [RUNS[0], RUNS[1], (3, 1, 12)];
        assert!(failures(&later, &CALLS).is_empty());
        let missing = failures(&RUNS[1..], &CALLS);
        assert_eq!(missing, ["1 of 2 ticks did not run"]);
        let twice = failures(&[RUNS[0], RUNS[1], (2, 1, 10)], &CALLS);
        assert_eq!(twice, ["1 of 2 ticks ran more than once"]);
        let early = failures(&RUNS, &CALLS[..3]);
        assert_eq!(early, ["not all instances have reached the last tick"]);
    }

    #[test]
    fn each_run_has_a_token() {
        let found = failures(&[RUNS[0], (2, 2, 0)], &CALLS);
        assert_eq!(found, ["a run had no token"]);
    }

    #[test]
    fn a_failed_call_fails_although_another_instance_ran_the_job() {
        let calls = [CALLS[0], (1, 2, Failed), CALLS[2], CALLS[3]];
        assert_eq!(failures(&RUNS, &calls), ["1 calls failed"]);
    }

    #[test]
    fn a_tick_may_run_again_only_if_its_instance_was_killed_before_its_mark() {
        let runs = [RUNS[0], (2, 1, 7), RUNS[1]];
        let calls = [CALLS[0], CALLS[1], CALLS[3]];
        let options = Options::parse_from(["nightly_job"]);
        let mut killed = journal(2, &runs, &calls);
        killed.alive.retain(|instance| *instance == 2);
        assert!(killed.check(&options).failures().is_empty());
        assert!(killed.line(tick(2)).ends_with("killed before its mark"));
        let marked = [RUNS[0], (1, 2, 7), RUNS[1]];
        let mut marked = journal(2, &marked, &calls);
        marked.alive.retain(|instance| *instance == 2);
        let found = marked.check(&options).failures().to_vec();
        assert_eq!(found, ["1 of 2 ticks ran more than once"]);
    }

    #[test]
    fn no_call_is_expected_of_a_killed_instance() {
        let mut journal = journal(1, &RUNS[..1], &CALLS[..1]);
        assert!(!journal.is_complete(tick(1)));
        journal.alive.pop();
        assert!(journal.is_complete(tick(1)));
    }

    #[test]
    fn an_instance_may_leave_a_tick_out() {
        assert!(failures(&RUNS, &[CALLS[0], CALLS[2], CALLS[3]]).is_empty());
    }
}
