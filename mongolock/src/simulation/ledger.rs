use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Lease;
use crate::store::LeaseId;
use crate::sync::lock;

/// The tolerance for times: the server's times are whole milliseconds, and its clock drifts.
const BLUR: Duration = Duration::from_millis(50);

/// The holders of all locks, as the holders themselves know them.
#[derive(Default)]
pub(super) struct Ledger {
    names: Mutex<HashMap<Arc<str>, Record>>,
    /// The tokens that the server has reserved for each claim; there are several ranges if a request of it came very late.
    reserved: Mutex<HashMap<Arc<str>, Vec<RangeInclusive<i64>>>>,
    /// The claims that an operator has ended, with the time.
    forced: Mutex<HashMap<Arc<str>, Instant>>,
    /// The claims on which a hold has begun.
    begun: Mutex<HashSet<Arc<str>>>,
    breaches: Mutex<Vec<String>>,
    /// The number of holds.
    pub(super) holds: AtomicU64,
    /// The number of holds that were handed over in their process.
    pub(super) handed_over: AtomicU64,
}

#[derive(Default)]
struct Record {
    holders: Vec<Weak<Lease>>,
    last_token: i64,
    /// The last token of each process.
    last_tokens: HashMap<usize, i64>,
    /// All tokens so far.
    tokens: HashSet<i64>,
    /// The end of the minimum hold, before which no other hold may begin.
    kept_until: Option<Instant>,
    /// The claim of a process of DistributedLock.MongoDB, and the time until which that relies on it.
    neighbour: Option<(Arc<str>, Instant)>,
}

/// What a simulation promises about its holds.
#[derive(Clone, Copy)]
pub(super) struct Promise {
    /// Whether leases last as long at the server as their holders rely on them.
    pub(super) has_sound_clock: bool,
    /// Whether every holder learns at its next renewal that an operator has ended its lease.
    pub(super) tells_of_forced_ends: bool,
}

impl Ledger {
    /// Notes that the server has reserved tokens for a claim, or has found the claim in the document.
    pub(super) fn reserve(&self, key: &LeaseId, tokens: RangeInclusive<i64>) {
        let mut reserved = lock(&self.reserved);
        let blocks = reserved.entry(Arc::clone(&key.lock_id)).or_default();
        if !blocks.contains(&tokens) {
            blocks.push(tokens);
        }
    }

    /// Checks a hold that begins. If the server's clock runs ahead, leases end too early there: then a token is the only
    /// protection, and only its uniqueness and the order within a process can be promised.
    pub(super) fn begin(
        &self,
        process: usize,
        lease: &Arc<Lease>,
        granted: Option<Instant>,
        promise: Promise,
    ) {
        let mut names = lock(&self.names);
        let record = names.entry(Arc::clone(&lease.key.name)).or_default();
        let token = lease.token.get();
        lock(&self.begun).insert(Arc::clone(&lease.key.lock_id));
        self.check_token(record, lease);
        if !is_live(lease) {
            return;
        }
        self.holds.fetch_add(1, Relaxed);
        let handed_over = lease.is_handed_over();
        self.handed_over.fetch_add(handed_over.into(), Relaxed);
        let before = record.last_tokens.insert(process, token).unwrap_or(0);
        self.expect(
            before < token,
            lease,
            "has a smaller token than one before in its process",
        );
        // The reply to an acquire request may arrive after an operator has ended the claim.
        let is_forced = lock(&self.forced).contains_key(&lease.key.lock_id);
        if promise.has_sound_clock && !is_forced {
            self.check_exclusive(record, lease, promise);
        }
        record.last_token = record.last_token.max(token);
        let min_hold = lease.options.min_hold.saturating_sub(BLUR);
        record.kept_until = granted.filter(|_| !is_forced).map(|at| at + min_hold);
        record.holders.retain(|holder| holder.strong_count() > 0);
        record.holders.push(Arc::downgrade(lease));
    }

    /// Checks that the token of a hold is unique and reserved for its claim.
    fn check_token(&self, record: &mut Record, lease: &Lease) {
        self.expect(
            record.tokens.insert(lease.token.get()),
            lease,
            "has the token of another hold",
        );
        self.expect(
            self.is_reserved(lease),
            lease,
            "has a token that is not reserved for its claim",
        );
    }

    /// Checks that a hold has a greater token than all before it, and that no other hold or minimum hold still lasts.
    fn check_exclusive(&self, record: &Record, lease: &Lease, promise: Promise) {
        self.expect(
            record.last_token < lease.token.get(),
            lease,
            "has a smaller token than one before",
        );
        self.expect(
            !self.is_held(record, promise),
            lease,
            "begins while another holder relies on its lease",
        );
        let kept = record.kept_until.is_some_and(|until| Instant::now() < until);
        self.expect(!kept, lease, "begins within the minimum hold of another");
    }

    fn is_held(&self, record: &Record, promise: Promise) -> bool {
        let by_neighbour = record
            .neighbour
            .as_ref()
            .is_some_and(|(id, until)| Instant::now() < *until && !lock(&self.forced).contains_key(id));
        by_neighbour
            || record
                .live()
                .any(|lease| match lock(&self.forced).get(&lease.key.lock_id) {
                    None => true,
                    Some(ended) => promise.tells_of_forced_ends && knows_forced_end(&lease, *ended),
                })
    }

    /// Notes that an operator has ended the lease, if there was one.
    pub(super) fn forced(&self, name: &str, lock_id: Option<Arc<str>>) {
        if let Some(record) = lock(&self.names).get_mut(name) {
            record.kept_until = None;
        }
        lock(&self.forced).extend(lock_id.map(|id| (id, Instant::now())));
    }

    /// Notes that a process of DistributedLock.MongoDB holds the lock until then.
    pub(super) fn neighbour_holds(&self, name: &Arc<str>, id: &Arc<str>, until: Instant) {
        let mut names = lock(&self.names);
        let record = names.entry(Arc::clone(name)).or_default();
        let is_new = record.neighbour.as_ref().is_none_or(|(before, _)| before != id);
        let promise = Promise {
            has_sound_clock: true,
            tells_of_forced_ends: false,
        };
        if is_new && self.is_held(record, promise) {
            self.breach(format!(
                "a process of DistributedLock.MongoDB gets {name} while another holder relies on its lease"
            ));
        }
        record.neighbour = Some((Arc::clone(id), until));
    }

    pub(super) fn neighbour_ends(&self, name: &str) {
        if let Some(record) = lock(&self.names).get_mut(name) {
            record.neighbour = None;
        }
    }

    /// Checks that the server's document keeps a lease for as long as its holder relies on it.
    pub(super) fn check_end(&self, name: &str, lease: Option<&(Arc<str>, Duration)>) {
        let names = lock(&self.names);
        let Some(record) = names.get(name) else { return };
        for holder in record.live() {
            if lock(&self.forced).contains_key(&holder.key.lock_id) {
                continue;
            }
            let own = lease.filter(|(id, _)| *id == holder.key.lock_id);
            let lasts = own.map_or(Duration::ZERO, |(_, lasts)| *lasts);
            let kept = holder
                .deadline()
                .is_none_or(|deadline| deadline <= Instant::now() + lasts + BLUR);
            self.expect(kept, &holder, "relies on a lease that ends earlier at the server");
        }
    }

    /// Whether a live lease uses this claim.
    pub(super) fn is_live_claim(&self, lock_id: &str) -> bool {
        let names = lock(&self.names);
        let mut holders = names.values().flat_map(Record::live);
        holders.any(|lease| &*lease.key.lock_id == lock_id)
    }

    /// Whether a caller has had a hold on the claim.
    pub(super) fn has_begun(&self, lock_id: &str) -> bool {
        lock(&self.begun).contains(lock_id)
    }

    fn is_reserved(&self, lease: &Lease) -> bool {
        let reserved = lock(&self.reserved);
        let blocks = reserved.get(&lease.key.lock_id);
        blocks.is_some_and(|blocks| blocks.iter().any(|block| block.contains(&lease.token.get())))
    }

    pub(super) fn expect(&self, holds: bool, lease: &Lease, breach: &str) {
        if !holds {
            let (name, token) = (&lease.key.name, lease.token);
            self.breach(format!(
                "hold of {name} with token {token} by {} {breach}",
                lease.key.lock_id
            ));
        }
    }

    pub(super) fn breach(&self, what: String) {
        lock(&self.breaches).push(what);
    }

    pub(super) fn breaches(&self) -> Vec<String> {
        lock(&self.breaches).clone()
    }
}

impl Record {
    fn live(&self) -> impl Iterator<Item = Arc<Lease>> {
        self.holders
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|lease| is_live(lease))
    }
}

/// Whether the holder must have noticed by now that its lease was ended: it notices that at its next renewal, which
/// comes early after a hand-over.
fn knows_forced_end(lease: &Lease, ended: Instant) -> bool {
    let renewed = lease.options.renew_interval() + Duration::from_secs(1) + BLUR;
    lease.options.max_hold.is_none() && Instant::now() > ended + renewed
}

/// Whether the lease is live by the holder's own clock.
pub(super) fn is_live(lease: &Lease) -> bool {
    lease.deadline().is_some_and(|deadline| Instant::now() < deadline)
}
