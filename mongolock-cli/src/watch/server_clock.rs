//! The clock of the server.

use std::time::Duration;

use mongodb::Database;
use mongodb::bson::{DateTime, doc};

use super::unreadable;
use crate::clock::Moment;
use crate::failure::Failure;

/// How long the server's clock is counted on without being read again.
const READING: Duration = Duration::from_secs(10);

/// The clock of the server, counted on by the clock of this machine. It is read again now and then: the two may go at
/// different speeds, and another member may become the primary.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerClock {
    server: i64,
    read: Moment,
}

impl ServerClock {
    pub(super) fn unknown() -> Self {
        Self {
            server: 0,
            read: Moment::now(),
        }
    }

    pub(super) async fn of(database: &Database) -> Result<Self, Failure> {
        let reply = database.run_command(doc! { "hello": 1 }).await;
        let reply = reply.map_err(unreadable)?;
        let server = reply
            .get_datetime("localTime")
            .map_err(Failure::io("the server tells no time"))?;
        Ok(Self {
            server: server.timestamp_millis(),
            read: Moment::now(),
        })
    }

    pub(super) fn now(&self) -> DateTime {
        let passed = i64::try_from(self.read.elapsed().as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(self.server.saturating_add(passed))
    }

    /// The same clock, for as long as if it were read now.
    pub(super) fn counted_on(&self) -> Self {
        Self {
            server: self.now().timestamp_millis(),
            read: Moment::now(),
        }
    }

    /// The time until this moment of the server, or until the clock is to be read again if that is sooner.
    pub(super) fn until(&self, moment: Option<i64>) -> Duration {
        let moment = moment.unwrap_or(i64::MAX);
        let left = moment.saturating_sub(self.now().timestamp_millis());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        left.min(READING.saturating_sub(self.read.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(age: Duration) -> ServerClock {
        ServerClock {
            server: 1_000_000,
            read: Moment::now().minus(age),
        }
    }

    #[test]
    fn the_clock_goes_on_and_is_read_again() {
        let (second, hour) = (Duration::from_secs(1), 60 * 60 * 1000);
        let whole = |pause: Duration| pause > Duration::from_secs(8);
        let fresh = clock(second);
        assert!((1_001_000..1_002_000).contains(&fresh.now().timestamp_millis()));
        for far in [None, Some(1_000_000 + hour)] {
            let pause = fresh.until(far);
            assert!(whole(pause) && pause + second <= READING, "{pause:?}");
            assert_eq!(clock(READING).until(far), Duration::ZERO, "it is too old");
        }
        let old = clock(READING).counted_on();
        assert!((1_010_000..1_011_000).contains(&old.now().timestamp_millis()));
        assert!(whole(old.until(None)));
        let near = fresh.until(Some(1_003_000));
        assert!(near > second && near <= 2 * second, "{near:?}");
        assert_eq!(fresh.until(Some(1_000_500)), Duration::ZERO);
    }
}
