use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Hold, Lease, LossReason, QueueSlot, margin};
use crate::lease::background_release::{self, BackgroundRelease};
use crate::lease::given_up::GivenUp;
use crate::lease::renewal;
use crate::lease::schedule::{self, Schedule};
use crate::store::Store;
use crate::sync::lock;
use crate::timing::RENEWAL_RETRY;

/// The background task of a provider: renews leases, ends those that nobody confirmed, and withdraws claims that
/// were dropped. It starts with the first acquire and needs no runtime before that.
pub(crate) struct Renewer {
    store: Arc<Store>,
    state: Mutex<State>,
    wake: Notify,
    /// Releases of single claims that are under way again after a failure.
    pub(crate) repeats: Semaphore,
    pub(crate) given_up: Arc<GivenUp>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    schedule: Schedule,
    /// By the time at which they are due; the number keeps those of one time apart.
    releases: BTreeMap<(Instant, u64), BackgroundRelease>,
    last_number: u64,
    /// When the task wakes up by itself; a lease that is due later need not wake it.
    wakes_at: Option<Instant>,
    /// The provider is shut down: no lease is renewed any more.
    closing: bool,
    stopped: bool,
}

/// What the task does in one due.
struct DueWork {
    over: Vec<Arc<Lease>>,
    renewals: Vec<Vec<Arc<Lease>>>,
    releases: Vec<Vec<BackgroundRelease>>,
    next: Option<Instant>,
    last: bool,
}

impl Renewer {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            state: Mutex::default(),
            wake: Notify::new(),
            repeats: Semaphore::new(background_release::REPEATS),
            given_up: Arc::default(),
            task: Mutex::new(None),
        }
    }

    /// Starts the task on the caller's runtime if it does not run, or ended with the runtime it was started on.
    pub(crate) fn ensure_running(self: &Arc<Self>) {
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(crate::task::spawn(run(Arc::clone(self))));
        }
    }

    /// Keeps a lease renewed for as long as it is held; a lease that begins in a shutdown is lost at once.
    pub(crate) fn hold(self: &Arc<Self>, lease: Lease) -> Hold {
        let lease = Arc::new(lease);
        if !self.keep(Arc::clone(&lease)) {
            lease.end(LossReason::ShutDown);
        }
        Hold::new(lease, Arc::clone(self))
    }

    pub(super) fn is_closing(&self) -> bool {
        lock(&self.state).closing
    }

    /// `false` when the provider is shut down.
    fn keep(&self, lease: Arc<Lease>) -> bool {
        let mut state = lock(&self.state);
        if state.closing {
            return false;
        }
        let at = state.schedule.insert(lease);
        if state.wakes_at.is_none_or(|wakes_at| at < wakes_at) {
            self.wake.notify_one();
        }
        true
    }

    pub(crate) fn forget(&self, lease: &Arc<Lease>) {
        lock(&self.state).schedule.remove(lease);
    }

    /// Takes claims back in the background. Needs no runtime: without one they wait for the next acquire or shutdown.
    pub(crate) fn release_in_background(self: &Arc<Self>, mut releases: Vec<BackgroundRelease>) {
        let has_runtime = Handle::try_current().is_ok();
        for release in &mut releases {
            release.announce(&self.given_up);
        }
        let mut state = lock(&self.state);
        if !state.stopped {
            state.add(releases);
            drop(state);
            self.wake.notify_one();
            if has_runtime {
                self.ensure_running();
            }
        } else if has_runtime {
            drop(state);
            // The task has made its last due.
            for claims in background_release::batches(releases) {
                crate::task::spawn(background_release::send(Arc::clone(self), claims));
            }
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Plans the next renewal of leases that were renewed together: together again.
    pub(crate) fn renewed(&self, leases: &[Arc<Lease>]) {
        let part = 1.0 - schedule::jitter();
        self.replan(leases, |lease| schedule::next_renewal(lease, part));
    }

    /// Repeats a renewal soon; if one of the documents is blocked, in smaller groups, and at once unless the lease was
    /// alone already.
    pub(crate) fn renewal_failed(&self, leases: &[Arc<Lease>], is_blocked: bool) {
        let (now, late) = (Instant::now(), 1.0 + schedule::jitter());
        let soon = |lease: &Lease| now + RENEWAL_RETRY.min(lease.options.renew_interval / 2).mul_f64(late);
        if is_blocked {
            let is_group = leases.len() > 1;
            let at = |lease: &Lease| if is_group { now } else { soon(lease) };
            lock(&self.state).schedule.split(leases, at);
            self.wake.notify_one();
        } else {
            self.replan(leases, soon);
        }
    }

    /// Asks for a renewal of these leases at once: it finds out which of them have been ended at the server.
    pub(crate) fn renew_now(&self, concerned: impl Fn(&Lease) -> bool) {
        let leases = lock(&self.state).schedule.leases(concerned);
        let now = Instant::now();
        self.replan(&leases, |_| now);
    }

    fn replan(&self, leases: &[Arc<Lease>], renewal: impl Fn(&Lease) -> Instant) {
        let mut state = lock(&self.state);
        for lease in leases {
            state.schedule.replan(lease, renewal(lease));
        }
        self.wake.notify_one();
    }

    /// Ends a lease whose deadline has passed.
    fn end(self: &Arc<Self>, lease: &Arc<Lease>) {
        if lease.expire() {
            if lease.may_outlive_deadline() {
                let end = Instant::now() + margin(lease.options.expiry);
                lease.claim_ends();
                let release = BackgroundRelease::of_lease(lease, lease.take_slot());
                // The next in this process need not wait for that.
                self.release_in_background(vec![release.without_turn().unused_from(end)]);
            }
        } else if lease.deadline().is_some() && !self.keep(Arc::clone(lease)) {
            // A renewal was confirmed this very moment. In a shutdown nothing else ends it.
            self.end_at_shutdown(lease);
        }
    }

    /// Ends every lease and has its claim released, at once.
    pub(crate) fn end_leases(self: &Arc<Self>) {
        let leases = {
            let mut state = lock(&self.state);
            state.closing = true;
            state.hasten_awaited();
            state.schedule.drain()
        };
        for lease in leases {
            self.end_at_shutdown(&lease);
        }
        self.wake.notify_one();
    }

    /// The turn stays with the release: the shutdown waits for it.
    fn end_at_shutdown(self: &Arc<Self>, lease: &Arc<Lease>) {
        let slot = lease.take_slot();
        lease.end(LossReason::ShutDown);
        self.release_claim(lease, slot);
    }

    /// Releases the claim of a lease that has ended, in the background.
    pub(super) fn release_claim(self: &Arc<Self>, lease: &Lease, slot: QueueSlot) {
        lease.claim_ends();
        self.release_in_background(vec![BackgroundRelease::of_lease(lease, slot)]);
    }

    /// Lets the task make a last due, in which it starts every release that is left; late ones wait by themselves.
    pub(crate) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.wake.notify_one();
    }

    /// Whether there is nothing to renew and nothing to release in the background.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.schedule.next().is_none() && state.releases.is_empty()
    }

    fn due_work(&self) -> DueWork {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let due = state.schedule.take_due(now);
        let last = state.stopped;
        let releases = state.take_releases(now);
        let first = state.releases.keys().next().map(|(at, _)| *at);
        let next = first.into_iter().chain(state.schedule.next()).min();
        state.wakes_at = next;
        drop(state);
        DueWork {
            over: due.over,
            renewals: renewal::batches(due.renew),
            releases: background_release::batches(releases),
            next,
            last,
        }
    }
}

impl State {
    fn add(&mut self, releases: Vec<BackgroundRelease>) {
        for release in releases {
            self.last_number += 1;
            self.releases.insert((release.at, self.last_number), release);
        }
    }

    /// Those that are due, or all of them in the last round. Late releases that have become needless are left out.
    fn take_releases(&mut self, now: Instant) -> Vec<BackgroundRelease> {
        let due = if self.stopped {
            std::mem::take(&mut self.releases)
        } else {
            let later = self.releases.split_off(&(now, u64::MAX));
            std::mem::replace(&mut self.releases, later)
        };
        due.into_values().filter(|w| !w.is_settled()).collect()
    }

    /// A shutdown waits for these: they do not wait for their time.
    fn hasten_awaited(&mut self) {
        let now = Instant::now();
        let all = std::mem::take(&mut self.releases).into_values();
        let hastened = all.map(|w| if w.is_awaited() { w.due_at(now) } else { w });
        self.add(hastened.collect());
    }
}

async fn run(renewer: Arc<Renewer>) {
    loop {
        let due = renewer.due_work();
        for lease in due.over {
            renewer.end(&lease);
        }
        for leases in due.renewals {
            crate::task::spawn(renewal::renew(Arc::clone(&renewer), leases));
        }
        for claims in due.releases {
            crate::task::spawn(background_release::send(Arc::clone(&renewer), claims));
        }
        if due.last {
            return;
        }
        wait_until(due.next, &renewer.wake).await;
    }
}

async fn wait_until(at: Option<Instant>, wake: &Notify) {
    match at {
        Some(at) => drop(tokio::time::timeout_at(at, wake.notified()).await),
        None => wake.notified().await,
    }
}
