//! Holders that no longer renew: a lease that was not renewed for long is probably that of a process that has died.
//!
//! The document has only the end of the lease. The server's oplog, read with a change stream, has the time of each renewal.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::{Bson, Document, Timestamp, doc};
use mongodb::error::Error;
use mongolock::{LockInfo, LockState};
use tokio::time::timeout;

use crate::connection::{Collections, now};
use crate::ids;

/// How far back renewals are looked for: a lease that lasts for longer may be renewed more rarely.
const WINDOW: u32 = 120;

/// How long the look may take; without it nothing is said.
const LIMIT: Duration = Duration::from_secs(2);

/// When the leases of the locks were last set, by the `_id`s of their documents, in seconds since 1970; and the present.
#[derive(Default)]
pub(crate) struct LastRenewals {
    at: HashMap<String, i64>,
    now: i64,
}

impl LastRenewals {
    /// Those of the last minutes. None is known where there are no change streams, or the user may not open one.
    pub(crate) async fn read(collections: &Collections) -> Self {
        let Ok(now) = now(collections).await else {
            return Self::default();
        };
        let now = now.timestamp_millis() / 1000;
        let at = timeout(LIMIT, read(collections, now))
            .await
            .ok()
            .and_then(Result::ok);
        Self {
            at: at.unwrap_or_default(),
            now,
        }
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
        let is_missing = silent > expiry / 2;
        is_missing.then(|| Duration::from_secs(u64::try_from(silent).unwrap_or(0)))
    }
}

/// What is said of a lease without renewals.
pub(crate) fn no_renewal(time: Duration) -> String {
    format!("no renewal for {} s", time.as_secs())
}

async fn read(collections: &Collections, now: i64) -> Result<HashMap<String, i64>, Error> {
    let begin = u32::try_from(now).unwrap_or(u32::MAX).saturating_sub(WINDOW);
    let changes = doc! { "$match": { "$or": [
        { "updateDescription.updatedFields.expiresAt": { "$exists": true } },
        { "operationType": { "$in": ["insert", "replace"] } },
    ] } };
    let names = doc! { "$project": { "documentKey": 1, "clusterTime": 1 } };
    let stream = collections.locks.watch().pipeline([changes, names]);
    let stream = stream.start_at_operation_time(Timestamp {
        time: begin,
        increment: 1,
    });
    // At the end of the oplog the server would wait for a change.
    let stream = stream.max_await_time(Duration::from_millis(1)).await?;
    let mut stream = stream.with_type::<Document>();
    let mut at = HashMap::new();
    while let Some(change) = stream.next_if_any().await? {
        let id = change
            .get_document("documentKey")
            .ok()
            .and_then(|key| key.get("_id"))
            .and_then(Bson::as_str);
        let time = change.get_timestamp("clusterTime");
        if let (Some(id), Ok(time)) = (id, time) {
            at.insert(id.to_owned(), i64::from(time.time));
        }
    }
    Ok(at)
}
