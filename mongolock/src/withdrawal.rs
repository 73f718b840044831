use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::copies::Copies;
use crate::given_up::{GivenUp, Pending};
use crate::keeper::Keeper;
use crate::lease::{ClaimKey, Lease, margin};
use crate::queue::{Kept, Place};
use crate::renewal::BATCH;
use crate::{LockError, fault, trace};

/// A command without a reply after this time is on a dead connection: the server gives it up sooner. The next one gets
/// twice the time, so that few connections are kept.
pub(crate) const NO_REPLY: Duration = Duration::from_secs(5);

/// The server gives up a release after this time, for instance at a document that a foreign transaction blocks.
pub(crate) const RELEASE_LIMIT: Duration = Duration::from_secs(4);

/// The same for a release that is repeated for one claim alone: it is sent again, and meanwhile others have their turn.
const REPEAT_LIMIT: Duration = Duration::from_secs(1);

/// Releases of single claims that are repeated at the same time: each may keep a connection of the user's pool.
pub(crate) const REPEATS: usize = 3;

/// A claim that is no longer wanted, to be released in the background.
pub(crate) struct Withdrawal {
    pub(crate) key: ClaimKey,
    pub(crate) min_hold: Duration,
    pub(crate) at: Instant,
    /// From then on nobody uses the claim: others in this process may release it before `at` if it is in their way.
    unused_from: Instant,
    /// The claim has ended by itself by then.
    until: Instant,
    /// Given up once the server has been told.
    kept: Kept,
    /// Commands that failed or are without a reply. After the first one each claim has a command of its own.
    failed: u32,
    /// Given for a release that is made because a request of the claim may take effect late.
    late: Option<Arc<Copies>>,
    /// Makes the id known as one that nobody uses.
    pending: Option<Pending>,
}

impl Withdrawal {
    fn new(key: ClaimKey, min_hold: Duration, expiry: Duration, kept: Kept) -> Self {
        let now = Instant::now();
        Self {
            key,
            min_hold,
            at: now,
            unused_from: now,
            until: now + expiry,
            kept,
            failed: 0,
            late: None,
            pending: None,
        }
    }

    /// Releases a claim that never became a lease.
    pub(crate) fn of_claim(key: ClaimKey, expiry: Duration, place: Arc<Place>) -> Self {
        Self::new(key, Duration::ZERO, expiry, Kept::Place { _place: place })
    }

    /// Releases the claim of a lease that has ended. If a request of it may still take effect, it is released once more
    /// when that must have happened.
    pub(crate) fn of_lease(lease: &Lease) -> Self {
        Self::of_unused(lease, Instant::now())
    }

    /// Releases the claim of a lease that has run out by its holder's clock, but that a renewal without a reply may have
    /// prolonged. Not before the server's own time for it, until which the holder may still be at work.
    pub(crate) fn of_expired(lease: &Lease) -> Self {
        // The next in this process need not wait for that.
        let at = Instant::now() + margin(lease.terms.expiry);
        Self::of_unused(lease, at).without_turn()
    }

    /// Releases the claim of a lease that nobody uses from that moment on.
    fn of_unused(lease: &Lease, at: Instant) -> Self {
        let expiry = lease.terms.expiry;
        if let Some(copies) = lease.copies() {
            copies.give_up(lease.min_hold());
            let mut late = Self::late(lease.key.clone(), expiry, Arc::clone(copies));
            late.unused_from = at;
            lease.engine.keeper.withdraw(vec![late]);
        }
        let withdrawal = Self::new(lease.key.clone(), lease.min_hold(), expiry, lease.take_kept());
        Self {
            at,
            unused_from: at,
            ..withdrawal
        }
    }

    /// Releases what a request without a reply may do later; more than once, see [`Copies::next_release`].
    pub(crate) fn late(key: ClaimKey, expiry: Duration, copies: Arc<Copies>) -> Self {
        let mut withdrawal = Self::new(key, copies.min_hold(), expiry, Kept::Nothing);
        if let Some(at) = copies.next_release() {
            withdrawal.at = at;
            withdrawal.until = at + expiry;
        }
        withdrawal.late = Some(copies);
        withdrawal
    }

    /// Tells the others in this process that the claim is unused.
    pub(crate) fn announce(&mut self, given_up: &Arc<GivenUp>) {
        let (id, min_hold, from) = (&self.key.lock_id, self.min_hold, self.unused_from);
        self.pending
            .get_or_insert_with(|| given_up.add(id, min_hold, from));
    }

    /// The late release that follows this one.
    pub(crate) fn next_late(&self) -> Option<Self> {
        let copies = self.late.as_ref()?;
        copies.next_release()?;
        let expiry = self.until - self.at;
        let mut next = Self::late(self.key.clone(), expiry, Arc::clone(copies));
        // Until then the id stays known as one that nobody uses.
        next.pending = self.pending.as_ref().map(Pending::another);
        Some(next)
    }

    /// Whether the server need not be told any more: all requests have been answered.
    pub(crate) fn is_settled(&self) -> bool {
        self.late.as_ref().is_some_and(|copies| !copies.may_take_effect())
    }

    /// Somebody waits until it is done.
    pub(crate) fn is_awaited(&self) -> bool {
        !matches!(self.kept, Kept::Nothing)
    }

    /// After a command that has failed or is without a reply: the next in this process has to hear for itself that the
    /// server does not work.
    pub(crate) fn without_turn(self) -> Self {
        Self {
            kept: self.kept.without_turn(),
            ..self
        }
    }

    pub(crate) fn due_at(self, at: Instant) -> Self {
        Self { at, ..self }
    }

    /// Once more, in a command of its own.
    pub(crate) fn alone(self, at: Instant) -> Self {
        Self {
            at,
            failed: self.failed + 1,
            ..self.without_turn()
        }
    }

    fn reply_limit(&self) -> Duration {
        NO_REPLY * 2_u32.saturating_pow(self.failed)
    }
}

/// Withdrawals that one command can make: of one minimum hold. The server stops at a document that a foreign
/// transaction has changed, and the rest of the command waits: after a command that failed there each claim has one of
/// its own.
pub(crate) fn batches(withdrawals: Vec<Withdrawal>) -> Vec<Vec<Withdrawal>> {
    let now = Instant::now();
    let mut groups: BTreeMap<(Duration, Instant, u32), Vec<Withdrawal>> = BTreeMap::new();
    for withdrawal in withdrawals {
        let group = (withdrawal.min_hold, withdrawal.at.max(now), withdrawal.failed);
        groups.entry(group).or_default().push(withdrawal);
    }
    let mut batches = Vec::new();
    for ((.., failed), mut group) in groups {
        let together = if failed == 0 { BATCH } else { 1 };
        while group.len() > together {
            batches.push(group.split_off(group.len() - together));
        }
        batches.push(group);
    }
    batches
}

/// Releases claims with one command when they are due, and again after an error while one of them may stand. Without
/// a reply the keeper sees to them.
pub(crate) async fn withdraw(keeper: Arc<Keeper>, mut batch: Vec<Withdrawal>) {
    let Some(first) = batch.first() else {
        return;
    };
    let (min_hold, is_repeat, reply_limit) = (first.min_hold, first.failed > 0, first.reply_limit());
    let until = batch.iter().map(|w| w.until).max().unwrap_or(first.at);
    let keys: Vec<ClaimKey> = batch.iter().map(|w| w.key.clone()).collect();
    let mut backoff = Backoff::new(Duration::from_millis(50)..=Duration::from_secs(2));
    tokio::time::sleep_until(first.at).await;
    loop {
        let permit = if is_repeat {
            keeper.repeats.acquire().await.ok()
        } else {
            None
        };
        let limit = if is_repeat { REPEAT_LIMIT } else { RELEASE_LIMIT };
        let mut released = pin!(keeper.store().release_many(&keys, min_hold, limit));
        let Ok(answer) = tokio::time::timeout(reply_limit, released.as_mut()).await else {
            // A dead connection must not keep the others waiting for their repeats.
            drop(permit);
            repeat_alone(&keeper, batch, until, &fault::unanswered("release", reply_limit));
            // A request is never dropped half-way, and its reply changes nothing any more.
            let _ = released.await;
            return;
        };
        let Err(error) = answer else { return };
        drop(permit);
        batch = batch.into_iter().map(Withdrawal::without_turn).collect();
        let pause = backoff.next();
        if fault::forbids_release(&error) || Instant::now() + pause >= until {
            trace::release_failed(&keys, &error);
            return;
        }
        if batch.len() > 1 && fault::is_out_of_time(&error) {
            return repeat_alone(&keeper, batch, until, &error);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Has each claim released by a command of its own, as long as one of them may stand.
fn repeat_alone(keeper: &Arc<Keeper>, batch: Vec<Withdrawal>, until: Instant, error: &LockError) {
    let now = Instant::now();
    if now < until {
        keeper.withdraw(
            batch
                .into_iter()
                .map(|withdrawal| withdrawal.alone(now))
                .collect(),
        );
    } else {
        let keys: Vec<ClaimKey> = batch.iter().map(|w| w.key.clone()).collect();
        trace::release_failed(&keys, error);
    }
}
