mod builder;

use std::fmt::{self, Display};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mongodb::Database;
use once_cell::sync::OnceCell;

use crate::LockError;
use crate::admin::LockAdmin;
use crate::engine::Engine;
use crate::lock::DistributedLock;
use crate::options::Options;
use crate::store;
pub use builder::LockProviderBuilder;

static GLOBAL: OnceCell<LockProvider> = OnceCell::new();

tokio::task_local! {
    static SCOPED: LockProvider;
}

/// A factory for the locks of one MongoDB collection, with the default options of these locks.
///
/// Cloning is cheap, and all clones are the same provider. One background task renews the leases of all held locks. It
/// starts with the first acquisition, and ends with the last clone or with [`shutdown`](Self::shutdown). Like the
/// driver's `Client`, a provider belongs to the runtime in which it is first used.
///
/// ```no_run
/// use mongolock::LockProvider;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = mongodb::Client::with_uri_str("mongodb://localhost").await?;
/// LockProvider::new(&client.database("app")).set_global()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockProvider {
    engine: Arc<Engine>,
    /// The builder that the provider was made with, for [`to_builder`](Self::to_builder).
    builder: Arc<LockProviderBuilder>,
}

impl LockProvider {
    /// Makes a provider with the default options, on the collection `distributed_locks` of this database.
    ///
    /// Nothing is sent before the first acquisition. Writes have majority write concern and reads go to the primary,
    /// whatever the settings of the client are.
    #[must_use]
    pub fn new(database: &Database) -> Self {
        Self::builder(database).with_defaults()
    }

    /// Makes a builder, for a provider with options other than the defaults.
    pub fn builder(database: &Database) -> LockProviderBuilder {
        LockProviderBuilder::new(database)
    }

    /// A provider on a connection of its own, in the database that the URI names (`mongolock` if it names none).
    ///
    /// It listens to the driver's monitoring: while no server can be reached, an acquire says which address fails and
    /// why. A call that tries once gets that error within 2 s. A call that waits goes on until its acquire timeout,
    /// reports the event `mongolock.retrying` meanwhile, and then ends with that error.
    ///
    /// # Errors
    ///
    /// [`LockError::Mongo`] if the URI is not valid; its text repeats no user name or password. Nothing is awaited from
    /// a server: the first acquire shows whether one answers.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing has been started when it is dropped.
    pub async fn connect(uri: impl AsRef<str>) -> Result<Self, LockError> {
        let (client, reachability) = store::connect(uri.as_ref()).await?;
        let database = client
            .default_database()
            .unwrap_or_else(|| client.database("mongolock"));
        Ok(Self::builder(&database).watched(reachability).with_defaults())
    }

    /// Makes a provider that keeps its locks in memory, without a server, for tests of programs that use locks.
    ///
    /// The locks behave as on MongoDB, among the clones of this provider and the providers that
    /// [`to_builder`](Self::to_builder) makes from it. Each call creates an independent set of locks.
    #[must_use]
    pub fn in_memory() -> Self {
        LockProviderBuilder::in_memory().with_defaults()
    }

    /// Makes a builder with the collection and the options of this provider, for a second provider on the same locks.
    ///
    /// The second provider acts like another process: the holds of the two exclude each other. This is also the way to
    /// set the options of an [`in_memory`](Self::in_memory) provider.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// let ours = mongolock::LockProvider::in_memory();
    /// let theirs = ours.to_builder().owner("another process").build()?;
    /// let guard = theirs.lock("report:1").await?;
    /// assert!(ours.lock("report:1").try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_builder(&self) -> LockProviderBuilder {
        LockProviderBuilder::clone(&self.builder)
    }

    fn from_parts(engine: Engine, builder: LockProviderBuilder) -> Self {
        Self {
            engine: Arc::new(engine),
            builder: Arc::new(builder),
        }
    }

    /// Makes the lock of this name. The name is any value that implements `Display`, such as an `ObjectId`, a number or
    /// a string.
    ///
    /// Nothing is sent. The name is checked when the lock is acquired: 1 to 1024 bytes without control characters.
    pub fn lock(&self, name: impl Display) -> DistributedLock {
        self.named(name.to_string().into())
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn options(&self) -> &Arc<Options> {
        &self.engine.config.options
    }

    pub(crate) fn retention(&self) -> Duration {
        self.engine.config.retention
    }

    pub(crate) fn named(&self, name: Arc<str>) -> DistributedLock {
        DistributedLock::new(&self.engine, name)
    }

    /// Makes this the global provider: that of every annotated function without a `provider` argument.
    ///
    /// # Errors
    ///
    /// [`LockError::ProviderAlreadySet`] if a global provider is already set; it is kept.
    pub fn set_global(self) -> Result<(), LockError> {
        GLOBAL.set(self).map_err(|_| LockError::ProviderAlreadySet)
    }

    /// The provider of the enclosing [`scope`](Self::scope), or else the global one.
    ///
    /// # Errors
    ///
    /// [`LockError::NoProvider`] if neither is set.
    pub fn global() -> Result<Self, LockError> {
        match SCOPED.try_with(Clone::clone) {
            Ok(scoped) => Ok(scoped),
            Err(_) => GLOBAL.get().cloned().ok_or(LockError::NoProvider),
        }
    }

    /// Runs a future with this provider instead of the global one, so that tests can run in parallel.
    ///
    /// It applies to the future itself, and not to the tasks that it spawns.
    ///
    /// ```
    /// use mongolock::{LockError, LockProvider, distributed_lock};
    ///
    /// #[distributed_lock(name = "answer")]
    /// async fn answer() -> Result<u32, LockError> {
    ///     Ok(42)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let provider = LockProvider::in_memory();
    /// assert_eq!(provider.scope(answer()).await?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        SCOPED.scope(self.clone(), future)
    }

    /// The operator's interface to the locks of this provider's collection, of all processes.
    #[must_use]
    pub fn admin(&self) -> LockAdmin {
        LockAdmin::new(&self.engine)
    }

    /// Shuts down this provider and all its clones, as the last step of a graceful shutdown: releases all locks, and
    /// returns when the server has confirmed it.
    ///
    /// New and waiting acquisitions return [`LockError::ShutDown`], and held locks are lost: the bodies of annotated
    /// functions are cancelled. Without a confirmation of the server the call returns after 15 s; the remaining leases
    /// then expire on their own.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the provider is shut down, even if the future is dropped; the future only waits for the server.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn shutdown(&self) {
        self.engine.shut_down().await;
    }
}

impl AsRef<LockProvider> for LockProvider {
    fn as_ref(&self) -> &LockProvider {
        self
    }
}

impl fmt::Debug for LockProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockProvider")
            .field("owner", &self.engine.owner)
            .field("options", self.options())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::is_pending;

    #[test]
    fn a_provider_is_made_without_a_runtime() {
        assert_eq!(LockProvider::in_memory().lock(7).name(), "7");
    }

    /// The background task ends although the shutdown is not awaited and a clone of the provider still exists.
    #[tokio::test(start_paused = true)]
    async fn a_dropped_shutdown_is_one() {
        let provider = LockProvider::in_memory();
        let guard = provider.lock("held").await.unwrap();
        let mut shutdown = Box::pin(provider.shutdown());
        assert!(is_pending(shutdown.as_mut()).await);
        drop(shutdown);
        assert!(guard.is_lost());
        let metrics = tokio::runtime::Handle::current().metrics();
        let ended = async {
            while metrics.num_alive_tasks() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let limit = Duration::from_secs(60);
        tokio::time::timeout(limit, ended).await.expect("its tasks end");
    }
}
