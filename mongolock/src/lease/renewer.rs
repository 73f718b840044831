mod round;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Hold, Lease, margin};
use crate::LossReason;
use crate::lease::claim_release::{self, ClaimRelease};
use crate::lease::given_up::GivenUp;
use crate::lease::renewal;
use crate::lease::schedule::{self, Schedule};
use crate::line::Lines;
use crate::store::Store;
use crate::sync::lock;
use crate::timing::{RENEWAL_RETRY, RENEWAL_RETRY_PART};

/// The number of leases that one round looks at, of those with little time left and of the others: as many as are in flight
/// at a time in a process that holds 100,000 locks.
const MOST_DUE: usize = 4 * renewal::BATCH;

/// The background task of a provider: it renews leases, ends those whose renewal was not confirmed in time, and releases
/// claims in the background. It starts with the first acquire and needs no runtime before that.
pub(crate) struct Renewer {
    store: Arc<Store>,
    /// The order of the waiters of all processes, in which a release is noted.
    pub(crate) lines: Arc<Lines>,
    state: Mutex<RenewerState>,
    /// Wakes the task when there is new work.
    wake: Notify,
    /// The ids of claims that this process has given up.
    pub(crate) given_up: Arc<GivenUp>,
    /// The number of leases whose marks are requested.
    pub(super) marking: watch::Sender<usize>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct RenewerState {
    schedule: Schedule,
    /// The pending releases by the time at which they are due; a number tells releases of one time apart.
    releases: BTreeMap<(Instant, u64), ClaimRelease>,
    /// The number of the release that was added last.
    last_number: u64,
    /// The time at which the task wakes up by itself; a lease that is due later need not wake it.
    wakes_at: Option<Instant>,
    /// The time at which a renewal was last confirmed.
    last_renewal: Option<Instant>,
    /// Whether the provider is shut down: then no lease is renewed any more.
    closing: bool,
    /// Whether the task ends after one more round.
    stopped: bool,
}

impl Renewer {
    pub(crate) fn new(store: Arc<Store>, lines: Arc<Lines>) -> Self {
        Self {
            store,
            lines,
            state: Mutex::default(),
            wake: Notify::new(),
            given_up: Arc::default(),
            marking: watch::Sender::new(0),
            task: Mutex::new(None),
        }
    }

    /// Starts the task on the caller's runtime, unless it is running: it ends with the runtime that it was started on.
    pub(crate) fn ensure_running(self: &Arc<Self>) {
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(crate::task::spawn(round::run(Arc::clone(self))));
        }
    }

    /// Has a lease renewed for as long as it is held; a lease that begins during a shutdown is lost at once.
    pub(crate) fn hold(self: &Arc<Self>, lease: Lease) -> Hold {
        let lease = Arc::new(lease);
        if !self.schedule(Arc::clone(&lease)) {
            lease.lose(LossReason::ShutDown);
        }
        Hold::new(lease, Arc::clone(self))
    }

    /// Has the claims of a lease renewed that has ended for its holder, until they are detached; the request for that decides,
    /// also during a shutdown.
    pub(super) fn keep_while_detaching(&self, lease: &Lease, deadline: Instant) -> Arc<Lease> {
        let kept = Arc::new(lease.following(deadline, 0, lease.title));
        kept.begin_detaching();
        // During a shutdown nothing is renewed any more.
        let _ = self.schedule(Arc::clone(&kept));
        kept
    }

    pub(super) fn is_closing(&self) -> bool {
        lock(&self.state).closing
    }

    /// Schedules the renewals of a lease; `false` if the provider is shut down.
    fn schedule(&self, lease: Arc<Lease>) -> bool {
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

    /// Stops the renewals of a lease.
    pub(crate) fn forget(&self, lease: &Arc<Lease>) {
        lock(&self.state).schedule.remove(lease);
    }

    /// Releases claims in the background. It needs no runtime: without one the releases wait for the next acquire or
    /// shutdown.
    pub(crate) fn release_in_background(self: &Arc<Self>, mut releases: Vec<ClaimRelease>) {
        // Most releases have no follow-up, and the task need not wake up for them.
        let has_work = !releases.is_empty();
        let has_runtime = Handle::try_current().is_ok();
        for release in &mut releases {
            release.announce(&self.given_up);
        }
        let mut state = lock(&self.state);
        if !state.stopped {
            state.add(releases);
            drop(state);
            if has_work {
                self.wake.notify_one();
            }
            if has_runtime {
                self.ensure_running();
            }
        } else if has_runtime {
            drop(state);
            // The task has ended.
            releases.retain(|release| !release.is_settled());
            for batch in claim_release::batches(releases) {
                crate::task::spawn(claim_release::send(Arc::clone(self), batch));
            }
        }
    }

    /// The leases that are held at present.
    pub(crate) fn held(&self) -> Vec<Arc<Lease>> {
        lock(&self.state).schedule.leases(|lease| !lease.is_over())
    }

    /// The time at which a renewal was last confirmed.
    pub(crate) fn last_renewal(&self) -> Option<Instant> {
        lock(&self.state).last_renewal
    }

    pub(super) fn note_renewal(&self) {
        lock(&self.state).last_renewal = Some(Instant::now());
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Plans the next renewal of leases that were renewed with one command, again for one time.
    pub(crate) fn renewed(&self, leases: &[Arc<Lease>]) {
        let part = 1.0 - schedule::jitter();
        self.replan(leases, |lease| schedule::next_renewal(lease, part));
    }

    /// Plans the repetition of a failed renewal after a short pause. If the error `is_of_one` document, the leases are renewed
    /// in smaller groups, without a pause unless the lease was renewed alone already.
    pub(crate) fn renewal_failed(&self, leases: &[Arc<Lease>], is_of_one: bool) {
        if is_of_one {
            let (now, factor) = (Instant::now(), 1.0 + schedule::jitter());
            let is_group = leases.len() > 1;
            let retry = |lease: &Lease| {
                RENEWAL_RETRY
                    .end()
                    .min(&(lease.options.renew_interval() / 2))
                    .mul_f64(factor)
            };
            let at = |lease: &Lease| if is_group { now } else { now + retry(lease) };
            lock(&self.state).schedule.split(leases, at);
            self.wake.notify_one();
        } else {
            let at = retry_at(leases);
            self.replan(leases, |_| at);
        }
    }

    /// Plans the repetition of a renewal that the server has rejected for overload, in groups of the same size.
    pub(super) fn renewal_rejected(&self, leases: &[Arc<Lease>], splits: u32) {
        let at = retry_at(leases);
        lock(&self.state).schedule.rejected(leases, at, splits);
        self.wake.notify_one();
    }

    /// Renews these leases now, to find out which of them were ended at the server.
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

    /// Ends a lease whose deadline has passed. If the claim may outlive it at the server, it is released in the background
    /// when the holder's work can no longer overlap with it.
    fn expire(self: &Arc<Self>, lease: &Arc<Lease>) {
        if lease.expire() {
            if lease.may_outlive_deadline() {
                let end = Instant::now() + margin(lease.options.expiry);
                lease.begin_claim_release();
                let releases = ClaimRelease::of_lease(lease).into_iter();
                // The next waiter in this process need not wait for the release.
                let releases = releases.map(|release| release.without_turn().unused_from(end));
                self.release_in_background(releases.collect());
            }
        } else if lease.deadline().is_some() && !lease.is_ending() && !self.schedule(Arc::clone(lease)) {
            // A renewal was confirmed in the meantime. During a shutdown nothing else would end the lease.
            self.close_lease(lease);
        }
    }

    /// Ends every lease and has its claim released without delay.
    pub(crate) fn close(self: &Arc<Self>) {
        let leases = {
            let mut state = lock(&self.state);
            state.closing = true;
            state.expedite_awaited();
            state.schedule.drain()
        };
        for lease in leases {
            self.close_lease(&lease);
        }
        self.wake.notify_one();
    }

    /// Ends a lease because of a shutdown. Its slot in the queue stays with the release, because the shutdown waits for
    /// that. A lease whose work has succeeded is renewed until its mark is confirmed, for which the shutdown waits as well.
    fn close_lease(self: &Arc<Self>, lease: &Arc<Lease>) {
        lease.lose_at_shutdown();
        if lease.is_ending() {
            lock(&self.state).schedule.insert(Arc::clone(lease));
        } else {
            lease.note_shutdown_release();
            self.release_claim(lease);
        }
    }

    /// Waits until no lease waits for its mark any more, and returns whether one did.
    pub(crate) async fn until_marked(&self) -> bool {
        let mut marking = self.marking.subscribe();
        let waits = *marking.borrow() > 0;
        // The sender lasts as long as this call.
        let _ = marking.wait_for(|marking| *marking == 0).await;
        waits
    }

    /// Goes on with a lease whose mark was not written.
    pub(crate) fn resume(self: &Arc<Self>, lease: &Arc<Lease>) {
        lease.cancel_completion();
        self.go_on(lease);
    }

    /// Makes up for what could not end a lease while its work was being committed: its deadline or a shutdown.
    pub(crate) fn go_on(self: &Arc<Self>, lease: &Arc<Lease>) {
        if self.is_closing() {
            self.forget(lease);
            self.close_lease(lease);
        } else if lease.is_over() {
            self.forget(lease);
            self.expire(lease);
        }
    }

    /// Releases the claim of a lease that has ended, in the background.
    pub(super) fn release_claim(self: &Arc<Self>, lease: &Lease) {
        lease.begin_claim_release();
        self.release_in_background(ClaimRelease::of_lease(lease));
    }

    /// Ends the task after one more round, which starts every release that is left, each on a task of its own that waits
    /// until the release is due.
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
}

/// When a renewal of these leases is repeated that has failed, but not because of one of them: soon, because nothing else keeps
/// the leases.
fn retry_at(leases: &[Arc<Lease>]) -> Instant {
    let now = Instant::now();
    let first_deadline = leases.iter().filter_map(|lease| lease.deadline()).min();
    let left = first_deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(now));
    let pause = (left / RENEWAL_RETRY_PART).clamp(*RENEWAL_RETRY.start(), *RENEWAL_RETRY.end());
    now + pause.mul_f64(1.0 + schedule::jitter())
}

impl RenewerState {
    fn add(&mut self, releases: Vec<ClaimRelease>) {
        for release in releases {
            self.last_number += 1;
            self.releases.insert((release.at, self.last_number), release);
        }
    }

    /// Takes out the releases that are due, or all of them in the last round. Late releases that are no longer needed are
    /// dropped.
    fn take_releases(&mut self, now: Instant) -> Vec<ClaimRelease> {
        let due = if self.stopped {
            std::mem::take(&mut self.releases)
        } else {
            let later = self.releases.split_off(&(now, u64::MAX));
            std::mem::replace(&mut self.releases, later)
        };
        due.into_values()
            .filter(|release| !release.is_settled())
            .collect()
    }

    /// Makes the releases due now for which the shutdown waits.
    fn expedite_awaited(&mut self) {
        let now = Instant::now();
        let all = std::mem::take(&mut self.releases).into_values();
        let expedited = all.map(|release| {
            if release.is_awaited() {
                release.rescheduled(now)
            } else {
                release
            }
        });
        self.add(expedited.collect());
    }
}

#[cfg(test)]
mod tests;
