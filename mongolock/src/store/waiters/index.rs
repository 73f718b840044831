use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::doc;
use mongodb::error::Error;
use mongodb::options::IndexOptions;

use crate::error::codes::{NAMESPACE_NOT_FOUND, UNAUTHORIZED};
use crate::store::IndexState;
use crate::store::driver_error;
use crate::store::mongo::MongoStore;
use crate::timing::COMMAND_LIMIT;

/// The name of the index by which a line is read in its order.
const LINE_INDEX: &str = "line";

/// The name of the index that removes the documents of processes that have died.
const TTL_INDEX: &str = "until_ttl";

impl MongoStore {
    /// Creates the indexes of the waiters where one of them is missing.
    pub(crate) async fn ensure_waiters_indexes(&self) -> IndexState {
        let ensured = match self.has_waiters_indexes().await {
            Ok(false) => self.create_waiters_indexes().await,
            found => found.map(drop),
        };
        ensured.map_or_else(|error| IndexState::from_error(&error), |()| IndexState::Ready)
    }

    /// Whether both indexes are there. Without the right to list them the server finds out when they are created.
    async fn has_waiters_indexes(&self) -> Result<bool, Error> {
        let mut indexes = match self.waiters.list_indexes().max_time(COMMAND_LIMIT).await {
            Ok(indexes) => indexes,
            Err(error) => {
                let is_unknown = [NAMESPACE_NOT_FOUND, UNAUTHORIZED]
                    .map(Some)
                    .contains(&driver_error::code(&error));
                return if is_unknown { Ok(false) } else { Err(error) };
            }
        };
        let mut missing = vec![LINE_INDEX, TTL_INDEX];
        while indexes.advance().await? {
            let name = indexes.current().get_str("name").unwrap_or_default().to_owned();
            missing.retain(|wanted| *wanted != name);
        }
        Ok(missing.is_empty())
    }

    async fn create_waiters_indexes(&self) -> Result<(), Error> {
        let named = |name: &str| IndexOptions::builder().name(name.to_owned());
        let line = IndexModel::builder()
            .keys(doc! { "name": 1, "at": 1, "_id": 1 })
            .options(named(LINE_INDEX).build());
        let ttl = IndexModel::builder()
            .keys(doc! { "until": 1 })
            .options(named(TTL_INDEX).expire_after(Duration::ZERO).build());
        let indexes = [line.build(), ttl.build()];
        self.create_indexes(&self.waiters, indexes).await
    }
}
