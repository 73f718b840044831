use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::duration::as_seconds;
use crate::{FencingToken, IndexState, LockError, LockProvider, permit_id};

/// The state of a provider and of its connection to MongoDB; returned by
/// [`LockProvider::health`](crate::LockProvider::health).
///
/// It implements [`Serialize`] for a status page: the fields have their Rust names in this order, times are numbers of
/// seconds, and `error` is a text, which names hosts.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let provider = mongolock::LockProvider::in_memory();
/// let _guard = provider.lock("report:1").await?;
/// let json = serde_json::to_value(provider.health().await)?;
/// // {"is_reachable":true,"has_primary":true,"error":null,"overloaded_since":null,"last_renewal":null,
/// //  "smallest_remaining":29.6,"wake_up":"idle","index":{"state":"ready"},"held":1,"waiting":0,"is_shut_down":false}
/// assert_eq!(json["held"], 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// Whether a server of the deployment replied to a `hello` command within 2 s.
    pub is_reachable: bool,
    /// Whether a primary replied: locks are acquired and renewed at the primary. Another member is asked if none replies
    /// within 1 s. The router of a sharded cluster and a standalone server count as a primary.
    pub has_primary: bool,
    /// Why no server replied. If one replied: the refusal of the last acquire or renewal, for a wrong password or a missing
    /// right (such as error codes 13 and 18); each check asks the server again. If there was none: why MongoDB has refused the
    /// last release, such as a validator (121) or a unique index (11000), until the next one succeeds.
    #[serde(serialize_with = "as_text")]
    pub error: Option<LockError>,
    /// For how long MongoDB has rejected commands of this provider for overload (error code 462, or the label
    /// `SystemOverloadedError`); `None` if it has rejected none in the last 10 s. Leases are renewed before anything else then.
    #[serde(serialize_with = "as_seconds")]
    pub overloaded_since: Option<Duration>,
    /// How long ago a renewal was last confirmed; `None` if this provider has not renewed a lease yet. A lease is first
    /// renewed one `renew_interval` after its acquisition.
    #[serde(serialize_with = "as_seconds")]
    pub last_renewal: Option<Duration>,
    /// The shortest time until a lease of this provider ends if it is not renewed again; `None` if it holds no lock.
    /// Below two thirds of the `expiry`, a renewal is overdue.
    #[serde(serialize_with = "as_seconds")]
    pub smallest_remaining: Option<Duration>,
    /// How waiters are notified of releases in other processes.
    pub wake_up: WakeUp,
    /// The state of the TTL index at its last check; `None` before the first one, and while the next one is due because
    /// the collection was dropped or renamed. An index that exists is checked once an hour, and after each drop or
    /// rename that a change stream reports: that of a waiter, or of [`LockAdmin::events`](crate::LockAdmin::events).
    pub index: Option<IndexState>,
    /// The number of locks that this provider holds.
    pub held: usize,
    /// The number of calls that wait for a lock or for the reply to their request.
    pub waiting: usize,
    /// Whether a shutdown has begun: new acquires are refused.
    pub is_shut_down: bool,
}

/// How the waiters of a provider are notified of releases in other processes; see
/// [`LockProviderBuilder::wake_up`](crate::LockProviderBuilder::wake_up).
///
/// It implements [`Serialize`] as `"idle"`, `"stream"` or `"polling"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WakeUp {
    /// No call waits, so none has to be woken.
    Idle,
    /// A change stream is open and reports releases at once.
    Stream,
    /// Waiters poll within `retry_interval`: change streams are switched off, not supported, not allowed or not yet open.
    Polling,
}

/// A lock that this process holds; returned by [`LockProvider::held`](crate::LockProvider::held).
///
/// It implements [`Serialize`]: the fields have their Rust names in this order, and times are numbers of seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeldInfo {
    /// The lock's name; for a permit that of its semaphore.
    pub name: String,
    /// The number of the permit, if this is a permit of a [`Semaphore`](crate::Semaphore).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit: Option<u32>,
    /// The fencing token of this hold; the token of a permit cannot be compared with those of other permits.
    pub fencing_token: FencingToken,
    /// The time since the lock was acquired.
    #[serde(serialize_with = "as_seconds")]
    pub held_for: Duration,
    /// The time until the lease ends if it is not renewed again.
    #[serde(serialize_with = "as_seconds")]
    pub remaining: Duration,
}

impl LockProvider {
    /// The state of this provider and of its connection to MongoDB, for a status page or a log.
    ///
    /// It sends one `hello` command, which needs no privilege, and returns within 2 s even if no server replies. Calls at
    /// the same time share the command. If the server has refused the last acquire or renewal, it asks for an internal
    /// lock as well. [`is_ready`](Self::is_ready) is cheaper, for the probes of a load balancer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let _guard = provider.lock("report:1").await?;
    /// let health = provider.health().await;
    /// assert!(health.has_primary && health.held == 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn health(&self) -> Health {
        let engine = &self.engine;
        let reply = engine.probe.finds_primary().await;
        let (leases, shown) = (engine.held(), engine.store.shown());
        Health {
            is_reachable: reply.is_ok(),
            has_primary: *reply.as_ref().unwrap_or(&false),
            error: reply.err().or(shown.refusal).or(shown.refused_release),
            overloaded_since: engine.store.overloaded_for(),
            last_renewal: engine.last_renewal(),
            smallest_remaining: leases.iter().map(|lease| lease.remaining()).min(),
            wake_up: match engine.waiting.load(Relaxed) {
                0 => WakeUp::Idle,
                _ if engine.is_listening() => WakeUp::Stream,
                _ => WakeUp::Polling,
            },
            index: engine.store.index_state(),
            held: leases.iter().map(|lease| lease.keys().len()).sum(),
            waiting: engine.waiting.load(Relaxed),
            is_shut_down: engine.refuses(false),
        }
    }

    /// Whether locks can be acquired at present: no shutdown has begun, and MongoDB has confirmed a write of this provider
    /// within the last `renew_interval`, or a primary replies to a `hello` command within 2 s. It is `false` if the server
    /// has refused the last acquire or renewal (error codes 13 and 18): a right is missing, or the password is wrong.
    ///
    /// It sends nothing while the provider is in use. After a refusal it asks the server for an internal lock each time,
    /// so that a provider whose rights are granted later becomes ready without a call. For a readiness probe; the guide's page on
    /// [production](crate::guide::production#health-checks-and-alarms) says when to use one, and why never for liveness.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// assert!(provider.is_ready().await);
    /// provider.shutdown().await;
    /// assert!(!provider.is_ready().await);
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is changed.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn is_ready(&self) -> bool {
        let engine = &self.engine;
        if engine.refuses(false) {
            return false;
        }
        let interval = engine.config.options.renew_interval();
        let shown = engine.store.shown();
        let is_confirmed = shown.confirmed.is_some_and(|at| at.elapsed() < interval);
        shown.refusal.is_none() && is_confirmed
            || matches!(engine.probe.finds_primary().await, Ok(true))
                && engine.store.shown().refusal.is_none()
    }

    /// The locks that this provider holds in this process, in the order of their names. Nothing is sent;
    /// [`LockAdmin::list`](crate::LockAdmin::list) returns those of all processes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), mongolock::LockError> {
    /// # let provider = mongolock::LockProvider::in_memory();
    /// let guard = provider.lock("report:1").await?;
    /// let held = provider.held();
    /// assert_eq!(held[0].name, "report:1");
    /// assert_eq!(held[0].fencing_token, guard.fencing_token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn held(&self) -> Vec<HeldInfo> {
        let mut held: Vec<HeldInfo> = Vec::new();
        for lease in self.engine.held() {
            held.extend(lease.tokens().map(|(id, fencing_token)| HeldInfo {
                name: permit_id::shown(id).to_owned(),
                permit: permit_id::number(id),
                fencing_token,
                held_for: lease.held_for(),
                remaining: lease.remaining(),
            }));
        }
        held.sort_by(|one, other| one.name.cmp(&other.name));
        held
    }
}

#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn as_text<S: Serializer>(error: &Option<LockError>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = error.as_ref().map(|error| error.with_cause().to_string());
    text.serialize(serializer)
}
