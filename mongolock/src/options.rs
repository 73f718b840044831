//! The options of a provider and of one lock, and their bounds.

use std::fmt::{self, Debug, Display};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::LockError;
use crate::duration::in_millis;
use crate::lock_id::{KEPT_PREFIX, MARK_PREFIX};
use crate::protocol::LONGEST;
use crate::timing::SHORT_CALL;

/// The time for which MongoDB keeps the document of an unused lock if the provider sets no other.
pub(crate) const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest expiry: a shorter lease would often end during a slow reply of a working server.
const MIN_EXPIRY: Duration = Duration::from_millis(100);
/// The upper bound of all durations of a lock: a longer one is almost certainly a mistake in the unit.
pub(crate) const WEEK: Duration = Duration::from_millis(LONGEST.unsigned_abs());

/// The shortest period: the clocks of servers can differ by large parts of a shorter one.
const MIN_PERIOD: Duration = Duration::from_secs(1);

/// The longest period: a longer one is almost certainly a mistake in the unit.
const MAX_PERIOD: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The shortest time for which a mark of `once` is kept: an instance whose trigger is late must still find it.
const MIN_KEPT: Duration = Duration::from_secs(60 * 60);

/// The largest number of names in a set: each of its commands has them all.
pub(crate) const MOST_NAMES: usize = 500;

/// The options of one lock. Locks with the same options share them, and they are copied when one of them is set. Every
/// field is checked by [`check`](Self::check).
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The time for which a lease lasts without a renewal, in whole milliseconds.
    pub(crate) expiry: Duration,
    /// The time between two renewals, which only a provider sets; `None` is a third of the expiry.
    pub(crate) renew_interval: Option<Duration>,
    /// The time for which an acquire waits; `None` is no limit.
    pub(crate) acquire_timeout: Option<Duration>,
    /// Whether the lock itself has set `acquire_timeout`, and not its provider.
    pub(crate) has_own_timeout: bool,
    /// The shortest time for which the lock stays taken, counted from its acquisition, in whole milliseconds.
    pub(crate) min_hold: Duration,
    /// Whether the lock itself has set `min_hold`, and not its provider.
    pub(crate) has_own_min_hold: bool,
    /// How often the work under the lock may succeed; `None` is any number of times.
    pub(crate) once: Option<Once>,
    /// The time from the acquisition after which a lease is no longer renewed; `None` is no limit.
    pub(crate) max_hold: Option<Duration>,
    /// Whether a call waits until the server has confirmed the release.
    pub(crate) await_release: bool,
    /// What happens to the body of a call, which only a leader and an annotated function set.
    pub(crate) on_lost: OnLost,
    /// How long after its end a lease that was not released still keeps the lock taken, in whole milliseconds; the same
    /// for all locks of a provider.
    pub(crate) takeover_margin: Duration,
}

/// The configuration of a provider's engine, taken from the builder.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The options that a lock starts with.
    pub(crate) options: Arc<Options>,
    /// The shortest and the longest pause between two polls.
    pub(crate) retry_interval: RangeInclusive<Duration>,
    /// How long the document of an unused lock is kept.
    pub(crate) retention: Duration,
    /// Whether waiters are woken by a change stream.
    pub(crate) wake_up: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            options: Arc::default(),
            retry_interval: Duration::from_millis(10)..=Duration::from_millis(800),
            retention: DEFAULT_RETENTION,
            wake_up: true,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            expiry: Duration::from_secs(30),
            renew_interval: None,
            acquire_timeout: Some(Duration::from_secs(10)),
            has_own_timeout: false,
            min_hold: Duration::ZERO,
            has_own_min_hold: false,
            once: None,
            max_hold: None,
            await_release: true,
            on_lost: OnLost::Cancel,
            takeover_margin: Duration::ZERO,
        }
    }
}

impl Options {
    pub(crate) fn renew_interval(&self) -> Duration {
        self.renew_interval.unwrap_or(self.expiry / 3)
    }

    /// Sets how often the work may succeed. The provider's minimum hold then does not apply.
    pub(crate) fn set_once(&mut self, once: Once) {
        self.once = Some(once);
        if !self.has_own_min_hold {
            self.min_hold = Duration::ZERO;
        }
    }

    /// Whether a call makes a single attempt, which does not wait for the holder, and the time limit of the call. For work that may
    /// succeed once it waits for the end of another run, unless the lock itself sets a timeout.
    pub(crate) fn limit(&self, on_busy: OnBusy) -> (bool, Option<Duration>) {
        let own = self.acquire_timeout;
        let waits = own.filter(|_| self.once.is_none() || self.has_own_timeout);
        if on_busy == OnBusy::Wait && waits != Some(Duration::ZERO) {
            return (false, waits);
        }
        (true, own.filter(|limit| !limit.is_zero()).or(Some(SHORT_CALL)))
    }

    /// Returns an error for the first option that is out of its bounds; no value is clamped.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        let (expiry, min_hold, week) = (self.expiry, self.min_hold, Duration::ZERO..=WEEK);
        let (renew, max_hold) = (self.renew_interval(), self.max_hold.unwrap_or(WEEK));
        let wait = self.acquire_timeout.unwrap_or_default();
        whole("expiry", expiry, MIN_EXPIRY..=WEEK)?;
        whole("min_hold", min_hold, week.clone())?;
        within("acquire_timeout", wait, week.clone())?;
        within("max_hold", max_hold, week)?;
        let is_shorter = (Duration::from_millis(1)..expiry).contains(&renew);
        let bound = format_args!("it must be at least 1 ms and less than `expiry` ({expiry:?})");
        ensure(is_shorter, "renew_interval", renew, bound)?;
        if let Some(once) = self.once {
            check_once(once)?;
            let bound = "it does not go with `once_per` or `once`, whose mark keeps the lock taken";
            ensure(min_hold.is_zero(), "min_hold", min_hold, bound)?;
        }
        let bound = format_args!("it must not be shorter than `min_hold` ({min_hold:?})");
        ensure(max_hold >= min_hold, "max_hold", max_hold, bound)
    }
}

/// Returns an error for an option whose value is not within its bound.
pub(crate) fn ensure(
    is_met: bool,
    option: &'static str,
    value: impl Debug,
    bound: impl Display,
) -> Result<(), LockError> {
    if is_met {
        Ok(())
    } else {
        Err(refused(option, value, bound))
    }
}

/// The error for an option whose value is not within its bound.
pub(crate) fn refused(option: &'static str, value: impl Debug, bound: impl Display) -> LockError {
    LockError::InvalidOption {
        option,
        value: format!("{value:?}"),
        bound: bound.to_string(),
    }
}

fn within(option: &'static str, value: Duration, allowed: RangeInclusive<Duration>) -> Result<(), LockError> {
    let (least, most) = (Exact(*allowed.start()), Exact(*allowed.end()));
    let bound = format_args!("it must be {least} to {most}");
    ensure(allowed.contains(&value), option, value, bound)
}

/// The same for a time that a document has: MongoDB stores dates in milliseconds, so with a fraction of one the server and this process
/// would disagree.
pub(crate) fn whole(
    option: &'static str,
    value: Duration,
    allowed: RangeInclusive<Duration>,
) -> Result<(), LockError> {
    within(option, value, allowed)?;
    let is_whole = value.subsec_nanos().is_multiple_of(1_000_000);
    ensure(is_whole, option, value, "it must be whole milliseconds")
}

/// A time in the greatest unit of which it is a multiple.
struct Exact(Duration);

impl Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let units = [(86_400_000, " days"), (1000, " s"), (1, " ms")];
        let unit = units
            .iter()
            .find(|(size, _)| millis >= *size && millis.is_multiple_of(*size));
        let (size, symbol) = unit.unwrap_or(&(1, ""));
        write!(f, "{}{symbol}", millis / size)
    }
}

/// How often the work may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Once {
    /// Once in each period of this length: the periods are multiples of it since 1970-01-01 UTC, by the server's clock.
    #[serde(rename = "per", with = "in_millis")]
    PerPeriod(Duration),
    /// Once until the mark is removed, this time after the success.
    #[serde(rename = "kept", with = "in_millis")]
    Kept(Duration),
}

/// Returns an error for a time that is out of its bounds.
fn check_once(once: Once) -> Result<(), LockError> {
    match once {
        Once::PerPeriod(period) => whole("once_per", period, MIN_PERIOD..=MAX_PERIOD),
        Once::Kept(retention) => {
            let bound = "with `once` it must be at least 1 h, because marks are kept for as long";
            ensure(retention >= MIN_KEPT, "retention", retention, bound)
        }
    }
}

/// Returns an error for a database that cannot have locks, or that the server does not accept.
pub(crate) fn check_database(name: &str) -> Result<(), LockError> {
    let bound = match name {
        "local" => "no member replicates it, so that after a failover two processes could hold one lock",
        "admin" | "config" => "it has no transactions and no change streams, which locks need",
        _ if name.is_empty() || name.len() > 63 || name.contains(['/', '\\', '.', '"', '$', ' ', '\0']) => {
            "it must have 1 to 63 bytes, and none of `/`, `\\`, `.`, `\"`, `$` and the space"
        }
        _ => return Ok(()),
    };
    Err(refused("database", name, bound))
}

/// Returns an error for an owner that breaks a rule.
pub(crate) fn check_owner(owner: &str) -> Result<(), LockError> {
    for (prefix, meaning) in [(MARK_PREFIX, "finished work"), (KEPT_PREFIX, "a minimum hold")] {
        let bound = format_args!("it must not begin with `{prefix}`, which marks {meaning}");
        ensure(!owner.starts_with(prefix), "owner", owner, bound)?;
    }
    let is_valid = (1..=256).contains(&owner.len()) && !owner.chars().any(char::is_control);
    let bound = "it must have 1 to 256 bytes and no control characters";
    ensure(is_valid, "owner", owner, bound)
}

/// Returns an error for a time that no detached lease can last.
pub(crate) fn check_ttl(ttl: Duration) -> Result<(), LockError> {
    whole("ttl", ttl, MIN_EXPIRY..=WEEK)
}

/// The error for a call that marks work as done under a lock whose work may succeed any number of times.
pub(crate) fn not_once(call: &str) -> LockError {
    let bound = format_args!("`{call}` needs a lock with `once_per` or `once`");
    refused("once", format_args!("not set"), bound)
}

/// The setters that a lock, a set, a semaphore and the builder of a provider have in common, with the place of the options.
macro_rules! lease_setters {
    ($($options:ident).+) => {
        /// Sets for how long the lease lasts without a renewal (its TTL): 100 ms to 7 days, in whole milliseconds. The
        /// default of a lock is that of its provider, and the default of a provider is 30 s.
        ///
        /// It limits how long other processes wait after a crash of this one, and it determines how long an outage a
        /// hold survives. The lease is renewed after a third of it, unless the provider sets a
        /// [`renew_interval`](crate::LockProviderBuilder::renew_interval).
        pub fn expiry(mut self, expiry: Duration) -> Self {
            Arc::make_mut(&mut self.$($options).+).expiry = expiry;
            self
        }

        /// Sets how long to wait: 0 to 7 days, or `None` to wait without a limit. With 0 the call tries once. For a set it is
        /// the time for all locks together. The default of a lock is that of its provider, and the default of a provider is 10 s.
        ///
        /// Even with `None` the wait ends, with the last error, when MongoDB has given no usable reply about the lock for a
        /// minute. The minute begins with the last usable reply, or with the call if that is later.
        pub fn acquire_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
            let options = Arc::make_mut(&mut self.$($options).+);
            options.acquire_timeout = timeout.into();
            options.has_own_timeout = true;
            self
        }

        /// Sets the shortest time for which the lock stays taken, counted from its acquisition: 0 to 7 days, in whole
        /// milliseconds. The default of a lock is that of its provider, and the default of a provider is 0. A lock or an
        /// attribute that sets its own value overrides that of the provider, also with 0.
        ///
        /// In a set each lock has its own minimum hold, from the acquisition of that lock.
        ///
        /// A release before that time returns at once, but no process can acquire the lock until the minimum hold is over.
        /// This applies however the hold ends: by a release, a dropped guard, an error or a panic.
        ///
        /// ```
        /// use std::time::Duration;
        /// use mongolock::LockProvider;
        ///
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), mongolock::LockError> {
        /// # let builder = LockProvider::in_memory().to_builder();
        /// let jobs = builder.min_hold(Duration::from_secs(60)).build()?;
        /// jobs.lock("nightly-report").await?.release().await?;
        /// assert!(jobs.lock("nightly-report").try_acquire().await?.is_none(), "it stays taken for a minute");
        /// # Ok(())
        /// # }
        /// ```
        pub fn min_hold(mut self, hold: Duration) -> Self {
            let options = Arc::make_mut(&mut self.$($options).+);
            options.min_hold = hold;
            options.has_own_min_hold = true;
            self
        }

        /// Sets the time after which the lease is no longer renewed, counted from the acquisition, for a set from the
        /// time at which the call has all locks, and after a [resume](crate::LockProvider::resume) from the resume: 0
        /// to 7 days, and not less than [`min_hold`](Self::min_hold). Without it, there is no limit.
        ///
        /// It limits how long a body that hangs or a leaked guard keeps the lock: the lock is lost at most one `expiry`
        /// later.
        pub fn max_hold(mut self, hold: Duration) -> Self {
            Arc::make_mut(&mut self.$($options).+).max_hold = Some(hold);
            self
        }

        /// Whether [`run`](crate::Lock::run) and annotated functions wait until MongoDB has confirmed the release; `true` unless the
        /// provider has another default.
        ///
        /// With `false` the call returns when its body has ended, which saves one of its two round trips. The release is sent
        /// at once by a task of the provider and is repeated like any other. [`shutdown`](crate::LockProvider::shutdown) waits
        /// for it, and so does the next caller in this process, which never finds the lock busy because of it.
        ///
        /// The call reports a loss only if it is known when the body ends: if the release finds that the claim is gone, only
        /// the event `mongolock.lost` says so. Do not use it in programs that end without `shutdown`, or where a caller expects
        /// that another process can acquire the lock as soon as the call has returned.
        ///
        /// It does not apply to guards: [`LockGuard::release`](crate::LockGuard::release) always waits.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), mongolock::LockError> {
        /// # let provider = mongolock::LockProvider::in_memory();
        /// let lock = provider.lock("counter:1").await_release(false);
        /// for _ in 0..3 {
        ///     lock.run(|_| async { Ok::<_, mongolock::LockError>(()) }).await?;
        /// }
        /// provider.shutdown().await; // the last release is confirmed
        /// # Ok(())
        /// # }
        /// ```
        pub fn await_release(mut self, await_release: bool) -> Self {
            Arc::make_mut(&mut self.$($options).+).await_release = await_release;
            self
        }
    };
}
pub(crate) use lease_setters;

/// What happens to a body when its lock is lost; for [`Leader::on_lost`](crate::Leader::on_lost).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLost {
    /// It is cancelled at its next await point.
    Cancel,
    /// It continues, although another holder may have the lock.
    Continue,
}

/// What a call does while another holder has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnBusy {
    Wait,
    /// The call tries once and returns.
    TryOnce,
}
