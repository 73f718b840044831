use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Lease;
use crate::permit_id;
use crate::store::LeaseId;
use crate::sync::lock;

/// The tolerance for times: the server's times are whole milliseconds, and its clock drifts.
const BLUR: Duration = Duration::from_millis(50);

/// The holders of all locks, as the holders themselves know them.
#[derive(Default)]
pub(super) struct Ledger {
    names: Mutex<HashMap<Arc<str>, Record>>,
    /// The tokens that the server has reserved for each claim; there are several ranges if a request of it came very late.
    reserved: Mutex<HashMap<LeaseId, Vec<RangeInclusive<i64>>>>,
    /// The claims that an operator has ended, with the time.
    forced: Mutex<HashMap<LeaseId, Instant>>,
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
    holders: Vec<HeldName>,
    last_token: i64,
    /// The last token of each process.
    last_tokens: HashMap<usize, i64>,
    /// All tokens so far.
    tokens: HashSet<i64>,
    /// The end of the minimum hold, before which no other hold may begin.
    kept_until: Option<Instant>,
    /// The id of a detached lease that nobody resumes or releases, and the time until which it keeps the lock.
    detached: Option<(Arc<str>, Instant)>,
    /// The claim of a process of DistributedLock.MongoDB, and the time until which that relies on it.
    neighbour: Option<(LeaseId, Instant)>,
}

/// One name of a hold.
struct HeldName {
    lease: Weak<Lease>,
    key: LeaseId,
}

/// A name of a hold that begins.
#[derive(Clone, Copy)]
pub(super) struct Begun<'a> {
    pub(super) process: usize,
    pub(super) lease: &'a Arc<Lease>,
    pub(super) key: &'a LeaseId,
    pub(super) token: i64,
    /// The time at which the server has granted the lock.
    pub(super) granted: Option<Instant>,
}

/// What a simulation promises about its holds.
#[derive(Clone, Copy)]
pub(super) struct Promise {
    /// Whether locks stay taken at the server for as long as their holders rely on them.
    pub(super) has_sound_clock: bool,
    /// Whether minimum holds last as long as they shall.
    pub(super) keeps_min_holds: bool,
    /// Whether every holder learns at its next renewal that an operator has ended its lease.
    pub(super) tells_of_forced_ends: bool,
}

impl Ledger {
    /// Notes that the server has reserved tokens for a claim, or has found the claim in the document.
    pub(super) fn reserve(&self, key: &LeaseId, tokens: RangeInclusive<i64>) {
        let mut reserved = lock(&self.reserved);
        let blocks = reserved.entry(key.clone()).or_default();
        if !blocks.contains(&tokens) {
            blocks.push(tokens);
        }
    }

    /// Checks a hold that begins. If the server's clock runs ahead, leases end too early there: then a token is the only
    /// protection, and only its uniqueness and the order within a process can be promised.
    pub(super) fn begin(&self, begun: Begun<'_>, promise: Promise) {
        let Begun {
            lease, key, token, ..
        } = begun;
        let mut names = lock(&self.names);
        let record = names.entry(Arc::clone(&key.name)).or_default();
        lock(&self.begun).insert(Arc::clone(&key.lock_id));
        self.check_token(record, begun);
        if !is_live(lease) {
            return;
        }
        self.holds.fetch_add(1, Relaxed);
        let handed_over = lease.is_handed_over();
        self.handed_over.fetch_add(handed_over.into(), Relaxed);
        let before = record.last_tokens.insert(begun.process, token).unwrap_or(0);
        self.expect(
            before < token,
            key,
            "has a smaller token than one before in its process",
        );
        // The reply to an acquire request may arrive after an operator has ended the claim.
        let is_forced = self.was_forced(key);
        if promise.has_sound_clock && !is_forced {
            self.check_exclusive(record, begun, promise);
        }
        record.last_token = record.last_token.max(token);
        let min_hold = lease.options.min_hold.saturating_sub(BLUR);
        record.kept_until = begun.granted.filter(|_| !is_forced).map(|at| at + min_hold);
        record.holders.retain(|holder| holder.lease.strong_count() > 0);
        record.holders.push(HeldName {
            lease: Arc::downgrade(lease),
            key: key.clone(),
        });
    }

    /// Checks that the token of a hold is unique and reserved for its claim.
    fn check_token(&self, record: &mut Record, begun: Begun<'_>) {
        self.expect(
            record.tokens.insert(begun.token),
            begun.key,
            "has the token of another hold",
        );
        self.expect(
            self.is_reserved(begun.key, begun.token),
            begun.key,
            "has a token that is not reserved for its claim",
        );
    }

    /// Checks that a hold has a greater token than all before it, and that no other hold or minimum hold still lasts.
    fn check_exclusive(&self, record: &Record, begun: Begun<'_>, promise: Promise) {
        self.expect(
            record.last_token < begun.token,
            begun.key,
            "has a smaller token than one before",
        );
        self.expect(
            !self.is_held(record, promise),
            begun.key,
            "begins while another holder relies on its lease",
        );
        let is_detached = promise.keeps_min_holds && record.is_detached();
        self.expect(!is_detached, begun.key, "begins while a detached lease runs");
        let kept = promise.keeps_min_holds && record.kept_until.is_some_and(|until| Instant::now() < until);
        self.expect(!kept, begun.key, "begins within the minimum hold of another");
    }

    fn is_held(&self, record: &Record, promise: Promise) -> bool {
        let by_neighbour = record
            .neighbour
            .as_ref()
            .is_some_and(|(key, until)| Instant::now() < *until && !self.was_forced(key));
        by_neighbour
            || record
                .live()
                .any(|(lease, key)| match lock(&self.forced).get(key) {
                    None => true,
                    Some(ended) => promise.tells_of_forced_ends && knows_forced_end(&lease, *ended),
                })
    }

    /// Notes that an operator has ended the lease, if there was one.
    pub(super) fn forced(&self, name: &str, lock_id: Option<Arc<str>>) {
        if let Some(record) = lock(&self.names).get_mut(name) {
            record.kept_until = None;
        }
        let key = |lock_id| LeaseId {
            name: Arc::from(name),
            lock_id,
        };
        lock(&self.forced).extend(lock_id.map(|id| (key(id), Instant::now())));
    }

    /// Notes that a lease is detached at least until then.
    pub(super) fn detached(&self, names: &[Arc<str>], lock_id: &Arc<str>, until: Instant) {
        let mut records = lock(&self.names);
        for name in names {
            let record = records.entry(Arc::clone(name)).or_default();
            record.kept_until = None;
            record.detached = Some((Arc::clone(lock_id), until));
        }
    }

    /// Notes that somebody resumes or releases a detached lease: then it may end.
    pub(super) fn may_end(&self, names: &[Arc<str>], lock_id: &Arc<str>) {
        let mut records = lock(&self.names);
        for name in names {
            if let Some(record) = records.get_mut(name) {
                record.detached.take_if(|(id, _)| id == lock_id);
            }
        }
    }

    /// Whether an operator has ended this claim.
    pub(super) fn was_forced(&self, key: &LeaseId) -> bool {
        lock(&self.forced).contains_key(key)
    }

    /// Notes that a process of DistributedLock.MongoDB holds the lock until then.
    pub(super) fn neighbour_holds(&self, name: &Arc<str>, id: &Arc<str>, until: Instant) {
        let mut names = lock(&self.names);
        let record = names.entry(Arc::clone(name)).or_default();
        let is_new = record
            .neighbour
            .as_ref()
            .is_none_or(|(before, _)| before.lock_id != *id);
        let promise = Promise {
            has_sound_clock: true,
            keeps_min_holds: true,
            tells_of_forced_ends: false,
        };
        if is_new && self.is_held(record, promise) {
            self.breach(format!(
                "a process of DistributedLock.MongoDB gets {name} while another holder relies on its lease"
            ));
        }
        let key = LeaseId {
            name: Arc::clone(name),
            lock_id: Arc::clone(id),
        };
        record.neighbour = Some((key, until));
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
        for (holder, key) in record.live() {
            if self.was_forced(key) {
                continue;
            }
            let own = lease.filter(|(id, _)| *id == key.lock_id);
            let lasts = own.map_or(Duration::ZERO, |(_, lasts)| *lasts);
            let kept = holder
                .deadline()
                .is_none_or(|deadline| deadline <= Instant::now() + lasts + BLUR);
            self.expect(kept, key, "relies on a lease that ends earlier at the server");
        }
    }

    /// Whether a live lease uses this claim.
    pub(super) fn is_live_claim(&self, lock_id: &str) -> bool {
        let names = lock(&self.names);
        let mut holders = names.values().flat_map(Record::live);
        holders.any(|(_, key)| &*key.lock_id == lock_id)
    }

    /// The number of permits of a semaphore that are held.
    pub(super) fn live_permits(&self, semaphore: &str) -> usize {
        let names = lock(&self.names);
        let is_permit = |name: &str| permit_id::parts(name).is_some_and(|(of, _)| of == semaphore);
        let permits = names.iter().filter(|(name, _)| is_permit(name));
        permits.map(|(_, record)| record.live().count()).sum()
    }

    /// Whether a caller has had a hold on the claim.
    pub(super) fn has_begun(&self, lock_id: &str) -> bool {
        lock(&self.begun).contains(lock_id)
    }

    fn is_reserved(&self, key: &LeaseId, token: i64) -> bool {
        let reserved = lock(&self.reserved);
        let blocks = reserved.get(key);
        blocks.is_some_and(|blocks| blocks.iter().any(|block| block.contains(&token)))
    }

    fn expect(&self, holds: bool, key: &LeaseId, breach: &str) {
        if !holds {
            self.breach(format!("hold of {} by {} {breach}", key.name, key.lock_id));
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
    /// Whether a detached lease keeps the lock.
    fn is_detached(&self) -> bool {
        self.detached
            .as_ref()
            .is_some_and(|(_, until)| Instant::now() + BLUR < *until)
    }

    /// The live holds. A hold whose work has succeeded relies on its lease no longer, and only waits for its mark.
    fn live(&self) -> impl Iterator<Item = (Arc<Lease>, &LeaseId)> {
        let holders = self.holders.iter();
        let live = holders.filter_map(|holder| Some((holder.lease.upgrade()?, &holder.key)));
        live.filter(|(lease, _)| is_live(lease) && !lease.is_ending())
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
