use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use mongodb::Database;

use crate::LockError;
use crate::home::Home;
use crate::options::{Config, WEEK, check_database, check_owner, ensure, lease_setters, whole};
#[cfg(test)]
use crate::simulation::Link;
use crate::store::{Connection, MemoryStore, MongoStore, Reachability, Store};

/// The shortest pause between two polls: with a shorter one a waiter would poll in a hot loop.
const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The longest pause between two polls: a longer one is almost certainly a mistake in the unit.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The longest retention in seconds that MongoDB accepts for a TTL index.
const MAX_RETENTION: Duration = Duration::from_secs(i32::MAX as u64);

/// The options of a [`LockProvider`](crate::LockProvider), and the default options of its locks; made by
/// [`LockProvider::builder`](crate::LockProvider::builder) or [`LockProvider::to_builder`](crate::LockProvider::to_builder).
/// Each setter names the default of its option.
///
/// ```no_run
/// use std::time::Duration;
/// use mongolock::LockProvider;
///
/// # fn example(database: &mongodb::Database) -> Result<(), mongolock::LockError> {
/// let provider = LockProvider::builder(database)
///     .expiry(Duration::from_secs(60))
///     .acquire_timeout(None)
///     .owner("billing-1")
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder makes no provider before `build` is called"]
pub struct LockProviderBuilder {
    place: StoreChoice,
    /// The client of the database, if this library has made it.
    connection: Option<Arc<Connection>>,
    /// What is known about the servers of the client.
    servers: Arc<Reachability>,
    collection: String,
    pub(super) config: Config,
    pub(super) owner: Option<String>,
    /// The thread on which the client was made.
    pub(super) thread: Option<Arc<Home>>,
}

/// Where the documents of the locks are.
#[derive(Clone)]
enum StoreChoice {
    Database(Database),
    Memory(Arc<MemoryStore>),
    #[cfg(test)]
    Simulated(Arc<Link>),
}

impl LockProviderBuilder {
    pub(crate) fn new(database: &Database) -> Self {
        Self::at(StoreChoice::Database(database.clone()))
    }

    /// A builder for the database that the connection string names, and this database.
    pub(crate) fn connected(connection: Arc<Connection>, thread: Home) -> (Self, Database) {
        let client = &connection.client;
        let database = client.default_database();
        let database = database.unwrap_or_else(|| client.database("mongolock"));
        let builder = Self {
            servers: Arc::clone(&connection.servers),
            connection: Some(connection),
            thread: Some(Arc::new(thread)),
            ..Self::new(&database)
        };
        (builder, database)
    }

    pub(crate) fn in_memory() -> Self {
        Self::at(StoreChoice::Memory(Arc::new(MemoryStore::new())))
    }

    /// Has the provider work on a thread of its own.
    pub(crate) fn on_own_thread(self) -> Result<Self, LockError> {
        let thread = Some(Arc::new(Home::start()?));
        Ok(Self { thread, ..self })
    }

    #[cfg(test)]
    pub(crate) fn simulated(link: Link) -> Self {
        Self::at(StoreChoice::Simulated(Arc::new(link)))
    }

    fn at(place: StoreChoice) -> Self {
        Self {
            place,
            connection: None,
            servers: Arc::default(),
            collection: "distributed_locks".to_owned(),
            config: Config::default(),
            owner: None,
            thread: None,
        }
    }

    /// Sets the database of the lock documents, on the same client: 1 to 63 bytes without `/`, `\\`, `.`, `"`, `$` and
    /// spaces, and not `local`, `admin` or `config`; by default that of the builder's source. A provider in memory has no
    /// database and ignores the name.
    ///
    /// Locks exclude each other only within one database. `local` is not replicated, so that a lock there could have two
    /// holders after a failover; `admin` and `config` have no transactions and no change streams.
    ///
    /// ```
    /// # async fn example() -> Result<(), mongolock::LockError> {
    /// use mongolock::LockProvider;
    ///
    /// let connected = LockProvider::connect("mongodb://localhost/app").await?;
    /// let provider = connected.to_builder().database("jobs").build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn database(mut self, name: impl AsRef<str>) -> Self {
        if let StoreChoice::Database(database) = &mut self.place {
            *database = database.client().database(name.as_ref());
        }
        self
    }

    /// Sets the collection of the lock documents: 1 to 200 bytes without `$` that do not begin with `system.`;
    /// `distributed_locks` by default.
    ///
    /// The first acquisition creates the collection. Locks exclude each other only within one collection.
    pub fn collection(mut self, name: impl Into<String>) -> Self {
        self.collection = name.into();
        self
    }

    lease_setters!(config.options);

    /// Sets the time between two renewals of a lease: at least 1 ms and less than the expiry; a third of the expiry by
    /// default. A lock whose own expiry is not longer than this interval is refused.
    pub fn renew_interval(mut self, interval: Duration) -> Self {
        Arc::make_mut(&mut self.config.options).renew_interval = Some(interval);
        self
    }

    /// Sets the shortest and the longest pause between two polls of a held lock: both 1 ms to 1 h; 10 ms to 800 ms by
    /// default.
    ///
    /// The pauses grow between the two bounds while the same holder has the lock. They are randomised (jitter), so that
    /// processes under contention do not poll at the same time.
    pub fn retry_interval(mut self, range: RangeInclusive<Duration>) -> Self {
        self.config.retry_interval = range;
        self
    }

    /// Sets for how long MongoDB keeps the document of an unused lock: 1 s to 68 years, in whole seconds; 1 day by
    /// default.
    ///
    /// MongoDB removes the documents with a TTL index on the end of the lease; see
    /// [`LockAdmin::index_state`](crate::LockAdmin::index_state). In memory, providers on the same locks share one
    /// retention, that of the provider that was built last. Once in each retention, an acquisition removes all documents of
    /// unused locks.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.config.retention = retention;
        self
    }

    /// Sets for how long a lock stays taken after its lease has expired: 0 to 7 days, in whole milliseconds, and at
    /// most the `retention`; 0 by default.
    ///
    /// A lease that ends without a release, because its holder crashed or is cut off, can be taken over only after this
    /// margin. It covers the difference between the clocks of the members of a replica set: after a failover to a
    /// member whose clock is 60 s ahead, leases end 60 s early, and with a margin of 60 s no process acquires such a
    /// lock before the lease has ended by its holder's clock. The disadvantage is that the lock of a crashed holder is free
    /// later. A released lock is free at once. A process that has lost its lock and still runs releases it.
    ///
    /// The margin is that of the provider that acquires the lock: **set the same one in all processes**. If they
    /// differ, the smallest one decides, because its process takes the lock first; and DistributedLock.MongoDB has
    /// none. Locks with this margin need a TTL index that keeps their documents for at least that time: if another
    /// program has created it with a shorter time (DistributedLock.MongoDB: 0 s),
    /// [`index_state`](crate::LockAdmin::index_state) says so.
    ///
    /// ```
    /// use std::time::Duration;
    /// use mongolock::LockProvider;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let builder = LockProvider::in_memory().to_builder();
    /// let provider = builder.takeover_margin(Duration::from_secs(5)).build()?;
    /// provider.lock("report:1").await?.release().await?;
    /// assert!(provider.lock("report:1").try_acquire().await?.is_some(), "a released lock is free at once");
    /// # Ok(())
    /// # }
    /// ```
    pub fn takeover_margin(mut self, margin: Duration) -> Self {
        Arc::make_mut(&mut self.config.options).takeover_margin = margin;
        self
    }

    /// Sets whether a change stream wakes waiters when another process releases the lock; `true` by default.
    ///
    /// The stream is open only while calls wait. Each process also learns from it the order between processes. With `false`, on a
    /// standalone server, or without the privilege to watch the collection, waiters poll within `retry_interval`, and
    /// get their [turns by chance](crate::guide::leases#without-change-streams). While calls wait, a stream that the
    /// server does not offer is tried again every 5 minutes, and any other error is followed by a retry after a second.
    /// [The guide](crate::guide::leases#what-waiting-costs-the-server) says what a stream costs, and when to switch it
    /// off.
    ///
    /// Programs with DistributedLock.MongoDB (.NET) that share the locks always poll, and get few turns beside waiters that are
    /// woken: see [the guide](crate::guide::migration#what-is-different).
    pub fn wake_up(mut self, wake_up: bool) -> Self {
        self.config.wake_up = wake_up;
        self
    }

    /// Sets the owner that is written into the documents of held locks, for operators and error messages: 1 to 256
    /// bytes without control characters that do not begin with `done:` or `kept:`; `<host>:<process id>` by default.
    ///
    /// The owner need not be unique: each acquisition has an id of its own.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    pub(super) fn store(&self) -> Store {
        match &self.place {
            StoreChoice::Database(database) => Store::Mongo(Arc::new(Box::new(MongoStore::new(
                database,
                &self.collection,
                self.connection.clone(),
                Arc::clone(&self.servers),
            )))),
            StoreChoice::Memory(store) => {
                store.set_retention(self.config.retention);
                Store::Memory(Arc::clone(store))
            }
            #[cfg(test)]
            StoreChoice::Simulated(link) => Store::Simulated(Arc::clone(link)),
        }
    }

    /// Returns an error for the first option that is out of its bounds.
    pub(super) fn check(&self) -> Result<(), LockError> {
        let (options, retention) = (&self.config.options, self.config.retention);
        let retry_interval = &self.config.retry_interval;
        options.check()?;
        let (min, max) = (*retry_interval.start(), *retry_interval.end());
        let is_range = MIN_RETRY_INTERVAL <= min && min <= max && max <= MAX_RETRY_INTERVAL;
        let bound = "it must be 1 ms to 1 h, the shorter pause first";
        ensure(is_range, "retry_interval", retry_interval, bound)?;
        let is_whole = retention.subsec_nanos() == 0;
        let is_kept = is_whole && (Duration::from_secs(1)..=MAX_RETENTION).contains(&retention);
        let bound = "it must be whole seconds, 1 s to 68 years";
        ensure(is_kept, "retention", retention, bound)?;
        let margin = options.takeover_margin;
        whole("takeover_margin", margin, Duration::ZERO..=WEEK)?;
        // MongoDB removes the document after the retention, and without a document the lock is free.
        let bound = format_args!("it must be at most `retention` ({retention:?})");
        ensure(margin <= retention, "takeover_margin", margin, bound)?;
        self.owner.as_deref().map_or(Ok(()), check_owner)?;
        // These are the server's own rules (https://www.mongodb.com/docs/manual/reference/limits/). They are checked
        // here, because with a collection that cannot exist every acquisition would fail.
        let name = &self.collection;
        let is_refused = name.contains(['$', '\0']) || name.starts_with("system.");
        let bound = "it must have 1 to 200 bytes and no `$`, and must not begin with `system.`";
        let is_name = (1..=200).contains(&name.len()) && !is_refused;
        ensure(is_name, "collection", name, bound)?;
        if let StoreChoice::Database(database) = &self.place {
            check_database(database.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
