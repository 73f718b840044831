//! Providers with other options than that of the fixture.

use mongodb::Database;
use mongolock::{LockProvider, LockProviderBuilder};
use mongolock_tests::{AMPLE, Commands, recorded};

use crate::fixture::Fixture;

impl Fixture {
    /// A provider for the same locks, in another process.
    pub(crate) fn with(
        &self,
        options: impl FnOnce(LockProviderBuilder) -> LockProviderBuilder,
    ) -> LockProvider {
        options(self.provider.to_builder()).build().unwrap()
    }

    /// A patient provider whose commands are recorded, and for whose client the fail points of the test are.
    pub(crate) async fn recorded(
        &self,
        options: impl FnOnce(LockProviderBuilder) -> LockProviderBuilder,
    ) -> (LockProvider, Commands) {
        let (database, commands) = self.recorded_database().await;
        let builder = LockProvider::builder(&database).acquire_timeout(AMPLE);
        (options(builder).build().unwrap(), commands)
    }

    /// The database with its TTL index, for which nothing is sent any more, through such a client.
    pub(crate) async fn recorded_database(&self) -> (Database, Commands) {
        self.until_indexed().await;
        recorded(self.db(), &[]).await
    }
}
