//! Holders that no longer renew: a lease that was not renewed for a long time probably belongs to a process that has
//! ended.
//!
//! The document has only the end of the lease. The server's oplog, read with a change stream, has the time of each renewal.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::{Document, Timestamp, doc};
use mongodb::change_stream::event::ResumeToken;
use mongodb::error::Error;
use mongolock::{LockInfo, LockState};
use tokio::time::timeout;

use crate::connection::Collections;
use crate::ids;

/// The seconds for which past renewals are read: a longer lease may be renewed more rarely.
const WINDOW: u32 = 120;

/// The time limit of the read; without a result nothing is shown.
const LIMIT: Duration = Duration::from_secs(2);

/// When the leases of the locks were last set, by the `_id`s of their documents, in seconds since 1970; and the present.
#[derive(Default)]
pub(crate) struct LastRenewals {
    at: HashMap<String, i64>,
    now: i64,
}

impl LastRenewals {
    /// The renewals of the last minutes. None is known if there are no change streams, or the user may not open one.
    pub(crate) async fn read_unless(as_json: bool, collections: &Collections) -> Self {
        if as_json {
            return Self::default();
        }
        let read = timeout(LIMIT, read(collections)).await;
        read.ok().and_then(Result::ok).flatten().unwrap_or_default()
    }

    /// For how long the lease of a lock that is held has not been renewed, if that is more than half of its expiry. A holder renews
    /// after a third.
    pub(crate) fn missing_for(&self, info: &LockInfo) -> Option<Duration> {
        if info.state != LockState::Held || info.detached {
            return None;
        }
        let id = match info.permit {
            Some(number) => format!("{}{number}", ids::any_permit(&info.name)),
            None => info.name.clone(),
        };
        let at = *self.at.get(&id)?;
        let silent = self.now - at;
        let expiry = info.expires_at.timestamp_millis() / 1000 - at;
        // Both times are whole seconds.
        let is_missing = 2 * (silent - 1) > expiry + 1;
        is_missing.then(|| Duration::from_secs(u64::try_from(silent).unwrap_or(0)))
    }
}

/// The text about a lease without renewals.
pub(crate) fn no_renewal(time: Duration) -> String {
    format!("no renewal for {} s", time.as_secs())
}

/// Reads the renewals up to the last write of the primary; `None` if the server does not report that write, as the
/// router of a sharded cluster.
async fn read(collections: &Collections) -> Result<Option<LastRenewals>, Error> {
    let hello = collections.database.run_command(doc! { "hello": 1 }).await?;
    let last = hello
        .get_document("lastWrite")
        .and_then(|last| last.get_document("opTime"));
    let last = last.and_then(|last| last.get_timestamp("ts"));
    let (Ok(last), Ok(now)) = (last, hello.get_datetime("localTime")) else {
        return Ok(None);
    };
    let now = now.timestamp_millis() / 1000;
    let time = u32::try_from(now).unwrap_or(u32::MAX).saturating_sub(WINDOW);
    let changes = doc! { "$match": { "$or": [
        { "updateDescription.updatedFields.expiresAt": { "$exists": true } },
        { "operationType": { "$in": ["insert", "replace"] } },
    ] } };
    let names = doc! { "$project": { "documentKey": 1, "clusterTime": 1 } };
    let stream = collections.locks.watch().pipeline([changes, names]);
    let stream = stream.start_at_operation_time(Timestamp { time, increment: 1 });
    // At the end of the oplog the server would wait for a change.
    let stream = stream.max_await_time(Duration::from_millis(1)).await?;
    let mut stream = stream.with_type::<Document>();
    let mut at = HashMap::new();
    loop {
        let Some(change) = stream.next_if_any().await? else {
            // A batch may be empty before the end, and after an incomplete read a running holder would seem to have
            // ended.
            if stream.resume_token().and_then(|token| seconds(&token)) >= Some(last.time) {
                return Ok(Some(LastRenewals { at, now }));
            }
            continue;
        };
        let key = change
            .get_document("documentKey")
            .and_then(|key| key.get_str("_id"));
        if let (Ok(id), Ok(time)) = (key, change.get_timestamp("clusterTime")) {
            at.insert(id.to_owned(), i64::from(time.time));
        }
    }
}

/// The time of a resume token in seconds since 1970: the first number in it, behind a byte with its type.
fn seconds(token: &ResumeToken) -> Option<u32> {
    let token = serde_json::to_value(token).ok()?;
    u32::from_str_radix(token.get("_data")?.as_str()?.get(2..10)?, 16).ok()
}
