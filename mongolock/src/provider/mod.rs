mod builder;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mongodb::Database;
use once_cell::sync::OnceCell;

use crate::admin::LockAdmin;
use crate::engine::Engine;
use crate::home::Home;
use crate::lock::Target;
use crate::name::RenderedName;
use crate::opaque::Opaque;
use crate::store;
use crate::task::joined;
use crate::{DistributedLock, IntoLockName, Lock, LockError, LockSet, Semaphore};
pub use builder::LockProviderBuilder;

static GLOBAL: OnceCell<LockProvider> = OnceCell::new();

tokio::task_local! {
    static SCOPED: LockProvider;
}

/// A factory for the locks of one MongoDB collection, with the default options of these locks.
///
/// Cloning is cheap, and all clones are the same provider, which renews the leases of all held locks together until its last
/// clone is dropped or [`shutdown`](Self::shutdown). A provider of [`connect`](Self::connect) works on a thread of its own;
/// another one, like the driver's `Client`, belongs to the runtime in which it is built.
///
/// ```no_run
/// use mongolock::LockProvider;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// LockProvider::connect("mongodb://localhost/app").await?.set_global()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockProvider {
    pub(crate) engine: Arc<Engine>,
    /// The builder that the provider was made with, for [`to_builder`](Self::to_builder).
    builder: Opaque<LockProviderBuilder>,
}

impl LockProvider {
    /// Makes a provider with the default options, on the collection `distributed_locks` of this database.
    ///
    /// Its errors have the texts of the driver's errors; those of [`connect`](Self::connect) name the address that
    /// cannot be reached. It shares the connections of the client with the application. If the application uses all of
    /// them, a renewal waits, and the event `mongolock.renewal_waiting` is reported. [`connect`](Self::connect) creates
    /// a client of its own. Set `serverSelectionTimeoutMS` of the client to less than the acquire timeout: the error of an
    /// acquire then says why no server replies.
    ///
    /// `local`, `admin` and `config` cannot have locks: each call of a provider on one of them fails with the error of
    /// [`build`](LockProviderBuilder::build), and sends nothing. The client belongs to the application: mongolock does not
    /// check whether the hosts of its connection string belong to one replica set.
    ///
    /// Nothing is sent before the first acquisition. Writes have majority write concern and reads go to the primary,
    /// whatever the settings of the client are.
    pub fn new(database: &Database) -> Self {
        Self::builder(database).with_defaults()
    }

    /// Makes a builder, for a provider with options other than the defaults.
    pub fn builder(database: &Database) -> LockProviderBuilder {
        LockProviderBuilder::new(database)
    }

    /// A provider on a connection of its own, in the database that the URI names (`mongolock` if it names none).
    ///
    /// The provider uses the driver's monitoring events: while no server can be reached, the error of an acquire says which
    /// address fails and why. A single attempt gets that error within 2 s. A call that waits continues until its acquire
    /// timeout, reports the event `mongolock.retrying` meanwhile, and then returns that error. If the server has never
    /// accepted the user and the password, or belongs to another replica set, every acquire, health check and admin
    /// call says so at once; a log-in that is refused later, and a missing right, end an acquire after 10 s.
    ///
    /// The hosts of the URI must belong to one replica set, because the driver uses the set that replies first, so two
    /// processes could hold one lock. If the driver drops a host, the provider asks this host once, in the background, to
    /// which set it belongs. Replies to calls are held back meanwhile, for 2 s at most. If the host belongs to another set,
    /// by the name or by the members, each later call returns an error that says so, and present holds continue to their
    /// end. Other names of the same servers, and hosts that are in no set or do not reply, are not errors; see [the
    /// guide](crate::guide::production#one-connection-string).
    ///
    /// Unless the URI sets them, three options of the driver differ from its defaults: `maxPoolSize` is 16;
    /// `maxConnecting` is the size of the pool, at most 16, so that silent connections do not prevent the client from
    /// opening others; and `maxAdaptiveRetries` is 0, because mongolock repeats rejected commands itself.
    ///
    /// # Errors
    ///
    /// [`LockError::Mongo`] if the URI is not valid; its text repeats no user name or password.
    /// [`LockError::InvalidOption`] if it names the database `local`, `admin` or `config`, which cannot have locks:
    /// write `mongodb://host/app?authSource=admin` for a user in `admin`. The call does not wait for a server: the
    /// first acquire shows whether one replies.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing has been started when it is dropped.
    pub async fn connect(uri: impl AsRef<str>) -> Result<Self, LockError> {
        Self::connecting(uri.as_ref(), None).await?.0.build()
    }

    /// A builder for the database that the URI names, and this database. It may be one that cannot have locks. The client
    /// looks for a server for this time unless the URI sets that time. For the program `mongolock`.
    #[doc(hidden)]
    pub async fn connecting(
        uri: &str,
        selection: Option<Duration>,
    ) -> Result<(LockProviderBuilder, Database), LockError> {
        let (thread, uri) = (Home::start()?, uri.to_owned());
        // The client is made on the thread on which it will work.
        let connecting = thread
            .handle()
            .spawn(async move { store::connect(&uri, selection).await });
        let connection = joined(connecting.await)?;
        Ok(LockProviderBuilder::connected(connection, thread))
    }

    /// Makes a provider that keeps its locks in memory, without a server, for tests of programs that use locks.
    ///
    /// The locks behave as on MongoDB, among the clones of this provider and the providers that
    /// [`to_builder`](Self::to_builder) makes from it. Each call creates an independent set of locks.
    pub fn in_memory() -> Self {
        LockProviderBuilder::in_memory().with_defaults()
    }

    /// Makes a builder with the collection and the options of this provider, for a second provider on the same locks. It
    /// keeps the client, the owner if one was set, and the clear errors of [`connect`](Self::connect).
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

    /// Makes the lock of this name. The name is any value that implements `Display`, such as an `ObjectId`, a number or
    /// a string, or one whose type derives [`LockName`](macro@crate::LockName).
    ///
    /// Nothing is sent. The name is checked when the lock is acquired: 1 to 1024 bytes without control characters, and
    /// without white space at its ends. It is rendered here, up to that length. If its `Display` returns an error,
    /// acquiring the lock does, too.
    ///
    /// In a name that is made of several values, [`escape`](crate::escape()) keeps the values apart.
    pub fn lock(&self, name: impl IntoLockName) -> DistributedLock {
        Lock::new(&self.engine, Target::one(RenderedName::new(name), None))
    }

    /// Makes a set of the locks of these names, which are acquired all or nothing. The names are values as for
    /// [`lock`](Self::lock); each counts once, however often it is given.
    ///
    /// Nothing is sent. The names are checked when the set is acquired: 1 to 500 names, each as for [`lock`](Self::lock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let (from, to) = (7, 4);
    /// let accounts = [format!("account:{from}"), format!("account:{to}")];
    /// let guard = provider.lock_all(&accounts).await?;
    /// println!("both accounts are locked: {:?}", guard.names().collect::<Vec<_>>());
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl IntoLockName>) -> LockSet {
        let names = names.into_iter().map(RenderedName::new);
        Lock::new(&self.engine, Target::several(names.collect()))
    }

    /// Makes a semaphore: at most this number of callers hold a permit of it at the same time, in all processes. The name
    /// is a value as for [`lock`](Self::lock), and is independent of the lock of that name.
    ///
    /// Nothing is sent. Name and number are checked when a permit is acquired: 1 to 1000 permits.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let tenant = "acme";
    /// let permit = provider.semaphore(format!("export:{tenant}"), 5).await?;
    /// // At most five exports of this tenant run at the same time.
    /// permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, name: impl IntoLockName, permits: u32) -> Semaphore {
        Lock::new(&self.engine, Target::one(RenderedName::new(name), Some(permits)))
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
    pub fn admin(&self) -> LockAdmin {
        let engine = Arc::clone(&self.engine);
        LockAdmin { engine }
    }

    /// Shuts down this provider and all its clones at once: releases all locks, and returns when the server has
    /// confirmed the releases. [`shutdown_after`](Self::shutdown_after) first lets running work end.
    ///
    /// New and waiting acquisitions return [`LockError::ShutDown`](crate::LockError::ShutDown), and held locks are lost
    /// with [`LossReason::ShutDown`](crate::LossReason::ShutDown): the bodies of annotated functions are cancelled. If
    /// the server does not confirm the releases, the call waits for 15 s; the remaining leases then expire. It waits for a
    /// mark of finished work while the lease lasts, because otherwise the work would run again. That lease is renewed for
    /// one `expiry` after the work, and for 60 s at least. `shutdown_after` limits this wait as well.
    ///
    /// After that, the provider ends its change stream and its requests without a reply, within a second, and sends
    /// nothing by itself any more. The client of a [`connect`](Self::connect) provider is shut down, within 6 s, unless
    /// another provider from [`to_builder`](Self::to_builder) uses it. You must shut down a client of your own: call
    /// the driver's `Client::shutdown` after this. Otherwise one of the driver's tasks may panic when the runtime ends, and
    /// print a message; this is harmless.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let locks = mongolock::LockProvider::in_memory();
    /// locks.shutdown().await;
    /// // client.shutdown().await;
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Once polled, the provider is shut down, even if the future is dropped; the future only waits for the server.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn shutdown(&self) {
        self.engine.shut_down(None).await;
    }

    /// Shuts down this provider and all its clones gracefully, as the last step of a program: running work ends first,
    /// for at most the grace period.
    ///
    /// At once, new and waiting acquisitions return [`LockError::ShutDown`](crate::LockError::ShutDown). The only
    /// exception are those inside the body of a hold of this provider (the attribute,
    /// [`run`](crate::DistributedLock::run), or a [`LockContext::scope`](crate::LockContext::scope)): they continue
    /// until the grace period ends, because the body could not end without them. When all locks are released, or when
    /// the grace period ends, the rest is as for [`shutdown`](Self::shutdown): work that still runs is cancelled, and
    /// its locks are lost with [`LossReason::ShutDown`](crate::LossReason::ShutDown).
    ///
    /// With the grace period `grace`, the call takes at most `grace` and 16 s, and 6 s more for a
    /// [`connect`](Self::connect) provider. It returns sooner if MongoDB confirms the releases.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mongolock::{LockError, LockProvider};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let locks = LockProvider::in_memory();
    /// let running = tokio::spawn(locks.lock("report:1").run(async |_| {
    ///     tokio::time::sleep(Duration::from_millis(50)).await;
    ///     Ok::<_, LockError>("done")
    /// }));
    /// # tokio::task::yield_now().await;
    /// locks.shutdown_after(Duration::from_secs(20)).await;
    /// assert_eq!(running.await.unwrap().unwrap(), "done");
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the grace period: the provider is then shut down as by a dropped
    /// [`shutdown`](Self::shutdown). A call of `shutdown` meanwhile ends it as well.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn shutdown_after(&self, grace: Duration) {
        self.engine.shut_down(Some(grace)).await;
    }
}

impl LockProviderBuilder {
    /// Builds the provider. Nothing is sent to MongoDB.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] names the first option that is out of its bounds, with its value and the bounds; the
    /// option `database` also if it is `local`, `admin` or `config`.
    pub fn build(self) -> Result<LockProvider, LockError> {
        self.check()?;
        Ok(self.with_defaults())
    }

    /// Builds the provider with options that are known to be valid.
    pub(crate) fn with_defaults(self) -> LockProvider {
        let owner = self.owner.clone().unwrap_or_else(default_owner);
        let mut config = self.config.clone();
        // What the provider sets, its locks have not set themselves.
        let options = Arc::make_mut(&mut config.options);
        (options.has_own_timeout, options.has_own_min_hold) = (false, false);
        let engine = Engine::new(self.store(), config, owner.into(), self.thread.clone());
        LockProvider {
            engine: Arc::new(engine),
            builder: Arc::new(Box::new(self)),
        }
    }
}

fn default_owner() -> String {
    let host = hostname::get().unwrap_or_default();
    format!("{}:{}", host.to_string_lossy(), std::process::id())
}

impl AsRef<LockProvider> for LockProvider {
    fn as_ref(&self) -> &LockProvider {
        self
    }
}

impl fmt::Debug for LockProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}

#[cfg(test)]
mod tests;
