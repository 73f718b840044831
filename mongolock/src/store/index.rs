use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::doc;
use mongodb::error::Error;
use mongodb::options::{CommitQuorum, IndexOptions};

use super::mongo::MongoStore;
use crate::index::IndexState;

/// The name that DistributedLock.MongoDB gives it, so that both find the same index.
const INDEX_NAME: &str = "expiresAt_ttl";

impl MongoStore {
    /// One look at a time: behind an index build that does not end each of them would keep a connection of the pool,
    /// and with the last of these locks would hang as well.
    pub(crate) async fn ensure_index(&self, retention: Duration) -> IndexState {
        let _alone = self.looking.lock().await;
        // Some servers refuse a TTL index on a capped collection, others make one that does nothing.
        match (self.create_index(retention).await, self.is_capped().await) {
            (_, true) => IndexState::Capped,
            (Ok(()), false) => IndexState::Ready,
            (Err(error), false) => IndexState::from_error(&error),
        }
    }

    async fn create_index(&self, retention: Duration) -> Result<(), Error> {
        let options = IndexOptions::builder()
            .name(INDEX_NAME.to_owned())
            .expire_after(retention)
            .build();
        let index = IndexModel::builder()
            .keys(doc! { "expiresAt": 1 })
            .options(options)
            .build();
        let create = self.background.create_index(index);
        if self.is_replicated().await? {
            // The default waits for every voting member, for ever while one is down; a standalone refuses the option.
            create.commit_quorum(CommitQuorum::Majority).await?;
        } else {
            create.await?;
        }
        Ok(())
    }

    /// Part of a replica set or behind a router.
    async fn is_replicated(&self) -> Result<bool, Error> {
        let hello = self
            .background
            .client()
            .database("admin")
            .run_command(doc! { "hello": 1 })
            .await?;
        Ok(hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid"))
    }

    /// Without the right to list collections it counts as an ordinary one.
    async fn is_capped(&self) -> bool {
        let database = self.background.client().database(&self.background.namespace().db);
        let own = doc! { "name": self.background.name() };
        let Ok(mut found) = database.list_collections().filter(own).await else {
            return false;
        };
        matches!(found.advance().await, Ok(true))
            && found
                .deserialize_current()
                .is_ok_and(|collection| collection.options.capped == Some(true))
    }
}
