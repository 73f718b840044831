//! The steps backwards in which the past is read. No input or output.
//!
//! A change stream goes forwards, and the server sends nothing of a filtered one before it has many events. So each step is a
//! stream that begins earlier than the last one and ends where that has begun: the latest turns are there first. The steps
//! grow as long as they have few events, because a step is kept in memory as a whole.

use mongodb::bson::DateTime;

/// How far before the earliest time that is asked for the last step goes, in milliseconds: most turns that were on at that time
/// have begun within it.
const LEAD: i64 = 10 * 60 * 1000;

/// How far the first step goes back, in milliseconds.
const FIRST: i64 = 10_000;

/// How many times as far back from the present each step goes.
const FARTHER: i64 = 4;

/// How many events a step has, if there are as many in a time as in the step before it.
const EVENTS: i64 = 50_000;

const SECOND: i64 = 1000;

/// How far back the turns since a time are looked for.
pub(super) fn farthest(since: DateTime) -> DateTime {
    DateTime::from_millis(since.timestamp_millis().saturating_sub(LEAD))
}

/// A time that is read: from its beginning up to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) since: DateTime,
    pub(super) until: DateTime,
}

/// The steps from the present back to the earliest time that the server remembers.
#[derive(Debug)]
pub(super) struct Steps {
    now: i64,
    /// Where the last step has begun.
    reached: i64,
    /// How long a step may be, for what the last one has had.
    longest: i64,
    /// How far the turns that are asked for go back.
    wanted: i64,
    /// `None` if the server remembers all since it was set up.
    earliest: Option<i64>,
}

impl Steps {
    /// The steps for the turns since a time.
    pub(super) fn new(now: DateTime, since: DateTime, earliest: Option<DateTime>) -> Self {
        let now = now.timestamp_millis();
        Self {
            now,
            reached: now,
            longest: i64::MAX,
            wanted: farthest(since).timestamp_millis(),
            earliest: earliest.map(DateTime::timestamp_millis),
        }
    }

    /// Whether all steps for the turns that are asked for were made; others look for their beginnings.
    pub(super) fn are_enough(&self) -> bool {
        self.reached <= self.wanted
    }

    /// Where the last step has begun.
    pub(super) fn reached(&self) -> DateTime {
        DateTime::from_millis(self.reached)
    }

    /// Notes that the server has forgotten the beginning of a step meanwhile. What it remembers is the next step, which is
    /// shorter.
    pub(super) fn lose(&mut self, step: Step, earliest: Option<DateTime>) {
        self.reached = step.until.timestamp_millis();
        let shorter = step.since.timestamp_millis() + SECOND;
        self.earliest = Some(earliest.map_or(shorter, |earliest| earliest.timestamp_millis().max(shorter)));
    }

    /// Notes how many events a step has had.
    pub(super) fn had(&mut self, step: Step, events: usize) {
        let length = step.until.timestamp_millis() - step.since.timestamp_millis();
        let events = i64::try_from(events).unwrap_or(i64::MAX).max(1);
        self.longest = (length.saturating_mul(EVENTS) / events).max(SECOND);
    }

    /// The next step.
    pub(super) fn next_step(&mut self) -> Option<Step> {
        let until = self.reached;
        let farther = (self.now - until).saturating_mul(FARTHER - 1).max(FIRST);
        let mut since = until - farther.min(self.longest);
        if !self.are_enough() {
            since = since.max(self.wanted);
        }
        // The events of a second belong to one step.
        let since = since.max(self.earliest.unwrap_or(0)).div_euclid(SECOND) * SECOND;
        if since >= until {
            return None;
        }
        self.reached = since;
        let [since, until] = [since, until].map(DateTime::from_millis);
        Some(Step { since, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000_000 * SECOND;

    /// The steps, and whether they are enough after each: the seconds before the present at which it begins and ends.
    fn steps(mut steps: Steps) -> Vec<(i64, i64, bool)> {
        let mut all = Vec::new();
        while let Some(step) = steps.next_step() {
            let back = |time: DateTime| (NOW - time.timestamp_millis()) / SECOND;
            all.push((back(step.since), back(step.until), steps.are_enough()));
        }
        all
    }

    /// Those for the turns of the last seconds, of which the server remembers so many.
    fn of(since: i64, earliest: Option<i64>) -> Steps {
        let time = |seconds: i64| DateTime::from_millis(NOW - seconds * SECOND);
        Steps::new(time(0), time(since), earliest.map(time))
    }

    #[test]
    fn each_step_goes_four_times_as_far_back() {
        let wanted = [
            (10, 0, false),
            (40, 10, false),
            (160, 40, false),
            (640, 160, false),
            (900, 640, true),
            (3600, 900, true),
            (5000, 3600, true),
        ];
        assert_eq!(steps(of(300, Some(5000))), wanted);
        assert_eq!(
            steps(of(300, Some(100))),
            [(10, 0, false), (40, 10, false), (100, 40, false)]
        );
        let all = steps(of(0, None));
        assert_eq!(
            all[..4],
            [
                (10, 0, false),
                (40, 10, false),
                (160, 40, false),
                (600, 160, true)
            ]
        );
        assert_eq!(all.last().map(|step| step.0), Some(NOW / SECOND));
    }

    #[test]
    fn a_step_is_shorter_where_there_are_many_events() {
        let mut steps = of(300, None);
        let first = steps.next_step().expect("there is one");
        steps.had(first, 100_000);
        let second = steps.next_step().expect("there is one");
        assert_eq!(second.since.timestamp_millis(), NOW - 15 * SECOND);
        steps.had(second, 10_000_000);
        let third = steps.next_step().expect("there is one");
        assert_eq!(third.since.timestamp_millis(), NOW - 16 * SECOND);
        steps.had(third, 0);
        let fourth = steps.next_step().expect("there is one");
        assert_eq!(fourth.since.timestamp_millis(), NOW - 64 * SECOND);
    }

    #[test]
    fn a_step_that_the_server_has_forgotten_is_shorter_the_next_time() {
        let time = DateTime::from_millis;
        let mut steps = of(60, None);
        let step = steps.next_step().expect("there is one");
        steps.lose(step, Some(step.since));
        let next = steps.next_step().expect("there is another one");
        let since = step.since.timestamp_millis() + SECOND;
        assert_eq!((next.since, next.until), (time(since), step.until));
        steps.lose(next, Some(next.until));
        assert_eq!(steps.next_step(), None);
    }

    #[test]
    fn there_is_no_step_where_the_server_remembers_nothing() {
        assert_eq!(steps(of(10, Some(0))), []);
    }
}
