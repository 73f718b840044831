//! The lines of `--json`: one object each. The help of `ls` and of `watch` lists the fields.

use std::time::Duration;

use mongodb::bson::DateTime;
use mongolock::{FencingToken, LockInfo, LockState};
use serde::Serialize;

use crate::text::escaped_in_json;

/// The line of a lock or a permit.
#[derive(Debug, Serialize)]
struct LockLine<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<u32>,
    state: LockState,
    /// Left out for a lease that a process renews.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    detached: bool,
    owner: Option<&'a str>,
    /// Left out for a permit, which has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    fencing_token: Option<i64>,
    acquired_at: String,
    expires_at: String,
    held_ms: Option<u64>,
    remaining_ms: u64,
}

/// The line of a document that cannot be read as a lock.
#[derive(Debug, Serialize)]
struct DamagedLine<'a> {
    name: &'a str,
    state: &'static str,
    problem: &'a str,
}

/// The line of a lock.
pub(crate) fn lock(info: &LockInfo) -> String {
    line(&LockLine {
        name: &info.name,
        permit: info.permit,
        state: info.state,
        detached: info.detached,
        owner: info.owner.as_deref(),
        fencing_token: token(info).map(FencingToken::get),
        acquired_at: rfc3339(info.acquired_at),
        expires_at: rfc3339(info.expires_at),
        held_ms: since(info, info.acquired_at).map(millis),
        remaining_ms: millis(info.remaining),
    })
}

/// The fencing token of a hold. The document of a permit has a token as well, but tokens of permits that are held at
/// the same time cannot be compared.
pub(crate) fn token(info: &LockInfo) -> Option<FencingToken> {
    info.permit.is_none().then_some(info.fencing_token)
}

/// The line of a document that cannot be read.
pub(crate) fn damaged(name: &str, problem: &str) -> String {
    let state = "damaged";
    line(&DamagedLine { name, state, problem })
}

/// One object as a line without characters that control a terminal.
pub(crate) fn line(object: &impl Serialize) -> String {
    // These objects have text for keys and no foreign code in them, so that nothing can fail.
    escaped_in_json(&serde_json::to_string(object).unwrap_or_default())
}

/// The time from a date until a held lock was read, both by the server's clock. The time of the read is known only
/// while the lock is held.
pub(crate) fn since(info: &LockInfo, date: DateTime) -> Option<Duration> {
    if info.state != LockState::Held {
        return None;
    }
    let remaining = i64::try_from(info.remaining.as_millis()).ok()?;
    let now = info.expires_at.timestamp_millis().saturating_sub(remaining);
    let passed = now.saturating_sub(date.timestamp_millis());
    Some(Duration::from_millis(u64::try_from(passed).unwrap_or_default()))
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The date as RFC 3339 in UTC, with milliseconds, so that columns are aligned; the year 0 or 9999 for a date that has no
/// such form.
pub(crate) fn rfc3339(date: DateTime) -> String {
    let Ok(text) = date.try_to_rfc3339_string() else {
        let bound = if date.timestamp_millis() < 0 {
            "0000-01-01T00:00:00.000Z"
        } else {
            "9999-12-31T23:59:59.999Z"
        };
        return bound.to_owned();
    };
    let text = text.trim_end_matches('Z');
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{seconds}.{fraction:0<3}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_milliseconds() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_500, "1970-01-01T00:00:01.500Z"),
            (1_057, "1970-01-01T00:00:01.057Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(DateTime::from_millis(millis)), text);
        }
    }
}
