//! What another process sees of a lock.

use mongodb::bson::Document;
use mongolock::LockInfo;

use crate::fixture::{Fixture, info};

impl Fixture {
    /// The lock as an operator sees it, who must find a document.
    pub(crate) async fn info(&self, name: &str) -> LockInfo {
        info(&self.provider, name).await
    }

    /// Whether another process can acquire the lock, which releases it at once.
    pub(crate) async fn is_free(&self, name: &str) -> bool {
        let acquired = self.rival().lock(name).try_acquire().await.unwrap();
        let is_free = acquired.is_some();
        if let Some(guard) = acquired {
            guard.release().await.unwrap();
        }
        is_free
    }

    /// The `lockId` in the document of the lock.
    pub(crate) async fn lock_id(&self, name: &str) -> String {
        let document = self.document(name).await.expect("the lock has a document");
        document.get_str("lockId").unwrap().to_owned()
    }

    /// A date in the document of the lock, in milliseconds since the epoch.
    pub(crate) async fn millis(&self, name: &str, field: &str) -> i64 {
        millis(&self.document(name).await.unwrap(), field)
    }
}

/// A date of a document, in milliseconds since the epoch.
pub(crate) fn millis(document: &Document, field: &str) -> i64 {
    document.get_datetime(field).unwrap().timestamp_millis()
}

/// The fields of a document, sorted.
pub(crate) fn fields(document: &Document) -> Vec<&str> {
    let mut fields: Vec<&str> = document.keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}
