use std::time::Duration;

use mongodb::bson::DateTime;
use serde::ser::Error;
use serde::{Serialize, Serializer};

use super::error::unfit;
use crate::duration::{as_seconds, from_millis, millis};
use crate::protocol::{Id, Sight, Value};
use crate::{FencingToken, LockError, lock_id, permit_id};

/// The beginning of the year 0 in milliseconds since 1970: RFC 3339 has no earlier time.
const FIRST_DATE: i64 = -62_167_219_200_000;

/// The end of the year 9999 in milliseconds since 1970: RFC 3339 has no later time.
const LAST_DATE: i64 = 253_402_300_799_999;

/// One lock, from its document, at one time of the server's clock: state, owner, fencing token and lease. Returned by
/// [`LockAdmin`](crate::LockAdmin).
///
/// It implements [`Serialize`] for reports and logs. The fields have their Rust names in this order, dates are RFC 3339
/// strings in UTC (within the years 0 to 9999), `remaining` is a number of seconds, and `state` is `"held"`, `"expired"`,
/// `"released"` or `"done"`:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let guard = provider.lock("report:1").await?;
/// let info = provider.admin().get("report:1").await?.expect("the lock is held");
/// let json = serde_json::to_value(&info)?;
/// // {"name":"report:1","owner":"billing-1","state":"held","fencing_token":1763764800123000,
/// //  "acquired_at":"2025-11-21T22:40:00.123Z","expires_at":"2025-11-21T22:40:30.123Z","remaining":29.87}
/// assert_eq!(json["state"], "held");
/// assert_eq!(json["fencing_token"], guard.fencing_token().get());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock's name; for a permit that of its semaphore.
    pub name: String,
    /// The number of the permit, from 0, if this is a permit of a [`Semaphore`](crate::Semaphore).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit: Option<u32>,
    /// The owner that holds the lock, held it when its lease expired, or has marked it as done. `None` once the lock is
    /// released, and for holders that write no owner, as DistributedLock.MongoDB does.
    pub owner: Option<String>,
    /// Whether the lease is detached: no process renews it, and it ends at [`expires_at`](Self::expires_at) unless a program with
    /// its [handle](crate::LeaseHandle) resumes or extends it. In JSON the field is left out if it is `false`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// Whether the lock is held, expired, released or done.
    pub state: LockState,
    /// The fencing token in the document, which is that of the latest hold.
    ///
    /// A process with several waiters reserves a block of tokens with one acquire request and hands the lock over from
    /// one waiter to the next without another command. The document then has the last token of the block, and the token
    /// of the present holder can be smaller.
    ///
    /// In the document of a permit it is only a number that increases: it distinguishes one hold from the next for
    /// [`only_if`](crate::ForceRelease::only_if), and protects no data.
    pub fencing_token: FencingToken,
    /// The time at which the lock was last acquired from the server.
    #[serde(serialize_with = "as_rfc3339")]
    pub acquired_at: DateTime,
    /// The time at which the lease ends if it is not renewed, or at which it ended.
    #[serde(serialize_with = "as_rfc3339")]
    pub expires_at: DateTime,
    /// The time from the read until the lock is free, if it is neither renewed nor released; zero if it is free.
    ///
    /// For a lock that was not released it includes the [`takeover_margin`] of the provider that reads it.
    ///
    /// [`takeover_margin`]: crate::LockProviderBuilder::takeover_margin
    #[serde(serialize_with = "as_seconds")]
    pub remaining: Duration,
}

/// The state of a lock by the server's clock.
///
/// It implements [`Serialize`] as `"held"`, `"expired"`, `"released"` or `"done"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LockState {
    /// The holder's lease is valid.
    Held,
    /// The lease expired without a release, because its holder crashed or lost the lock. The lock is free, except that
    /// it stays taken for [`LockInfo::remaining`] if a takeover margin is not over.
    Expired,
    /// The lock was released. It is free, except that it stays taken for [`LockInfo::remaining`] if its minimum hold is
    /// not over. A mark of finished work whose time is over counts as released.
    Released,
    /// The work under the lock is done and needs no other run before [`LockInfo::expires_at`]: a lock with
    /// [`once_per`](crate::DistributedLock::once_per) or [`once`](crate::DistributedLock::once) was marked. Until then
    /// nothing acquires it; [`force_release`](crate::LockAdmin::force_release) clears the mark.
    Done,
}

pub(crate) fn as_rfc3339<S: Serializer>(
    date: &(impl Into<Option<DateTime>> + Copy),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let date: Option<DateTime> = (*date).into();
    let millis = date.map(|date| date.timestamp_millis().clamp(FIRST_DATE, LAST_DATE));
    let text = millis.map(|millis| DateTime::from_millis(millis).try_to_rfc3339_string());
    text.transpose().map_err(S::Error::custom)?.serialize(serializer)
}

/// What an operator sees of a lock, to a provider with this margin; an error if a field of the document has the wrong type.
pub(crate) fn info(name: &str, sight: &Sight, takeover_margin: Duration) -> Result<LockInfo, LockError> {
    let document = &sight.document;
    let date = |field, value: &Value| {
        let date = value.date().ok_or_else(|| unfit(name, field, value, "a date"))?;
        Ok::<_, LockError>(DateTime::from_millis(date))
    };
    let wrong_id = || unfit(name, "lockId", &document.lock_id, "a string");
    let taken_by = lock_id::taken_by(sight.lock_id().ok_or_else(wrong_id)?);
    let wrong_token = || unfit(name, "fencingToken", &document.token, "a 64-bit integer");
    Ok(LockInfo {
        name: permit_id::name(name).to_owned(),
        permit: permit_id::number(name),
        owner: lock_id::owner(taken_by).map(str::to_owned),
        detached: Id::parse(taken_by).is_some_and(Id::is_detached),
        state: match (taken_by, sight.left().unwrap_or_default()) {
            ("", _) => LockState::Released,
            (id, ..=0) if lock_id::is_mark(id) => LockState::Released,
            (id, _) if lock_id::is_mark(id) => LockState::Done,
            (_, ..=0) => LockState::Expired,
            _ => LockState::Held,
        },
        acquired_at: date("acquiredAt", &document.acquired_at)?,
        expires_at: date("expiresAt", &document.expires_at)?,
        fencing_token: FencingToken::from(document.token.long().ok_or_else(wrong_token)?),
        remaining: from_millis(sight.until_free(millis(takeover_margin)).unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;

    use crate::protocol::Document;

    const ACQUIRED: i64 = 1_763_764_800_123;

    fn sight(lock_id: &str, expires_at: i64, now: i64) -> Sight {
        Sight {
            document: Document {
                lock_id: Value::Text(Arc::from(lock_id)),
                acquired_at: Value::Date(ACQUIRED),
                expires_at: Value::Date(expires_at),
                token: Value::Long(1_763_764_800_123_000),
            },
            now: Some(now),
        }
    }

    fn json(lock_id: &str, expires_in: i64, now_in: i64) -> String {
        let sight = sight(lock_id, ACQUIRED.saturating_add(expires_in), ACQUIRED + now_in);
        serde_json::to_string(&info("report:1", &sight, Duration::ZERO).unwrap()).unwrap()
    }

    /// Each row has a `lockId`, the milliseconds of the lease, those until now, and what the JSON has.
    #[test]
    fn the_json_is_plain_and_stable() {
        let rows = "billing#1#8c0f|30000|130|\"billing#1\"|held|40:30.123Z|29.87
            billing-1#8c0f|877|5000|\"billing-1\"|expired|40:01Z|0.0
            |60000|59999|null|released|41:00.123Z|0.0
            kept:billing-1#8c0f|60000|59999|null|released|41:00.123Z|0.001
            done:billing#1#8c0f|30000|130|\"billing#1\"|done|40:30.123Z|29.87
            done:billing#1#8c0f|877|877|\"billing#1\"|released|40:01Z|0.0";
        for row in rows.lines() {
            let fields: Vec<&str> = row.trim().split('|').collect();
            let [lock_id, lease, now, owner, state, expires_at, remaining] = fields[..] else {
                panic!("seven fields: {row}")
            };
            let lock = format!(r#""name":"report:1","owner":{owner},"state":"{state}""#);
            let token = r#""fencing_token":1763764800123000"#;
            let acquired_at = r#""acquired_at":"2025-11-21T22:40:00.123Z""#;
            let end = format!(r#""expires_at":"2025-11-21T22:{expires_at}","remaining":{remaining}"#);
            let expected = format!("{{{lock},{token},{acquired_at},{end}}}");
            let shown = json(lock_id, lease.parse().unwrap(), now.parse().unwrap());
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn the_margin_keeps_a_lock_taken_that_was_not_released() {
        let state = |lock_id: &str, expired_for: i64| {
            let sight = sight(lock_id, ACQUIRED, ACQUIRED + expired_for);
            let info = info("n", &sight, Duration::from_secs(5)).unwrap();
            (info.state, info.remaining.as_millis())
        };
        assert_eq!(state("a#1", -1000), (LockState::Held, 6000));
        assert_eq!(state("a#1", 0), (LockState::Expired, 5000));
        assert_eq!(state("a#1", 4999), (LockState::Expired, 1));
        assert_eq!(state("a#1", 5000), (LockState::Expired, 0));
        assert_eq!(state("", -1000), (LockState::Released, 0));
        assert_eq!(state("kept:a#1", -1000), (LockState::Released, 1000));
        assert_eq!(state("kept:a#1", 0), (LockState::Released, 0));
    }

    /// Other programs may write such dates, for instance for a lock without an end.
    #[test]
    fn dates_without_an_rfc_3339_form_are_clamped() {
        let (first, last) = ("0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z");
        for (end, shown) in [(i64::MIN, first), (i64::MAX, last)] {
            let json = json("a#1", end, 0);
            assert!(json.contains(shown), "{json}");
        }
    }
}
