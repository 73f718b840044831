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
        clock_is_sound: bool,
    ) {
        let mut names = lock(&self.names);
        let record = names.entry(Arc::clone(&lease.key.name)).or_default();
        let token = lease.token.get();
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
        let handed_over = lease.claimed() < lease.acquired;
        self.handed_over.fetch_add(handed_over.into(), Relaxed);
        let before = record.last_tokens.insert(process, token).unwrap_or(0);
        self.expect(
            before < token,
            lease,
            "has a smaller token than one before in its process",
        );
        if clock_is_sound {
            self.expect(
                record.last_token < token,
                lease,
                "has a smaller token than one before",
            );
            self.expect(!record.is_held(), lease, "begins while another believes to hold");
            let kept = record.kept_until.is_some_and(|until| Instant::now() < until);
            self.expect(!kept, lease, "begins within the minimum hold of another");
        }
        record.last_token = record.last_token.max(token);
        let min_hold = lease.terms.min_hold.saturating_sub(BLUR);
        record.kept_until = granted.map(|at| at + min_hold);
        record.holders.retain(|holder| holder.strong_count() > 0);
        record.holders.push(Arc::downgrade(lease));
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
    fn is_held(&self) -> bool {
        self.holders
            .iter()
            .any(|holder| holder.upgrade().is_some_and(|lease| is_live(&lease)))
    }
}

/// Whether its holder believes to hold. Unlike the library's own question, asking changes nothing.
pub(super) fn is_live(lease: &Lease) -> bool {
    lease.deadline().is_some_and(|deadline| Instant::now() < deadline)
}
