use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::ledger::Ledger;
use crate::store::LeaseId;
use crate::store::{Answer, Ask, MemoryStore};
use crate::sync::lock;

/// The server's clock at the beginning: room for jumps back.
const HOUR: i64 = 3_600_000;

/// The server of a simulation: the protocol in memory, and what is counted there.
pub(super) struct Server {
    pub(super) memory: MemoryStore,
    pub(super) ledger: Ledger,
    /// The network and the processes work as they should.
    pub(super) calm: AtomicBool,
    /// Nothing reaches it.
    pub(super) silent: AtomicBool,
    nothing_fails: bool,
    commands: [AtomicU64; 4],
    grants: Mutex<HashMap<Arc<str>, Grant>>,
    digest: AtomicU64,
    traced: bool,
    start: Instant,
}

struct Grant {
    lock_id: Arc<str>,
    last_token: i64,
    at: Instant,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Command {
    Claim,
    Renew,
    Release,
    Withdraw,
}

impl Server {
    pub(super) fn new(calm: bool) -> Self {
        let memory = MemoryStore::new();
        memory.jump(HOUR);
        Self {
            memory,
            ledger: Ledger::default(),
            calm: AtomicBool::new(calm),
            silent: AtomicBool::new(false),
            nothing_fails: calm,
            commands: Default::default(),
            grants: Mutex::default(),
            digest: AtomicU64::new(0),
            traced: std::env::var_os("MONGOLOCK_SEED").is_some(),
            start: Instant::now(),
        }
    }

    pub(super) fn claim(&self, key: &LeaseId, ask: Ask) -> Answer {
        let before = self.memory.claimed_by(&key.name);
        let answer = self.memory.claim(key, ask);
        if let Answer::Mine { last_token, .. } = &answer {
            if self.nothing_fails && before.is_some_and(|id| id != key.lock_id) {
                self.ledger
                    .breach(format!("a lease of {} ran out though nothing failed", key.name));
            }
            let last_token = last_token.get();
            self.ledger
                .reserve(key, last_token - (ask.tokens - 1)..=last_token);
            self.granted(key, ask, last_token);
        }
        answer
    }

    pub(super) fn count(&self, command: Command, process: usize, names: &[LeaseId]) {
        self.commands[command as usize].fetch_add(1, Relaxed);
        self.note(|| {
            let mut names: Vec<&str> = names.iter().map(|key| &*key.name).collect();
            names.sort_unstable();
            format!("{command:?} of {process} arrives: {}", names.join(" "))
        });
    }

    /// Claims, renewals, releases and withdrawals.
    pub(super) fn counts(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|command| self.commands[command].load(Relaxed))
    }

    /// A fingerprint of everything that was noted, and when.
    pub(super) fn digest(&self) -> u64 {
        self.digest.load(Relaxed)
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        let what = format!("{:>10?} {}", self.start.elapsed(), what());
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        // The order within a millisecond is not always the same: tokio's own generator cannot be seeded.
        self.digest.fetch_add(hasher.finish(), Relaxed);
        if self.traced {
            println!("{what}");
        }
    }

    /// When the server let this claim in.
    pub(super) fn granted_at(&self, key: &LeaseId) -> Option<Instant> {
        let grants = lock(&self.grants);
        grants
            .get(&key.name)
            .filter(|grant| grant.lock_id == key.lock_id)
            .map(|grant| grant.at)
    }

    fn granted(&self, key: &LeaseId, ask: Ask, last_token: i64) {
        let mut grants = lock(&self.grants);
        let before = grants.get(&key.name);
        if before.is_some_and(|before| before.lock_id == key.lock_id) {
            return;
        }
        let before = before.map_or(0, |before| before.last_token);
        if last_token - ask.tokens < before {
            self.ledger.breach(format!(
                "tokens of {} up to {last_token} after {before}",
                key.name
            ));
        }
        let grant = Grant {
            lock_id: Arc::clone(&key.lock_id),
            last_token,
            at: Instant::now(),
        };
        grants.insert(Arc::clone(&key.name), grant);
    }
}
