//! What the server remembers of the last minutes: when the lease was renewed, and how long the turns before took.

use std::collections::BTreeMap;
use std::time::Duration;

use mongodb::bson::DateTime;
use mongolock::{LockAdmin, LockError, LockEvent, LockEventKind, LockFilter};
use tokio::time::timeout;

use crate::duration::between;

/// How far it is looked back.
const BACK: Duration = Duration::from_secs(10 * 60);

/// How long the reading may take.
const LIMIT: Duration = Duration::from_secs(1);

/// The number of turns from which on their median is told.
const ENOUGH: usize = 5;

/// What was seen.
#[derive(Default)]
pub(super) struct Past {
    /// The renewals of the present holds, by the numbers of the permits. An event of a hold that has begun before all these events
    /// does not name it, so they are those since the last change of the holder.
    renewals: BTreeMap<Option<u32>, Vec<DateTime>>,
    /// The lengths of the turns that have ended.
    turns: Vec<Duration>,
}

/// The renewals of a hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Renewals {
    /// The usual time between two of them; `None` if only one was seen.
    pub(super) every: Option<Duration>,
    /// The time since the last one.
    pub(super) last: Duration,
}

/// Reads the events of the last minutes. Nothing is known of them without a change stream, without the right to one, or if the
/// server no longer has them.
pub(super) async fn read(admin: &LockAdmin, name: &str, now: DateTime) -> Past {
    let back = i64::try_from(BACK.as_millis()).unwrap_or_default();
    let since = DateTime::from_millis(now.timestamp_millis().saturating_sub(back));
    let events = admin.events(LockFilter::new().name(name)).since(since).until(now);
    let (mut events, mut past) = (events.renewals(), Past::default());
    let reading = async {
        while let Some(event) = events.next().await {
            past.note(&event?);
        }
        Ok::<_, LockError>(())
    };
    // The oldest events come first. The turns that were read in time count, but the last renewal may be missing.
    if !matches!(timeout(LIMIT, reading).await, Ok(Ok(()))) {
        past.renewals.clear();
    }
    past
}

impl Past {
    fn note(&mut self, event: &LockEvent) {
        match event.kind {
            LockEventKind::Renewed => {
                self.renewals.entry(event.permit).or_default().push(event.at);
                return;
            }
            LockEventKind::Released | LockEventKind::Done => {
                self.turns
                    .extend(event.acquired_at.map(|begun| between(begun, event.at)));
            }
            // A gap, or the end of all documents.
            _ if event.name.is_empty() => return self.renewals.clear(),
            _ => {}
        }
        self.renewals.remove(&event.permit);
    }

    /// The renewals of the present hold of the lock, or of this permit, at this time; `None` if none was seen.
    pub(super) fn renewals(&self, permit: Option<u32>, now: DateTime) -> Option<Renewals> {
        let times = self.renewals.get(&permit)?;
        let gaps = times.windows(2).map(|pair| between(pair[0], pair[1]));
        Some(Renewals {
            every: median(gaps.collect()),
            last: between(*times.last()?, now),
        })
    }

    /// The median of the turns, and their number; `None` if there are too few.
    pub(super) fn usual(&self) -> Option<(Duration, usize)> {
        let count = self.turns.len();
        let usual = median(self.turns.clone()).filter(|_| count >= ENOUGH);
        usual.map(|usual| (usual, count))
    }
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_needs_some_turns() {
        let seconds = |all: &[u64]| all.iter().map(|time| Duration::from_secs(*time)).collect();
        let mut past = Past {
            turns: seconds(&[9, 1, 1, 1]),
            ..Past::default()
        };
        assert_eq!(past.usual(), None);
        past.turns = seconds(&[9, 1, 2, 3, 70]);
        assert_eq!(past.usual(), Some((Duration::from_secs(3), 5)));
    }

    #[test]
    fn the_renewals_of_the_permits_are_told_apart() {
        let at = |seconds: i64| DateTime::from_millis(seconds * 1000);
        let times = [(Some(0), vec![at(10), at(20), at(30)]), (Some(1), vec![at(11)])];
        let past = Past {
            renewals: times.into(),
            ..Past::default()
        };
        let expected = Renewals {
            every: Some(Duration::from_secs(10)),
            last: Duration::from_secs(3),
        };
        assert_eq!(past.renewals(Some(0), at(33)), Some(expected));
        assert_eq!(past.renewals(None, at(33)), None);
    }
}
