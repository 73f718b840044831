//! The state that all clones of a provider share, and its shutdown.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::clock::{Clock, duration};
use super::ends::ends_with;
use super::state::{Decider, Engine, Event, Lease, SerialQueue, System};
use crate::core::{Conf, Core, Luck, MS, Places, Time};
use crate::home::Home;
use crate::meter::Meter;
use crate::options::Config;
use crate::probe::Probe;
use crate::store::{Store, millis};
use crate::sync::lock;
use crate::task;
use crate::timing::{INDEX_BUILD_LIMIT, SHUTDOWN_LIMIT};

impl Luck for System {
    fn id(&mut self) -> u64 {
        random()
    }

    fn chance(&mut self) -> u64 {
        fastrand::u64(..) | 1
    }
}

#[cfg(test)]
thread_local! {
    /// Whether this thread uses the random bits of `fastrand`, to which a simulation gives its seed.
    pub(crate) static HAS_SEED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Random bits of the operating system.
fn random() -> u64 {
    #[cfg(test)]
    if HAS_SEED.get() {
        return fastrand::u64(..);
    }
    Uuid::new_v4().as_u64_pair().1
}

impl Engine {
    pub(crate) fn new(store: Store, config: Config, owner: Arc<str>, thread: Option<Arc<Home>>) -> Self {
        let store = Arc::new(store);
        let [mark @ .., _, _] = random().to_le_bytes();
        let clock = if store.is_on_server() {
            Clock::System(std::time::Instant::now())
        } else {
            Clock::Tokio(Instant::now())
        };
        let (shortest, longest) = config.retry_interval.clone().into_inner();
        let (pool, own) = (
            store.pool(),
            thread.as_ref().map(|thread| thread.handle().clone()),
        );
        let conf = Conf {
            mark,
            owner: Arc::clone(&owner),
            may_listen: config.wake_up && Places::may_listen(pool),
            margin: millis(config.options.takeover_margin),
            retry: (millis(shortest) * MS, millis(longest) * MS),
            places: Places::of_pool(pool),
        };
        Self {
            core: Mutex::new(Decider {
                core: Core::new(conf, Time(0)),
                warned: HashSet::new(),
                renewed: None,
            }),
            probe: Probe::new(Arc::clone(&store)),
            store,
            config,
            owner,
            mark,
            meter: Meter::default(),
            waiting: AtomicUsize::new(0),
            keeper: OnceLock::new(),
            clock,
            home: own.or_else(|| Handle::try_current().ok()),
            thread,
            armed: AtomicI64::new(i64::MAX),
            rearmed: Arc::new(Notify::new()),
            tasks: Mutex::default(),
            commands: Mutex::new(SerialQueue::EMPTY),
            idle: Notify::new(),
            refusals: Mutex::default(),
            process: std::process::id(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Where tasks run: in the runtime of the provider while that lives, and then in that of the caller.
    pub(crate) fn runtime(&self) -> Option<Handle> {
        let has_thread = self.thread.is_some();
        let home = self
            .home
            .clone()
            .filter(|home| has_thread || !task::has_ended(home));
        home.or_else(|| Handle::try_current().ok())
    }

    /// Whether this process was forked from that of the provider: its calls fail, and its drops do nothing.
    pub(super) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// The holds of this provider.
    pub(crate) fn held(&self) -> Vec<Arc<Lease>> {
        let mut held: Vec<Arc<Lease>> = lock(&self.core).core.holders().cloned().collect();
        held.sort_by_key(|lease| Arc::as_ptr(lease).addr());
        held.dedup_by(|one, other| Arc::ptr_eq(one, other));
        held.retain(|lease| lease.granted.get().is_some() && !lease.is_over());
        held
    }

    /// The hold of this lock, or of a permit of this semaphore.
    pub(super) fn holder_of(&self, name: &str) -> Option<Arc<Lease>> {
        let holder = lock(&self.core).core.holder_of(name).cloned();
        holder.filter(|lease| lease.granted.get().is_some())
    }

    /// The time since a renewal was confirmed.
    pub(crate) fn last_renewal(&self) -> Option<Duration> {
        lock(&self.core).renewed.map(|at| duration(self.now() - at))
    }

    /// Whether a change stream is open.
    pub(crate) fn is_listening(&self) -> bool {
        lock(&self.core).core.is_listening()
    }

    /// Whether a call fails because of a shutdown.
    pub(crate) fn refuses(&self, is_inside_hold: bool) -> bool {
        lock(&self.core).core.refuses(is_inside_hold)
    }

    /// Renews the hold of this lock at once, or all holds: an operator has released locks by force in this process.
    pub(crate) fn renew_now(self: &Arc<Self>, name: Option<&str>) {
        self.apply(Event::Renew(name.map(Arc::from)));
    }

    /// Whether a claim of this provider that has resumed the lease with this id is restoring that id.
    pub(crate) fn gives_back(&self, lease_id: &str) -> bool {
        lock(&self.core).core.gives_back(lease_id)
    }

    /// Rejects waiters, ends all leases, and waits until the server has confirmed the releases. Without a grace period,
    /// leases last until their marks are confirmed. With one, holders get that time to end their holds, and can still
    /// acquire the locks that they need. If the future is dropped, the leases end at once.
    pub(crate) async fn shut_down(self: &Arc<Self>, grace: Option<Duration>) {
        if self.is_forked() {
            return;
        }
        // The leases and the tasks also end if this future is dropped.
        let stopping = ends_with(self, || {
            // A call that begins while others end starts the tasks again.
            self.apply(Event::Shutdown { is_closed: true });
            self.stop();
            Event::Shutdown { is_closed: true }
        });
        if let Some(grace) = grace {
            self.apply(Event::Shutdown { is_closed: false });
            self.wait(grace, self.until_idle()).await;
        }
        self.lend_runtime();
        self.apply(Event::Shutdown { is_closed: true });
        self.wait(SHUTDOWN_LIMIT, self.until_idle()).await;
        if grace.is_none() {
            while lock(&self.core).core.has_marks() {
                self.wait(Duration::from_secs(1), self.until_idle()).await;
            }
        }
        if lock(&self.tasks).index.is_some() {
            self.wait(INDEX_BUILD_LIMIT, self.store.index_checked()).await;
        }
        drop(stopping);
        self.store.close().await;
    }

    /// Waits for a future, up to the longest time. It uses the clock of the provider's runtime, because the caller's
    /// may be paused.
    async fn wait(&self, longest: Duration, end: impl Future<Output = ()>) {
        let runtime = self.runtime().unwrap_or_else(Handle::current);
        // A timer belongs to the runtime in which it is made.
        let mut sleeping = runtime.spawn(async move { sleep(longest).await });
        tokio::select! { biased;
            () = end => sleeping.abort(),
            // The timer ends early only if its runtime ends.
            _ = &mut sleeping => {}
        }
    }

    async fn until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            if lock(&self.core).core.is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// A call begins: the TTL index is kept from now on, if there can be one.
    pub(super) fn keep_index(&self) {
        let index = &mut lock(&self.tasks).index;
        if self.store.is_on_server() && index.as_ref().is_none_or(JoinHandle::is_finished) {
            let (store, retention) = (Arc::clone(&self.store), self.config.retention);
            // It reports events: a subscriber that sleeps must not stop the thread of the provider.
            *index = Some(task::spawn(async move { store.keep_index(retention).await }));
        }
    }

    fn stop(&self) {
        if let Some(task) = &lock(&self.tasks).index {
            task.abort();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        self.stop();
        self.rearmed.notify_one();
    }
}
