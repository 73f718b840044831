use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::lease::Lease;
use crate::lease::renewer::{RenewalTurn, Renewer};
use crate::lease::schedule::Renewal;
use crate::store::LeaseId;
use crate::store::driver_error;
use crate::timing::{RENEWAL_LIMIT_MAX, RENEWAL_LIMIT_MIN, RENEWAL_TURN};
use crate::{LossReason, trace};

/// The largest number of claims in one command: larger commands cost as much per claim, and other writers would wait
/// longer at the server.
pub(crate) const BATCH: usize = 500;

/// The largest number of claims in one command after a command without a reply.
const SMALL_BATCH: usize = 25;

/// Groups leases for one command each: leases of one expiry, at most [`BATCH`] of them.
///
/// The server stops at a document that a foreign transaction has changed, and the rest of the command waits. After a
/// command without a reply its leases are therefore renewed in small groups, and then one by one.
pub(crate) fn batches(renewals: Vec<Renewal>) -> Vec<Vec<Arc<Lease>>> {
    let mut groups: BTreeMap<(Duration, usize), Vec<Arc<Lease>>> = BTreeMap::new();
    for Renewal { lease, in_flight } in renewals {
        let size = match in_flight {
            0 => BATCH,
            1 => SMALL_BATCH,
            _ => 1,
        };
        groups
            .entry((lease.options.expiry, size))
            .or_default()
            .push(lease);
    }
    let mut batches = Vec::new();
    for ((_, size), leases) in groups {
        let (mut batch, mut claims) = (Vec::new(), 0);
        for lease in leases {
            let own = lease.keys().count();
            // All names of a set are renewed with one command.
            if claims > 0 && claims + own > size {
                batches.push(std::mem::take(&mut batch));
                claims = 0;
            }
            claims += own;
            batch.push(lease);
        }
        batches.push(batch);
    }
    batches
}

/// Renews leases of one expiry with one command. It runs on a task of its own, because the command may hang.
pub(crate) async fn renew(renewer: Arc<Renewer>, turn: RenewalTurn, leases: Vec<Arc<Lease>>) {
    let Some(expiry) = leases.first().map(|lease| lease.options.expiry) else {
        return;
    };
    let keys: Vec<LeaseId> = leases.iter().flat_map(|lease| lease.keys().cloned()).collect();
    for lease in &leases {
        lease.renewal_sent();
    }
    let limit = (expiry / 6).clamp(RENEWAL_LIMIT_MIN, RENEWAL_LIMIT_MAX);
    let sent = Instant::now();
    match in_turn(turn, renewer.store().renew(&keys, expiry, limit)).await {
        Ok(reply) => {
            renewer.note_renewal();
            for lease in &leases {
                if lease.keys().all(|key| reply.includes(key)) {
                    if let Some(meter) = lease.meter() {
                        meter.renewed(lease.confirmed().elapsed());
                    }
                    lease.extend(sent);
                    lease.report(trace::renewed);
                } else if lease.has_succeeded() {
                    // The mark may have replaced the claim, and its request decides.
                } else {
                    lease.end(LossReason::Gone);
                    // A lease that had expired before still has its slot, because its claim might have been there.
                    drop(lease.take_slot());
                    renewer.forget(lease);
                }
            }
            renewer.renewed(&leases);
        }
        Err(error) => {
            trace::renewal_failed(keys.len(), &keys[0].name, &error);
            renewer.renewal_failed(&leases, driver_error::is_out_of_time(&error));
        }
    }
}

/// Runs a request to its end. The turn ends with the reply, or earlier if that is slow, so that other renewals go on.
async fn in_turn<T>(turn: RenewalTurn, request: impl Future<Output = T>) -> T {
    let mut request = pin!(request);
    if let Ok(reply) = timeout(RENEWAL_TURN, request.as_mut()).await {
        return reply;
    }
    drop(turn);
    request.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tests::renewer;
    use crate::task::is_pending;

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_with_the_reply_or_when_that_is_slow() {
        let renewer = renewer();
        let (prompt, blocked) = (renewer.renewal_turn(), renewer.renewal_turn());
        assert_eq!(renewer.renewals_in_turn(), 2);
        in_turn(prompt, async {}).await;
        renewer.woken().await;
        assert_eq!(renewer.renewals_in_turn(), 1);
        let begun = Instant::now();
        let mut waiting = pin!(in_turn(blocked, std::future::pending::<()>()));
        assert!(is_pending(waiting.as_mut()).await);
        assert_eq!(renewer.renewals_in_turn(), 1);
        tokio::select! {
            biased;
            () = waiting => unreachable!("no reply comes"),
            () = renewer.woken() => assert_eq!(begun.elapsed(), RENEWAL_TURN),
        }
        assert_eq!(renewer.renewals_in_turn(), 0);
    }
}
