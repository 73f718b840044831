use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::keeper::Keeper;
use crate::lease::{ClaimKey, Lease, margin};
use crate::queue::Kept;
use crate::renewal::BATCH;
use crate::store::Store;
use crate::{LockError, fault, trace};

/// A request that was under way when its sender gave up can reach the server this much later.
const LATE_REQUEST: Duration = Duration::from_secs(5);

/// A command without an answer after this time is taken to hang: on a dead connection, or at a document that a foreign
/// transaction has changed. The next one gets twice the time, so that few connections hang with it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The server gives up a repeated command after this time: it is sent again, and meanwhile others have their turn.
const REPEAT_LIMIT: Duration = Duration::from_secs(1);

/// Commands that are repeated after a silence, at the same time: each may keep a connection of the user's pool.
pub(crate) const REPEATS: usize = 3;

/// The first and the longest pause after a command that failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A claim that nobody wants any more, to be taken back in the background.
pub(crate) struct Withdrawal {
    pub(crate) key: ClaimKey,
    pub(crate) min_hold: Duration,
    pub(crate) at: Instant,
    /// The claim has ended by itself by then.
    until: Instant,
    /// Given up once the server has been told.
    kept: Kept,
    /// Commands that are still without an answer.
    unanswered: u32,
    /// Commands that have failed.
    failed: u32,
}

impl Withdrawal {
    pub(crate) fn new(key: ClaimKey, min_hold: Duration, expiry: Duration, kept: Kept) -> Self {
        let now = Instant::now();
        Self {
            key,
            min_hold,
            at: now,
            until: now + expiry,
            kept,
            unanswered: 0,
            failed: 0,
        }
    }

    /// Takes back the claim of a lease that has ended. If an earlier request of it may still be on its way, it is
    /// taken back once more when that must have arrived.
    pub(crate) fn of_lease(lease: &Lease) -> Self {
        if lease.is_haunted() {
            let late = Self::late(lease.key.clone(), lease.terms.expiry);
            lease.engine.keeper.withdraw(vec![late]);
        }
        Self::new(
            lease.key.clone(),
            lease.min_hold(),
            lease.terms.expiry,
            lease.take_kept(),
        )
    }

    /// Takes back the claim of a lease that has run out by its holder's clock, but that a renewal without an answer may
    /// have prolonged. Not before the server's own time for it, until which the holder may still be at work.
    pub(crate) fn of_expired(lease: &Lease) -> Self {
        let mut withdrawal = Self::of_lease(lease);
        withdrawal.at += margin(lease.terms.expiry);
        // The next in this process need not wait for that.
        withdrawal.kept = withdrawal.kept.without_turn();
        withdrawal
    }

    /// Takes back what a request that was under way when its sender gave up may do later.
    pub(crate) fn late(key: ClaimKey, expiry: Duration) -> Self {
        let mut withdrawal = Self::new(key, Duration::ZERO, expiry, Kept::Nothing);
        withdrawal.at += LATE_REQUEST;
        withdrawal.until += LATE_REQUEST;
        withdrawal
    }

    /// Somebody waits until it is done.
    pub(crate) fn is_awaited(&self) -> bool {
        !matches!(self.kept, Kept::Nothing)
    }

    /// Once more after a command that is without an answer. The next in this process has to hear for himself that the
    /// server does not answer.
    pub(crate) fn after_silence(self) -> Self {
        Self {
            at: Instant::now(),
            kept: self.kept.without_turn(),
            unanswered: self.unanswered + 1,
            ..self
        }
    }

    /// Once more after a command that failed, at the same moment for all of its claims.
    pub(crate) fn after_failure(self, at: Instant) -> Self {
        Self {
            at,
            kept: self.kept.without_turn(),
            failed: self.failed + 1,
            ..self
        }
    }

    fn patience(&self) -> Duration {
        PATIENCE * 2_u32.saturating_pow(self.unanswered)
    }

    fn pause(&self) -> Duration {
        let pause = PAUSES.0.saturating_mul(2_u32.saturating_pow(self.failed));
        pause.min(PAUSES.1).mul_f64(1.0 - fastrand::f64() / 2.0)
    }
}

/// Withdrawals that one command can make: of one minimum hold, at one moment. The server stops at a document that a
/// foreign transaction has changed, and the rest of the command waits: after a command without an answer each claim
/// therefore has one of its own.
pub(crate) fn batches(withdrawals: Vec<Withdrawal>) -> Vec<Vec<Withdrawal>> {
    let now = Instant::now();
    let mut groups: BTreeMap<(Duration, Instant, u32), Vec<Withdrawal>> = BTreeMap::new();
    for withdrawal in withdrawals {
        let group = (withdrawal.min_hold, withdrawal.at.max(now), withdrawal.unanswered);
        groups.entry(group).or_default().push(withdrawal);
    }
    let mut batches = Vec::new();
    for ((.., unanswered), mut group) in groups {
        let together = if unanswered == 0 { BATCH } else { 1 };
        while group.len() > together {
            batches.push(group.split_off(group.len() - together));
        }
        batches.push(group);
    }
    batches
}

/// Takes claims back with one command when they are due. If it fails or is not answered, the keeper sees to them again.
pub(crate) async fn withdraw(keeper: Arc<Keeper>, batch: Vec<Withdrawal>) {
    let Some(first) = batch.first() else {
        return;
    };
    let (patience, pause) = (first.patience(), first.pause());
    let keys: Vec<ClaimKey> = batch.iter().map(|withdrawal| withdrawal.key.clone()).collect();
    tokio::time::sleep_until(first.at).await;
    let _permit = if first.unanswered > 0 {
        keeper.repeats.acquire().await.ok()
    } else {
        None
    };
    let mut told = pin!(tell(keeper.store(), &keys, first.min_hold, first.unanswered > 0));
    match tokio::time::timeout(patience, told.as_mut()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let at = Instant::now() + pause;
            again(&keeper, batch, |withdrawal| withdrawal.after_failure(at), &error);
        }
        Err(_) => {
            let silence = fault::unanswered("release", patience);
            again(&keeper, batch, Withdrawal::after_silence, &silence);
            // A request is never dropped half-way; what comes of it is nothing to anybody.
            let _ = told.await;
        }
    }
}

async fn tell(
    store: &Store,
    keys: &[ClaimKey],
    min_hold: Duration,
    is_repeat: bool,
) -> Result<(), LockError> {
    match keys {
        [key] if is_repeat => store.release_within(key, min_hold, REPEAT_LIMIT).await,
        _ => store.release_many(keys, min_hold).await,
    }
}

/// Leaves claims to the keeper that may still stand when it comes to them.
fn again(
    keeper: &Arc<Keeper>,
    batch: Vec<Withdrawal>,
    next: impl Fn(Withdrawal) -> Withdrawal,
    error: &LockError,
) {
    let (standing, over): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(next)
        .partition(|withdrawal| withdrawal.at < withdrawal.until && !fault::is_refusal(error));
    if !over.is_empty() {
        let keys: Vec<ClaimKey> = over.into_iter().map(|withdrawal| withdrawal.key).collect();
        trace::release_failed(&keys, error);
    }
    keeper.withdraw(standing);
}
