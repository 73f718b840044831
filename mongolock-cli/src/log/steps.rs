//! The steps backwards in which the past is read. No input or output.
//!
//! The server sends nothing of a filtered change stream before it has much to send or has read up to the present. So each step
//! is a stream that begins earlier than the last one and ends where that has begun: the latest turns are there first. As each
//! step goes four times as far back, all of them together read hardly more than a third more than one stream would.

use mongodb::bson::DateTime;

/// How far the first step goes back before the latest time that is asked for, and the last one before the earliest, in
/// milliseconds: most turns that were on at these times have begun within it.
const LEAD: i64 = 10 * 60 * 1000;

const SECOND: i64 = 1000;

/// How many times as far back from the present each step goes.
const FARTHER: i64 = 4;

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
    /// Up to where the latest turns are.
    latest: i64,
    /// How far the turns that are asked for go back.
    wanted: i64,
    /// `None` if the server remembers all since it was set up.
    earliest: Option<i64>,
}

impl Steps {
    /// The steps for the turns between two times.
    pub(super) fn new(now: DateTime, since: DateTime, until: DateTime, earliest: Option<DateTime>) -> Self {
        let [now, wanted, latest] =
            [now, farthest(since), farthest(until.min(now))].map(DateTime::timestamp_millis);
        Self {
            now,
            reached: now,
            latest,
            wanted,
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

    /// The next step.
    pub(super) fn next_step(&mut self) -> Option<Step> {
        let until = self.reached;
        let farther = self.now - (self.now - until).saturating_mul(FARTHER);
        let since = match (self.are_enough(), self.earliest) {
            (false, _) => farther.min(self.latest).max(self.wanted),
            (true, Some(_)) => farther,
            // How far it goes back is not known, and each step would read all of it again.
            (true, None) => 0,
        };
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

    const MINUTE: i64 = 60 * 1000;
    const NOW: i64 = 1_000_000 * MINUTE;

    /// The minutes before the present at which the steps begin and end, and whether they are enough.
    fn steps(since: i64, until: i64, earliest: Option<i64>) -> Vec<(i64, i64, bool)> {
        let time = |minutes: i64| DateTime::from_millis(NOW - minutes * MINUTE);
        let mut steps = Steps::new(time(0), time(since), time(until), earliest.map(time));
        let mut all = Vec::new();
        while let Some(step) = steps.next_step() {
            let back = |time: DateTime| (NOW - time.timestamp_millis()) / MINUTE;
            all.push((back(step.since), back(step.until), steps.are_enough()));
        }
        all
    }

    #[test]
    fn each_step_goes_four_times_as_far_back() {
        let wanted = [
            (10, 0, false),
            (40, 10, false),
            (160, 40, false),
            (640, 160, false),
            (730, 640, true),
            (2920, 730, true),
            (5000, 2920, true),
        ];
        assert_eq!(steps(720, 0, Some(5000)), wanted);
        assert_eq!(
            steps(720, 0, Some(100)),
            [(10, 0, false), (40, 10, false), (100, 40, false)]
        );
    }

    #[test]
    fn a_step_that_the_server_has_forgotten_is_shorter_the_next_time() {
        let time = DateTime::from_millis;
        let mut steps = Steps::new(time(NOW), time(NOW - MINUTE), time(NOW), None);
        let step = steps.next_step().expect("there is one");
        steps.lose(step, Some(step.since));
        let next = steps.next_step().expect("there is another one");
        let since = step.since.timestamp_millis() + SECOND;
        assert_eq!((next.since, next.until), (time(since), step.until));
        steps.lose(next, Some(next.until));
        assert_eq!(steps.next_step(), None);
    }

    #[test]
    fn the_first_step_ends_the_turns_of_a_time() {
        assert_eq!(steps(360, 360, Some(1000)), [(370, 0, true), (1000, 370, true)]);
        assert_eq!(steps(300, 120, Some(200)), [(130, 0, false), (200, 130, false)]);
        assert_eq!(steps(0, 0, Some(15)), [(10, 0, true), (15, 10, true)]);
        assert_eq!(steps(10, 0, Some(0)), []);
    }

    #[test]
    fn a_server_that_remembers_all_is_searched_in_one_more_step() {
        let wanted = [
            (10, 0, false),
            (40, 10, false),
            (70, 40, true),
            (1_000_000, 70, true),
        ];
        assert_eq!(steps(60, 0, None), wanted);
    }
}
