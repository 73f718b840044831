//! When the job is due.
//!
//! The ticks are in UTC: in local time, one night of the year has an hour twice, and another night lacks it.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use apalis_cron::CronScheduler;
use chrono::{DateTime, Utc};
use mongodb::bson;
use serde::{Deserialize, Serialize};

/// A moment at which the job is due. All instances agree on it, even if their clocks differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "bson::DateTime", into = "bson::DateTime")]
pub(crate) struct Tick(DateTime<Utc>);

/// A cron expression with seconds.
#[derive(Debug, Clone)]
pub(crate) struct Schedule(cron::Schedule);

impl Schedule {
    /// Passes each tick to a worker at its time. A tick that has passed before the worker asks for it is left out.
    pub(crate) fn scheduler(&self) -> CronScheduler<cron::Schedule> {
        CronScheduler::new(self.0.clone())
    }

    /// The ticks after a moment.
    pub(crate) fn after(&self, moment: DateTime<Utc>) -> impl Iterator<Item = Tick> {
        self.0.after(&moment).map(Tick)
    }

    /// The ticks up to `last` that come after `done`; those from `first` if nothing is done.
    pub(crate) fn due(&self, done: Option<Tick>, first: Tick, last: Tick) -> Vec<Tick> {
        let next = done.is_none().then_some(first);
        let later = self.after(done.unwrap_or(first).0);
        next.into_iter()
            .chain(later)
            .take_while(|tick| *tick <= last)
            .collect()
    }
}

impl Tick {
    pub(crate) fn timestamp(self) -> i64 {
        self.0.timestamp()
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write six fields, such as `0 0 3 * * *` for three o'clock";
        let cron = cron::Schedule::from_str(text);
        let cron = cron.map_err(|error| format!("{}; {example}", reason(&error)))?;
        // `0 0 3 30 2 *` is a valid expression, but there is no such day.
        match cron.upcoming(Utc).next() {
            Some(_) => Ok(Self(cron)),
            None => Err(format!("there is no such time; {example}")),
        }
    }
}

/// The library repeats the expression, points at a place in it, and may add a reason as a third line.
fn reason(error: &cron::error::Error) -> String {
    match error.to_string().lines().nth(2) {
        Some(reason) if !reason.is_empty() => reason.trim_end_matches('.').to_owned(),
        _ => "this is not a cron expression".to_owned(),
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.source())
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

impl From<apalis_cron::Tick> for Tick {
    fn from(tick: apalis_cron::Tick) -> Self {
        Self((UNIX_EPOCH + Duration::from_secs(tick.get_timestamp())).into())
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
    fn ticks_without_a_run_are_due() {
        let schedule: Schedule = "*/2 * * * * *".parse().unwrap();
        let due = |done| schedule.due(done, tick(4), tick(8));
        assert_eq!(due(None), [tick(4), tick(6), tick(8)]);
        assert_eq!(due(Some(tick(4))), [tick(6), tick(8)]);
        assert_eq!(due(Some(tick(8))), []);
        assert_eq!(due(Some(tick(10))), []);
    }

    #[test]
    fn ticks_of_every_second_are_at_whole_seconds() {
        let schedule: Schedule = "* * * * * *".parse().unwrap();
        let between = DateTime::from_timestamp(3, 500_000_000).unwrap();
        let next: Vec<_> = schedule.after(between).take(3).collect();
        assert_eq!(next, [tick(4), tick(5), tick(6)]);
        assert_eq!(schedule.due(Some(tick(4)), tick(3), tick(6)), [tick(5), tick(6)]);
    }

    #[test]
    fn wrong_expressions_and_impossible_times_are_refused() {
        for text in ["", "every day", "0 3 * * *", "60 * * * * *", "0 0 3 30 2 *"] {
            let refused = text.parse::<Schedule>().unwrap_err();
            assert!(
                refused.ends_with("such as `0 0 3 * * *` for three o'clock"),
                "{text}: {refused}"
            );
            assert_eq!(refused.lines().count(), 1, "{text}: {refused}");
        }
    }

    #[test]
    fn a_schedule_and_a_tick_can_be_passed_on_a_command_line() {
        let schedule: Schedule = "0 0 3 * * MON".parse().unwrap();
        let again: Schedule = schedule.to_string().parse().unwrap();
        assert_eq!(schedule.0, again.0);
        let first = schedule.after(Utc::now()).next().unwrap();
        assert_eq!(first.timestamp().to_string().parse(), Ok(first));
    }
}
