use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Lease;
use crate::store::LeaseId;
use crate::sync::lock;

/// Times are whole milliseconds at the server, and its clock drifts.
const BLUR: Duration = Duration::from_millis(50);

/// Who holds what, as the holders themselves believe.
#[derive(Default)]
pub(super) struct Ledger {
    names: Mutex<HashMap<Arc<str>, Record>>,
    /// The tokens that the server has set aside for each claim; more than once if a request of it came very late.
    reserved: Mutex<HashMap<Arc<str>, Vec<RangeInclusive<i64>>>>,
    /// Claims that an operator has ended, and when.
    forced: Mutex<HashMap<Arc<str>, Instant>>,
    /// Claims that have been somebody's hold.
    begun: Mutex<HashSet<Arc<str>>>,
    breaches: Mutex<Vec<String>>,
    pub(super) holds: AtomicU64,
    /// Those of them that came from another caller in the process.
    pub(super) handed_over: AtomicU64,
}

#[derive(Default)]
struct Record {
    holders: Vec<Weak<Lease>>,
    last_token: i64,
    /// The last token of each process.
    last_tokens: HashMap<usize, i64>,
    tokens: HashSet<i64>,
    /// Nobody else may hold the lock before.
    kept_until: Option<Instant>,
    /// The claim of a process of DistributedLock.MongoDB, and until when that counts on it.
    neighbour: Option<(Arc<str>, Instant)>,
}

/// What a simulation promises about its holds.
#[derive(Clone, Copy)]
pub(super) struct Promise {
    pub(super) has_sound_clock: bool,
    /// Nothing keeps a holder from learning at its next renewal that an operator has ended its lease.
    pub(super) tells_of_forced_ends: bool,
}

impl Ledger {
    /// The server has let a claim in, or has found it there.
    pub(super) fn reserve(&self, key: &LeaseId, tokens: RangeInclusive<i64>) {
        let mut reserved = lock(&self.reserved);
        let blocks = reserved.entry(Arc::clone(&key.lock_id)).or_default();
        if !blocks.contains(&tokens) {
            blocks.push(tokens);
        }
    }

    /// A call has got the lock. With a server clock that runs ahead, leases end too early there: then a token
    /// is the only protection, and only its uniqueness and the order within a process can be promised.
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
        self.expect(
            record.tokens.insert(token),
            lease,
            "has the token of another hold",
        );
        self.expect(
            self.is_reserved(lease),
            lease,
            "has a token that is not reserved for its claim",
        );
        if !is_live(lease) {
            return;
        }
        self.holds.fetch_add(1, Relaxed);
        let handed_over = lease.claim_acquired() < lease.acquired;
        self.handed_over.fetch_add(handed_over.into(), Relaxed);
        let before = record.last_tokens.insert(process, token).unwrap_or(0);
        self.expect(
            before < token,
            lease,
            "has a smaller token than one before in its process",
        );
        // Of a claim that was ended by force its process may hear only later that it was acquired.
        let is_forced = lock(&self.forced).contains_key(&lease.key.lock_id);
        if promise.has_sound_clock && !is_forced {
            self.expect(
                record.last_token < token,
                lease,
                "has a smaller token than one before",
            );
            self.expect(
                !self.is_held(record, promise),
                lease,
                "begins while another believes to hold",
            );
            let kept = record.kept_until.is_some_and(|until| Instant::now() < until);
            self.expect(!kept, lease, "begins within the minimum hold of another");
        }
        record.last_token = record.last_token.max(token);
        let min_hold = lease.options.min_hold.saturating_sub(BLUR);
        record.kept_until = granted.filter(|_| !is_forced).map(|at| at + min_hold);
        record.holders.retain(|holder| holder.strong_count() > 0);
        record.holders.push(Arc::downgrade(lease));
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
                    Some(ended) => promise.tells_of_forced_ends && is_told(&lease, *ended),
                })
    }

    /// An operator has ended whatever lease there was.
    pub(super) fn forced(&self, name: &str, lock_id: Option<Arc<str>>) {
        if let Some(record) = lock(&self.names).get_mut(name) {
            record.kept_until = None;
        }
        lock(&self.forced).extend(lock_id.map(|id| (id, Instant::now())));
    }

    /// A process of DistributedLock.MongoDB holds the lock until then.
    pub(super) fn neighbour_holds(&self, name: &Arc<str>, id: &Arc<str>, until: Instant) {
        let mut names = lock(&self.names);
        let record = names.entry(Arc::clone(name)).or_default();
        let is_new = record.neighbour.as_ref().is_none_or(|(before, _)| before != id);
        let promise = Promise {
            has_sound_clock: true,
            tells_of_forced_ends: false,
        };
        if is_new && self.is_held(record, promise) {
            self.breach(format!("a neighbour gets {name} while another believes to hold"));
        }
        record.neighbour = Some((Arc::clone(id), until));
    }

    pub(super) fn neighbour_ends(&self, name: &str) {
        if let Some(record) = lock(&self.names).get_mut(name) {
            record.neighbour = None;
        }
    }

    /// The server's document must keep a lease for as long as its holder counts on it.
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
            self.expect(kept, &holder, "counts on a lease that ends before at the server");
        }
    }

    /// Whether somebody believes to hold by this claim.
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
                lease.owner()
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

/// Whether the holder must have learned by now that its lease was ended: at its next renewal, or at the first look after
/// it has been handed over.
fn is_told(lease: &Lease, ended: Instant) -> bool {
    let renewed = lease.options.renew_interval + Duration::from_secs(1) + BLUR;
    lease.options.max_hold.is_none() && Instant::now() > ended + renewed
}

/// Whether its holder believes to hold. Unlike the library's own question, asking changes nothing.
pub(super) fn is_live(lease: &Lease) -> bool {
    lease.deadline().is_some_and(|deadline| Instant::now() < deadline)
}
