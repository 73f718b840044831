//! The rounds of the renewer's task: each does what is due, and waits for the next one.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{MOST_DUE, Renewer};
use crate::lease::Lease;
use crate::lease::claim_release::{self, ClaimRelease};
use crate::lease::renewal::{self, RenewalBatch};
use crate::store::{Admission, AdmissionClass};
use crate::sync::lock;

/// What the task does in one round.
pub(super) struct DueWork {
    /// Leases whose deadline has passed.
    expired: Vec<Arc<Lease>>,
    /// Leases to renew, one batch for each command that was admitted.
    pub(super) renewals: Vec<(Admission, RenewalBatch)>,
    /// Among which commands the next batch is admitted, if there is no room for it now.
    pub(super) waits_for: Option<AdmissionClass>,
    /// Claims to release, one batch for each command.
    releases: Vec<Vec<ClaimRelease>>,
    /// The time of the next round if nothing wakes the task before.
    pub(super) next_round: Option<Instant>,
    /// Whether this is the last round.
    is_last: bool,
}

impl Renewer {
    /// What is due now. `admitted` is what the task has waited for.
    pub(super) fn due_work(&self, mut admitted: Option<(AdmissionClass, Admission)>) -> DueWork {
        let now = Instant::now();
        let admissions = self.store.admissions();
        let trouble = admissions.overload().trouble();
        let mut state = lock(&self.state);
        let due = state.schedule.take_due(now, MOST_DUE);
        let mut waits_for = None;
        let mut renewals = Vec::new();
        for batch in renewal::batches(due.renewals, trouble) {
            let class = batch.class();
            let waited = admitted.take_if(|(admitted, _)| *admitted == class);
            let admission = match waited {
                Some((_, admission)) => Some(admission),
                None => admissions.try_admit(class, None),
            };
            match admission {
                Some(admission) => {
                    state.schedule.sent(now, &batch.leases, trouble);
                    renewals.push((admission, batch));
                }
                // First renewals are admitted as soon as repeated ones, or earlier.
                None if waits_for != Some(AdmissionClass::Renewal) => waits_for = Some(class),
                None => {}
            }
        }
        if due.is_cut_short {
            // What is left is of the classes that are waited for, unless all of it was admitted.
            waits_for.get_or_insert(AdmissionClass::Renewal);
        }
        let is_last = state.stopped;
        let releases = state.take_releases(now);
        let next_release = state.releases.keys().next().map(|(at, _)| *at);
        // Leases that have to wait for room stay due, until their deadlines.
        let next_renewal = match waits_for {
            Some(_) => due.first_deadline,
            None => state.schedule.next(),
        };
        let next_round = next_release.into_iter().chain(next_renewal).min();
        state.wakes_at = next_round;
        drop(state);
        DueWork {
            expired: due.expired,
            renewals,
            waits_for,
            releases: claim_release::batches(releases),
            next_round,
            is_last,
        }
    }
}

pub(super) async fn run(renewer: Arc<Renewer>) {
    let mut admitted = None;
    loop {
        let work = renewer.due_work(admitted.take());
        for lease in work.expired {
            renewer.expire(&lease);
        }
        for (admission, batch) in work.renewals {
            crate::task::spawn(renewal::renew(Arc::clone(&renewer), admission, batch));
        }
        for batch in work.releases {
            crate::task::spawn(claim_release::send(Arc::clone(&renewer), batch));
        }
        if work.is_last {
            return;
        }
        let waiting = wait_until(work.next_round, &renewer.wake);
        match work.waits_for {
            Some(class) => tokio::select! {
                biased;
                () = waiting => {}
                admission = renewer.store.admissions().admit(class, None) => {
                    admitted = Some((class, admission));
                }
            },
            None => waiting.await,
        }
    }
}

async fn wait_until(at: Option<Instant>, wake: &Notify) {
    match at {
        Some(at) => drop(tokio::time::timeout_at(at, wake.notified()).await),
        None => wake.notified().await,
    }
}
