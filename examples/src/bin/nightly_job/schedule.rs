//! When the job is due.
//!
//! A scheduler that starts a job without saying for which tick leaves nothing to put into a record. So the ticks come
//! from the cron expression itself, and each instance waits for one after the other: runs in one process never
//! overlap, and a tick that has passed meanwhile is still called, late.
//!
//! The ticks are in UTC. In local time, a night has an hour twice and another night has none.

use std::fmt;
use std::iter;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, SubsecRound, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds};
use mongodb::bson;
use serde::{Deserialize, Serialize};

/// How long a wait relies on the monotonic clock, which drifts from the time of day and stands still while the
/// machine sleeps.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// A moment at which the job is due: what the instances agree on, however their clocks differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "bson::DateTime", into = "bson::DateTime")]
pub(crate) struct Tick(DateTime<Utc>);

/// A cron expression with seconds.
#[derive(Debug, Clone)]
pub(crate) struct Schedule(Cron);

impl Schedule {
    /// The ticks that come after a moment.
    pub(crate) fn after(&self, moment: DateTime<Utc>) -> impl Iterator<Item = Tick> {
        // A search that begins between two seconds finds a time between two seconds.
        let whole = moment.trunc_subsecs(0);
        // The iterators of the library leave out every other tick of `* * * * * *`.
        let next = |moment: &DateTime<Utc>| self.0.find_next_occurrence(moment, false).ok();
        iter::successors(next(&whole), move |tick| next(tick)).map(Tick)
    }

    /// `first`, which is a tick, and those that come after it.
    pub(crate) fn from(&self, first: Tick) -> impl Iterator<Item = Tick> {
        iter::once(first).chain(self.after(first.0))
    }

    /// The ticks up to `last` that come after `done`; as long as nothing is done, those from `first`.
    pub(crate) fn due(&self, done: Option<Tick>, first: Tick, last: Tick) -> Vec<Tick> {
        let open = |tick: &Tick| done.is_none_or(|done| *tick > done);
        let begin = done.unwrap_or(first);
        let ticks = self.from(begin).take_while(|tick| *tick <= last);
        ticks.filter(open).collect()
    }
}

impl Tick {
    /// Returns when it has come by the clock of this machine.
    pub(crate) async fn wait(self) {
        while let Ok(left) = (self.0 - Utc::now()).to_std()
            && !left.is_zero()
        {
            tokio::time::sleep(left.min(LOOK_AGAIN)).await;
        }
    }

    pub(crate) fn timestamp(self) -> i64 {
        self.0.timestamp()
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write six fields, such as `0 0 3 * * *` for three o'clock";
        let cron = CronParser::builder()
            .seconds(Seconds::Required)
            .build()
            .parse(text);
        let cron = cron.map_err(|error| format!("{}; {example}", error.to_string().trim_end_matches('.')))?;
        // `0 0 3 30 2 *` is well written, but there is no such day.
        match cron.find_next_occurrence(&Utc::now(), false) {
            Ok(_) => Ok(Self(cron)),
            Err(_) => Err(format!("that time never comes; {example}")),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl FromStr for Tick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = text.parse().ok();
        let moment = seconds.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
        moment
            .map(Self)
            .ok_or_else(|| "write the seconds since 1970".to_owned())
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.format("%H:%M:%S").fmt(f)
    }
}

impl From<bson::DateTime> for Tick {
    fn from(stored: bson::DateTime) -> Self {
        Self(stored.to_system_time().into())
    }
}

impl From<Tick> for bson::DateTime {
    fn from(Tick(moment): Tick) -> Self {
        Self::from_millis(moment.timestamp_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(seconds: i64) -> Tick {
        Tick(DateTime::from_timestamp(seconds, 0).unwrap())
    }

    #[test]
    fn what_was_left_out_is_due() {
        let schedule: Schedule = "*/2 * * * * *".parse().unwrap();
        let due = |done| schedule.due(done, tick(4), tick(8));
        assert_eq!(due(None), [tick(4), tick(6), tick(8)]);
        assert_eq!(due(Some(tick(4))), [tick(6), tick(8)]);
        assert_eq!(due(Some(tick(8))), []);
        assert_eq!(due(Some(tick(10))), []);
    }

    #[test]
    fn the_ticks_of_every_second_are_whole_and_none_is_missing() {
        let schedule: Schedule = "* * * * * *".parse().unwrap();
        let between = DateTime::from_timestamp(3, 500_000_000).unwrap();
        let next: Vec<_> = schedule.after(between).take(3).collect();
        assert_eq!(next, [tick(4), tick(5), tick(6)]);
        assert_eq!(schedule.due(Some(tick(4)), tick(3), tick(6)), [tick(5), tick(6)]);
    }

    #[test]
    fn expressions_that_are_wrong_or_never_come_are_refused() {
        for text in ["", "every day", "0 3 * * *", "60 * * * * *", "0 0 3 30 2 *"] {
            let refused = text.parse::<Schedule>().unwrap_err();
            assert!(refused.contains("such as `0 0 3 * * *`"), "{text}: {refused}");
        }
    }

    #[test]
    fn a_schedule_and_a_tick_survive_the_command_line() {
        let schedule: Schedule = "0 0 3 * * MON".parse().unwrap();
        let again: Schedule = schedule.to_string().parse().unwrap();
        assert_eq!(schedule.0, again.0);
        let first = schedule.after(Utc::now()).next().unwrap();
        assert_eq!(first.timestamp().to_string().parse(), Ok(first));
    }
}
