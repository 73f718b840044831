//! The state of a lease: it is live until it is released, done or lost, and never becomes live again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::{Lease, QueueSlot, margin, without_margin};
use crate::error::failure::{Failure, HoldEnd};
use crate::meter::LockMeter;
use crate::options::Options;
use crate::sync::lock;
use crate::timing::SLOW_REPLY;
use crate::{LockError, LossReason, task, trace};

#[derive(Debug, Clone, Copy)]
pub(super) enum LeaseState {
    Live {
        /// The time at which the holder stops relying on the lease.
        deadline: Instant,
        work: Work,
    },
    Released,
    /// The work is done, and the server has confirmed its mark.
    Done,
    Lost(LossReason),
}

/// How far the work under a live lease is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    UnderWay,
    /// A commit was begun whose transaction marks the work as done. Until it has ended, it decides whether
    /// the lease goes on; if its outcome stays unknown, the lease ends at its deadline or by a shutdown.
    Committing,
    /// The work has succeeded, and nothing but the reply to the request for its mark ends the lease.
    Marking,
    /// The lease is being detached, and nothing but the reply to that request ends it.
    Detaching,
}

impl LeaseState {
    /// The deadline of a live lease, if it has not passed. Nothing else decides that a lease is over.
    fn live_until(self, now: Instant) -> Option<Instant> {
        match self {
            Self::Live { deadline, .. } => Some(deadline).filter(|deadline| *deadline > now),
            Self::Released | Self::Done | Self::Lost(_) => None,
        }
    }
}

impl Lease {
    /// The time at which the request was sent that last confirmed the lease.
    pub(crate) fn confirmed(&self) -> Instant {
        let deadline = self.deadline().unwrap_or(self.acquired);
        deadline
            .checked_sub(without_margin(self.options.expiry))
            .unwrap_or(self.acquired)
    }

    /// The time at which the holder stops relying on the lease; `None` once the lease has ended.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match *lock(&self.state) {
            LeaseState::Live { deadline, .. } => Some(deadline),
            LeaseState::Released | LeaseState::Done | LeaseState::Lost(_) => None,
        }
    }

    /// Whether the lease is over: it was released or lost, or its deadline has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Whether the lease has ended without a release.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(*lock(&self.state), LeaseState::Lost(_))
    }

    pub(crate) fn remaining(&self) -> Duration {
        let state = lock(&self.state);
        // The clock is read under the mutex, so that a lease that was over stays over.
        let now = Instant::now();
        state
            .live_until(now)
            .map_or(Duration::ZERO, |deadline| deadline - now)
    }

    /// The deadline, unless the lease is over at this time.
    pub(super) fn live_until(&self, now: Instant) -> Option<Instant> {
        lock(&self.state).live_until(now)
    }

    pub(crate) fn ensure_held(&self) -> Result<(), LockError> {
        if self.is_over() {
            Err(self.lost_error())
        } else {
            Ok(())
        }
    }

    /// The same for a commit under way.
    pub(crate) fn ensure_may_commit(&self) -> Result<(), LockError> {
        self.ensure_held()
    }

    /// The error for a lease that is over; it keeps the reason of an earlier loss.
    pub(crate) fn lost_error(&self) -> LockError {
        let reason = match *lock(&self.state) {
            LeaseState::Live { .. } => LossReason::Expired,
            // After its end the server no longer has the claim.
            LeaseState::Released | LeaseState::Done => LossReason::Gone,
            LeaseState::Lost(reason) => reason,
        };
        LockError::Lost {
            name: self.name().to_owned(),
            token: self.token(),
            reason,
        }
    }

    /// Resolves once the lease is over.
    pub(crate) async fn until_over(&self) {
        self.until(Self::is_over).await;
    }

    /// Resolves once one of these leases is over.
    pub(crate) async fn until_one_over(leases: impl Iterator<Item = &Arc<Self>>) {
        task::any(leases.map(|lease| Box::pin(lease.until_over()))).await;
    }

    /// Moves the deadline after a confirmed renewal. It counts from the time at which the renewal was sent; of two
    /// renewals the one that was sent later decides. A lease that is over stays over.
    pub(crate) fn extend(&self, sent: Instant) {
        let mut state = lock(&self.state);
        let is_live = state.live_until(Instant::now()).is_some();
        if let LeaseState::Live { deadline, .. } = &mut *state
            && is_live
        {
            *deadline = (*deadline).max(sent + without_margin(self.options.expiry));
            self.unconfirmed.store(false, Ordering::Relaxed);
        }
    }

    /// Ends the lease if its deadline has passed, and returns whether it is lost.
    pub(crate) fn expire(&self) -> bool {
        if self.is_over() {
            self.lose(LossReason::Expired);
        }
        self.is_lost()
    }

    /// Ends a live lease without a release: it wakes the tasks that wait for the end, passes the turn on, and reports the
    /// loss. A lease whose work has succeeded does not end in this way: the reply to the request for its mark decides.
    pub(crate) fn lose(&self, reason: LossReason) {
        if self.end_lost(reason) {
            self.report_loss(reason);
        }
    }

    /// Ends a live lease by a loss; `false` if it had ended before.
    fn end_lost(&self, reason: LossReason) -> bool {
        if self.finish_lost(reason).is_none() {
            return false;
        }
        self.changed.notify_waiters();
        if reason == LossReason::Expired && self.may_outlive_deadline() {
            // A shutdown waits until the claim is released.
            lock(&self.slots).iter_mut().for_each(QueueSlot::pass_turn_on);
        } else {
            drop(self.take_slots());
        }
        true
    }

    /// Ends a live lease because of a shutdown, as [`lose`](Self::lose) does, but leaves the turn where it is.
    pub(crate) fn lose_at_shutdown(&self) {
        let reason = LossReason::ShutDown;
        if self.finish_lost(reason).is_some() {
            self.changed.notify_waiters();
            self.report_loss(reason);
        }
    }

    /// Notes that the work has succeeded: from now on only its mark ends the lease. `false` if the lease is over.
    pub(super) fn begin_marking(&self) -> bool {
        let is_live = self.begin_completion(Work::Marking);
        self.work_ended.get_or_init(Instant::now);
        is_live
    }

    /// The time at which the server has freed the lock if nothing is confirmed any more. The server counts from a moment after the
    /// request was sent, and a renewal that was sent just before the deadline may have been granted without a reply.
    pub(super) fn ends_at_server(&self) -> Instant {
        let Options {
            expiry,
            takeover_margin,
            ..
        } = *self.options;
        let may_be_renewed = self.unconfirmed.load(Ordering::Relaxed);
        let longer = if may_be_renewed { expiry } else { Duration::ZERO };
        self.deadline().map_or_else(Instant::now, |deadline| {
            deadline + margin(expiry) + SLOW_REPLY + takeover_margin + longer
        })
    }

    /// Notes that a commit begins whose transaction ends the claim. `false` if the lease is over.
    pub(crate) fn begin_commit_with_end(&self) -> bool {
        let is_live = self.begin_completion(Work::Committing);
        if is_live {
            // A late acquire request may find the lock free before the reply to the commit has come.
            self.begin_claim_release();
        }
        is_live
    }

    /// Notes that the lease is renewed only until it is detached, also if its deadline has passed.
    pub(super) fn begin_detaching(&self) {
        self.work_ended.get_or_init(Instant::now);
        if let LeaseState::Live { work, .. } = &mut *lock(&self.state) {
            *work = Work::Detaching;
        }
    }

    fn begin_completion(&self, next: Work) -> bool {
        let mut state = lock(&self.state);
        let is_live = state.live_until(Instant::now()).is_some();
        match &mut *state {
            // A commit of a context may follow the success of the work, which decides.
            LeaseState::Live { work, .. } if is_live && *work != Work::Marking => *work = next,
            _ => return false,
        }
        true
    }

    /// Notes that the claim was neither marked nor released, and that the lease goes on.
    pub(crate) fn cancel_completion(&self) {
        if let LeaseState::Live { work, .. } = &mut *lock(&self.state) {
            *work = Work::UnderWay;
        }
    }

    /// Ends the lease after the server has confirmed the mark, or the commit that has ended the claim. `false` if it had
    /// ended before.
    pub(super) fn complete(&self, end: LeaseState) -> bool {
        let is_ended = self.finish(end).is_some();
        self.changed.notify_waiters();
        is_ended
    }

    /// The error for a hold that has not ended in this way, and whose lock stays taken until it is free at the server, at least for
    /// this time.
    pub(super) fn unended(&self, end: HoldEnd, least: Duration, source: LockError) -> LockError {
        let left = self.ends_at_server().saturating_duration_since(Instant::now());
        Failure::Unended {
            end,
            name: self.name().to_owned(),
            left: left.max(least),
            source,
        }
        .into_error()
    }

    /// Ends a lease whose work has succeeded and whose mark the server refuses.
    pub(super) fn release_unmarked(&self) {
        if self.finish(LeaseState::Released).is_some() {
            self.changed.notify_waiters();
            self.report(trace::released);
        }
    }

    /// Ends a lease whose work has succeeded and whose mark cannot be written any more.
    pub(super) fn lose_unmarked(&self, reason: LossReason) {
        if self.finish(LeaseState::Lost(reason)).is_some() {
            self.changed.notify_waiters();
            self.report_loss(reason);
        }
    }

    /// Whether a request decides what becomes of the lease (a mark, a commit with a mark, or a detachment), or has decided it.
    pub(crate) fn is_ending(&self) -> bool {
        match *lock(&self.state) {
            LeaseState::Live { work, .. } => work != Work::UnderWay,
            LeaseState::Done => true,
            LeaseState::Released | LeaseState::Lost(_) => false,
        }
    }

    /// Whether the lease has ended with the success of its work, so that nothing is left to release.
    pub(crate) fn has_ended_well(&self) -> bool {
        matches!(*lock(&self.state), LeaseState::Done)
    }

    /// Ends the lease for a release and returns its deadline; `None` if it was over before.
    pub(crate) fn begin_release(&self) -> Option<Instant> {
        if self.is_over() {
            self.lose(LossReason::Expired);
            return None;
        }
        let deadline = self.finish(LeaseState::Released)?;
        self.changed.notify_waiters();
        Some(deadline)
    }

    /// Whether the server no longer has the claim. A set is lost with the first of its names, and has the others.
    pub(super) fn is_gone(&self) -> bool {
        self.keys.len() == 1 && matches!(*lock(&self.state), LeaseState::Lost(LossReason::Gone))
    }

    /// Begins to measure the hold, unless it is over or a part of another one.
    pub(crate) fn measure(&self, meter: Option<&LockMeter>) {
        let Some(meter) = meter else { return };
        let state = lock(&self.state);
        if let LeaseState::Live { .. } = *state
            && self.meter.set(meter.clone()).is_ok()
        {
            meter.hold_begins();
        }
    }

    /// Reports that the hold was not held until its release.
    pub(crate) fn report_loss(&self, reason: LossReason) {
        if let Some(meter) = self.meter() {
            meter.lost(reason);
        }
        self.report(|hold| trace::lost(hold, reason));
    }

    /// Resolves when the condition holds; it is checked at every change and at the deadline.
    pub(super) async fn until(&self, ended: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if ended(self) {
                return;
            }
            match self.live_until(Instant::now()) {
                Some(deadline) => drop(tokio::time::timeout_at(deadline, changed).await),
                None => changed.await,
            }
        }
    }

    /// Ends a live lease and returns its deadline; `None` if it had ended before.
    fn finish(&self, end: LeaseState) -> Option<Instant> {
        self.finish_if(end, |_| true)
    }

    /// [`finish`](Self::finish) by a loss. Whether work is done that may have succeeded is decided elsewhere: see [`Work`].
    fn finish_lost(&self, reason: LossReason) -> Option<Instant> {
        self.finish_if(LeaseState::Lost(reason), |work| match work {
            Work::UnderWay => true,
            // The transaction may have ended the claim.
            Work::Committing => reason != LossReason::Gone && self.open_commits() == 0,
            Work::Marking | Work::Detaching => false,
        })
    }

    fn finish_if(&self, end: LeaseState, may_end: impl Fn(Work) -> bool) -> Option<Instant> {
        let mut state = lock(&self.state);
        let LeaseState::Live { deadline, work } = *state else {
            return None;
        };
        if !may_end(work) {
            return None;
        }
        *state = end;
        drop(state);
        if let Some(meter) = self.meter() {
            meter.hold_ends(self.acquired.elapsed());
        }
        Some(deadline)
    }
}
