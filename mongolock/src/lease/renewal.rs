use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::LossReason;
use crate::lease::Lease;
use crate::lease::renewer::Renewer;
use crate::lease::schedule::Renewal;
use crate::store::{Admission, AdmissionClass, LeaseId, Trouble, driver_error};
use crate::timing::{
    RENEWAL_LIMIT_MAX, RENEWAL_LIMIT_MIN, RENEWAL_LIMIT_PART, RENEWAL_REPEATED_LIMIT_MIN, RENEWAL_STATEMENT,
};
use crate::{task, trace};

/// The largest number of claims in one command: larger commands cost as much per claim, and other writers would wait
/// longer at the server.
pub(crate) const BATCH: usize = 500;

/// The largest number of claims that a full command takes in addition instead of leaving them to one of their own.
const REST: usize = BATCH / 4;

/// The largest number of claims in one command after a command without a reply.
const SMALL_BATCH: usize = 25;

/// Leases that are renewed with one command, each for its own expiry.
pub(crate) struct RenewalBatch {
    pub(crate) leases: Vec<Arc<Lease>>,
    /// The shortest limit at the server that one of the leases has.
    limit: Duration,
    /// How often the renewals were repeated in smaller groups.
    pub(super) splits: u32,
    /// The number of claims.
    claims: usize,
    /// The expiries of the leases: the command has a statement for each.
    expiries: BTreeSet<Duration>,
}

impl RenewalBatch {
    /// Among which commands of the provider this one is admitted.
    pub(crate) fn class(&self) -> AdmissionClass {
        if self.splits == 0 {
            AdmissionClass::Renewal
        } else {
            AdmissionClass::RepeatedRenewal
        }
    }

    /// The command with a lease alone.
    fn alone(lease: Arc<Lease>, splits: u32) -> Self {
        Self {
            limit: limit(&lease, splits > 0),
            splits,
            // All names of a set are renewed with one command.
            claims: lease.keys().len(),
            expiries: BTreeSet::from([lease.options.expiry]),
            leases: vec![lease],
        }
    }

    /// Whether a command with this number of claims at most may renew the leases of both batches.
    fn takes(&self, other: &Self, most: usize) -> bool {
        let statements = self.limit.min(other.limit).as_millis() / RENEWAL_STATEMENT.as_millis();
        let more = other.expiries.difference(&self.expiries).count();
        let has_time = statements >= (self.expiries.len() + more) as u128;
        self.splits == other.splits
            && band(self.limit) == band(other.limit)
            && self.claims + other.claims <= most
            && (more == 0 || has_time)
    }

    fn add(&mut self, mut other: Self) {
        self.limit = self.limit.min(other.limit);
        self.claims += other.claims;
        self.expiries.append(&mut other.expiries);
        self.leases.append(&mut other.leases);
    }
}

/// Groups leases for one command each: [`BATCH`] claims, and a [`REST`]. Batches and leases keep the order of the renewals.
///
/// The server runs the statements of a command one after the other, and stops at a document that a foreign transaction has
/// changed: the rest of the command waits. After a command without a reply its leases are therefore renewed in small groups,
/// and then one by one, unless there is another reason why replies are missing.
///
/// A command has one limit at the server, the shortest of its leases, and no more statements than a busy server runs in that
/// time. Leases whose limits are far apart are not mixed: the
/// limit of a lease of 100 ms is too short for a command of 500 statements.
pub(crate) fn batches(renewals: Vec<Renewal>, trouble: Trouble) -> Vec<RenewalBatch> {
    let mut batches: Vec<RenewalBatch> = Vec::new();
    for renewal in renewals {
        let is_outage = trouble == Trouble::Connections && !renewal.is_split_by_error;
        let splits = if is_outage {
            0
        } else {
            renewal.splits.min(MOST_SPLITS)
        };
        let lease = renewal.lease;
        let added = RenewalBatch::alone(lease, splits);
        let mut open = batches.iter_mut().rev().take(OPEN_BATCHES);
        match open.find(|batch| batch.takes(&added, size(splits))) {
            Some(batch) => batch.add(added),
            None => batches.push(added),
        }
    }
    join_rest(&mut batches);
    batches
}

/// Adds the last few leases to a full command: after a rejection or without a reply they would go on alone.
fn join_rest(batches: &mut Vec<RenewalBatch>) {
    let Some(rest) = batches.pop_if(|last| last.splits == 0 && last.claims <= REST) else {
        return;
    };
    match batches
        .iter_mut()
        .rev()
        .find(|batch| batch.takes(&rest, BATCH + REST))
    {
        Some(batch) => batch.add(rest),
        None => batches.push(rest),
    }
}

/// How often the group of a renewal gets smaller.
const MOST_SPLITS: u32 = 2;

/// The largest number of claims in one command with leases that were split so often.
fn size(splits: u32) -> usize {
    match splits {
        0 => BATCH,
        1 => SMALL_BATCH,
        _ => 1,
    }
}

/// The number of the last batches to which a lease is added: at least one for each size and each [`band`] of limits.
const OPEN_BATCHES: usize = 16;

/// The limit at the server of the renewal of this lease.
fn limit(lease: &Lease, is_repeated: bool) -> Duration {
    let limit = (lease.options.expiry / 6).clamp(RENEWAL_LIMIT_MIN, RENEWAL_LIMIT_MAX);
    if is_repeated {
        (limit / RENEWAL_LIMIT_PART).max(limit.min(RENEWAL_REPEATED_LIMIT_MIN))
    } else {
        limit
    }
}

/// Limits of one band differ by less than four times.
fn band(limit: Duration) -> u32 {
    limit.as_millis().max(1).ilog2() / 2
}

/// Renews leases with one command. It runs on a task of its own, because the command may hang.
pub(crate) async fn renew(renewer: Arc<Renewer>, admission: Admission, batch: RenewalBatch) {
    let leases = &batch.leases;
    let with_expiry = |lease: &Arc<Lease>| {
        let expiry = lease.options.expiry;
        let claims: Vec<_> = lease.keys().iter().map(|key| (key.clone(), expiry)).collect();
        claims
    };
    let claims: Vec<(LeaseId, Duration)> = leases.iter().flat_map(with_expiry).collect();
    let Some((first, _)) = claims.first() else {
        return;
    };
    for lease in leases {
        lease.renewal_sent();
    }
    let (sent, store) = (Instant::now(), renewer.store());
    let renewing = store.renew(&claims, batch.limit);
    let reply = if store.shares_pool() {
        let expiry = leases.iter().map(|lease| lease.options.expiry).min();
        let note = || trace::renewal_waiting(claims.len(), &first.name, sent.elapsed());
        task::noting_wait(expiry.unwrap_or_default() / 3, note, renewing).await
    } else {
        renewing.await
    };
    drop(admission);
    match reply {
        Ok(reply) => {
            renewer.note_renewal();
            for lease in leases {
                if lease.keys().iter().all(|key| reply.includes(key)) {
                    if let Some(meter) = lease.meter() {
                        meter.renewed(lease.confirmed().elapsed());
                    }
                    lease.extend(sent);
                    lease.report(trace::renewed);
                } else if lease.is_ending() {
                    // Its mark or its commit may have ended the claim, and decides.
                } else {
                    lease.lose(LossReason::Gone);
                    // A lease that had expired before still has its slot, because its claim might have been there.
                    drop(lease.take_slots());
                    renewer.forget(lease);
                }
            }
            renewer.renewed(leases);
        }
        Err(error) => {
            trace::renewal_failed(claims.len(), &first.name, &error);
            if driver_error::is_overload(&error) {
                return renewer.renewal_rejected(leases, batch.splits);
            }
            // Such an error is about one document, and the statements behind it were not run.
            let is_of_one = driver_error::is_out_of_time(&error) || driver_error::is_of_statement(&error);
            renewer.renewal_failed(leases, is_of_one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tests::lease_of;
    use crate::options::Options;

    fn renewals(number: usize, expiry: impl Fn(usize) -> Duration, splits: u32) -> Vec<Renewal> {
        let renewal = |number| {
            let options = Options {
                expiry: expiry(number),
                ..Options::default()
            };
            Renewal {
                lease: Arc::new(lease_of(&number.to_string(), options)),
                splits,
                is_split_by_error: false,
            }
        };
        (0..number).map(renewal).collect()
    }

    fn sizes(batches: &[RenewalBatch]) -> Vec<usize> {
        batches.iter().map(|batch| batch.leases.len()).collect()
    }

    #[tokio::test]
    async fn leases_of_different_expiries_share_a_command() {
        let different = |number: usize| Duration::from_millis(30_000 + number as u64);
        let batches = batches(renewals(1200, different, 0), Trouble::None);
        assert_eq!(sizes(&batches), [500, 500, 200]);
        let renewed = renewals(1125, different, 0);
        assert_eq!(sizes(&super::batches(renewed, Trouble::None)), [500, 625]);
        assert_eq!(batches[0].limit, RENEWAL_LIMIT_MAX);
        assert_eq!(batches[0].class(), AdmissionClass::Renewal);
    }

    #[tokio::test]
    async fn a_command_has_the_shortest_limit_and_mixes_only_similar_ones() {
        let expiry = |number: usize| Duration::from_millis([2000, 3000, 30_000, 100][number % 4]);
        let batches = batches(renewals(40, expiry, 0), Trouble::None);
        let limits: Vec<u128> = batches.iter().map(|batch| batch.limit.as_millis()).collect();
        assert_eq!((sizes(&batches), limits), (vec![20, 10, 10], vec![333, 5000, 50]));
    }

    /// Leases of one expiry share a statement.
    #[tokio::test]
    async fn a_command_with_a_short_limit_has_few_statements() {
        let different = |number: usize| Duration::from_millis(1200 + number as u64 % 150);
        assert_eq!(
            sizes(&batches(renewals(150, different, 0), Trouble::None)),
            [100, 50]
        );
        let one = |_| Duration::from_millis(1200);
        assert_eq!(sizes(&batches(renewals(150, one, 0), Trouble::None)), [150]);
    }

    /// A blocked document keeps few others waiting, and not for long.
    #[tokio::test]
    async fn repeated_renewals_are_small_and_have_a_short_limit() {
        let expiry = |_| Duration::from_secs(30);
        let small = batches(renewals(60, expiry, 1), Trouble::Rejections);
        assert_eq!(sizes(&small), [25, 25, 10]);
        assert_eq!(small[0].limit, Duration::from_secs(1));
        assert_eq!(small[0].class(), AdmissionClass::RepeatedRenewal);
        assert_eq!(sizes(&batches(renewals(3, expiry, 2), Trouble::None)), [1, 1, 1]);
        let after_outage = batches(renewals(60, expiry, 2), Trouble::Connections);
        assert_eq!(sizes(&after_outage), [60]);
        let mut blocked = renewals(60, expiry, 1);
        for renewal in &mut blocked {
            renewal.is_split_by_error = true;
        }
        assert_eq!(sizes(&batches(blocked, Trouble::Connections)), [25, 25, 10]);
    }
}
