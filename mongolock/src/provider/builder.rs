use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use mongodb::{Client, Database};

use crate::engine::Engine;
use crate::options::{Config, refused};
#[cfg(test)]
use crate::simulation::Link;
use crate::store::{MemoryStore, MongoStore, Store};
use crate::{LockError, LockProvider};

/// The shortest pause between two polls: with a shorter one a waiter would poll in a hot loop.
const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// The longest pause between two polls: a longer one is almost certainly a mistake in the unit.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The longest retention in seconds that MongoDB accepts for a TTL index.
const MAX_RETENTION: Duration = Duration::from_secs(i32::MAX as u64);

/// Options of a provider; made by [`LockProvider::builder`]. What is not set has the default that its setter names.
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
#[must_use = "call `build` to get the provider"]
pub struct LockProviderBuilder {
    place: Place,
    background: Option<Client>,
    collection: String,
    config: Config,
    owner: Option<String>,
}

#[derive(Clone)]
enum Place {
    Database(Database),
    Memory(Arc<MemoryStore>),
    #[cfg(test)]
    Simulated(Arc<Link>),
}

impl LockProviderBuilder {
    pub(crate) fn new(database: &Database) -> Self {
        Self::at(Place::Database(database.clone()))
    }

    pub(crate) fn in_memory() -> Self {
        Self::at(Place::Memory(Arc::new(MemoryStore::new())))
    }

    #[cfg(test)]
    pub(crate) fn simulated(link: Link) -> Self {
        Self::at(Place::Simulated(Arc::new(link)))
    }

    fn at(place: Place) -> Self {
        Self {
            place,
            background: None,
            collection: "distributed_locks".to_owned(),
            config: Config::default(),
            owner: None,
        }
    }

    /// The collection of the lock documents; `distributed_locks` if not set. It is created by use.
    pub fn collection(mut self, name: impl Into<String>) -> Self {
        self.collection = name.into();
        self
    }

    /// How long a lease lasts without a renewal; 30 s if not set, 100 ms to 7 days in whole milliseconds.
    pub fn expiry(mut self, expiry: Duration) -> Self {
        self.config.options.expiry = expiry;
        self
    }

    /// How often leases are renewed; a third of the expiry if not set, above 0 and below the expiry.
    pub fn renew_interval(mut self, interval: Duration) -> Self {
        self.config.options.renew_interval = Some(interval);
        self
    }

    /// How long an acquire waits; 10 s if not set, 0 to 7 days, or `None` to wait as long as others hold the lock; see
    /// [`DistributedLock::acquire_timeout`](crate::DistributedLock::acquire_timeout).
    pub fn acquire_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.options.acquire_timeout = timeout.into();
        self
    }

    /// The shortest and the longest pause between two attempts that poll; 10 ms to 800 ms if not set, 1 ms to 1 h.
    pub fn retry_interval(mut self, range: RangeInclusive<Duration>) -> Self {
        self.config.retry_interval = range;
        self
    }

    /// No renewal of a hold after this time; without a cap if not set, 0 to 7 days.
    pub fn max_hold(mut self, hold: Duration) -> Self {
        self.config.options.max_hold = Some(hold);
        self
    }

    /// Whether calls wait until MongoDB has confirmed their release; `true` if not set. See
    /// [`DistributedLock::await_release`](crate::DistributedLock::await_release), which also says when `false` is wrong.
    pub fn await_release(mut self, await_release: bool) -> Self {
        self.config.options.await_release = await_release;
        self
    }

    /// How long MongoDB keeps the document of a lock that is not used any more; 1 day if not set, 1 s to 68 years in
    /// whole seconds.
    ///
    /// In memory, providers on the same locks share one retention: that of the one that was built last. Documents are
    /// deleted there by later acquire requests, a few with each.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.config.retention = retention;
        self
    }

    /// Whether somebody who waits is woken by a change stream when another process releases the lock; on if not set.
    ///
    /// The stream is open only while somebody waits. Switched off, on a standalone server, or without the right to
    /// watch the collection, waiting polls within `retry_interval`. A missing stream is tried again about every five
    /// minutes while somebody waits, and after any other error within seconds.
    pub fn wake_up(mut self, wake_up: bool) -> Self {
        self.config.wake_up = wake_up;
        self
    }

    /// Who holds the locks of this provider, as it can be read from them; `<host>:<process id>` if not set, 1 to 256
    /// bytes without control characters.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// A client of its own for renewals and other background work, so that they need not wait for a connection that
    /// the application uses; the database's client if not set. It must reach the same servers.
    pub fn background_client(mut self, client: Client) -> Self {
        self.background = Some(client);
        self
    }

    /// Makes the provider.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] names the first option that is out of its bounds, its value and the bounds.
    pub fn build(self) -> Result<LockProvider, LockError> {
        self.config.options.check()?;
        self.check()?;
        Ok(self.with_defaults())
    }

    /// Builds the provider with options that are known to be valid.
    pub(crate) fn with_defaults(self) -> LockProvider {
        let owner = self.owner.clone().unwrap_or_else(default_owner);
        let engine = Engine::new(self.store(), self.config.clone(), owner.into());
        LockProvider::from_parts(engine, self)
    }

    fn store(&self) -> Store {
        match &self.place {
            Place::Database(database) => Store::Mongo(MongoStore::new(
                database,
                self.background.as_ref(),
                &self.collection,
            )),
            Place::Memory(store) => {
                store.set_retention(self.config.retention);
                Store::Memory(Arc::clone(store))
            }
            #[cfg(test)]
            Place::Simulated(link) => Store::Simulated(Arc::clone(link)),
        }
    }

    fn check(&self) -> Result<(), LockError> {
        let (min, max) = (
            *self.config.retry_interval.start(),
            *self.config.retry_interval.end(),
        );
        if min < MIN_RETRY_INTERVAL || min > max || max > MAX_RETRY_INTERVAL {
            return Err(refused(
                "retry_interval",
                &self.config.retry_interval,
                "use 1 ms to 1 h, the shorter pause first",
            ));
        }
        if self.config.retention.subsec_nanos() != 0
            || self.config.retention < Duration::from_secs(1)
            || self.config.retention > MAX_RETENTION
        {
            return Err(refused(
                "retention",
                self.config.retention,
                "use whole seconds, 1 s to 68 years",
            ));
        }
        if let Some(owner) = &self.owner
            && (owner.is_empty() || owner.len() > 256 || owner.chars().any(char::is_control))
        {
            return Err(refused(
                "owner",
                owner,
                "use 1 to 256 bytes without control characters",
            ));
        }
        // The server's own rules (https://www.mongodb.com/docs/manual/reference/limits/), checked here because a
        // collection that cannot exist would fail every acquire.
        let name = &self.collection;
        if name.is_empty() || name.contains(['$', '\0']) || name.starts_with("system.") || name.len() > 200 {
            let bound = "use 1 to 200 bytes without `$`, and not beginning with `system.`";
            return Err(refused("collection", name, bound));
        }
        Ok(())
    }
}

fn default_owner() -> String {
    format!(
        "{}:{}",
        gethostname::gethostname().to_string_lossy(),
        std::process::id()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(change: impl FnOnce(LockProviderBuilder) -> LockProviderBuilder) -> &'static str {
        match change(LockProviderBuilder::in_memory()).build() {
            Err(LockError::InvalidOption { option, .. }) => option,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn values_out_of_bounds_are_refused_by_name() {
        let second = Duration::from_secs(1);
        assert_eq!(refuses(|b| b.expiry(Duration::ZERO)), "expiry");
        assert_eq!(refuses(|b| b.renew_interval(Duration::ZERO)), "renew_interval");
        assert_eq!(
            refuses(|b| b.retry_interval(Duration::ZERO..=second)),
            "retry_interval"
        );
        assert_eq!(
            refuses(|b| b.retry_interval(second..=second / 2)),
            "retry_interval"
        );
        let shorter = Duration::from_micros(999);
        assert_eq!(refuses(|b| b.retry_interval(shorter..=second)), "retry_interval");
        assert_eq!(refuses(|b| b.retention(Duration::from_millis(1500))), "retention");
        assert_eq!(refuses(|b| b.retention(Duration::ZERO)), "retention");
        assert_eq!(refuses(|b| b.owner("")), "owner");
        assert_eq!(refuses(|b| b.owner("a\nb")), "owner");
        assert_eq!(refuses(|b| b.collection("")), "collection");
        assert_eq!(refuses(|b| b.collection("a$b")), "collection");
    }

    /// A shorter pause would poll in a hot loop.
    #[tokio::test]
    async fn the_shortest_retry_interval_is_a_millisecond() {
        let (nanosecond, millisecond) = (Duration::from_nanos(1), Duration::from_millis(1));
        let refused = LockProviderBuilder::in_memory()
            .retry_interval(nanosecond..=nanosecond)
            .build();
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("1ns") && text.contains("1 ms to 1 h"), "{text}");
        let least = LockProviderBuilder::in_memory().retry_interval(millisecond..=millisecond);
        assert!(least.build().is_ok());
    }
}
