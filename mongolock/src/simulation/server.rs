use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::Instant;

use super::blocks::Blocks;
use super::handles::Handles;
use super::ledger::Ledger;
use super::order::{Order, token_in};
use super::overload::Overload;
use super::plan::Scenario;
use super::process::number_in;
use super::tenure::Tenures;
use super::turns::Turns;
use super::works::Works;
use crate::permit_id;
use crate::protocol::{Ms, Reply, Row};
use crate::store::LeaseId;
use crate::store::{MemoryStore, ProviderMark, WaiterEntry, duration, millis};
use crate::sync::lock;

/// The server's clock at the beginning in milliseconds, which leaves room for jumps back.
const HOUR: i64 = 3_600_000;

/// The date at the beginning, in milliseconds: periods begin at fixed dates, and a seed must repeat the same run.
const BEGINNING: i64 = 1_800_000_000_000;

/// The server of a simulation: the protocol in memory, and what is counted there.
pub(super) struct Server {
    pub(super) memory: MemoryStore,
    pub(super) ledger: Ledger,
    /// Whether there are no more faults of the network and the processes.
    pub(super) calm: AtomicBool,
    /// Whether no request reaches the server.
    pub(super) silent: AtomicBool,
    /// Whether a request that does not reach the server ends with an error instead of no reply.
    pub(super) refuses: AtomicBool,
    pub(super) blocks: Blocks,
    pub(super) tenures: Tenures,
    pub(super) turns: Turns,
    pub(super) works: Works,
    pub(super) handles: Handles,
    pub(super) overload: Overload,
    /// The number of changes of the primary.
    term: AtomicU64,
    no_primary: AtomicBool,
    scenario: Scenario,
    has_sound_clock: bool,
    /// The smallest and the greatest takeover margin of the processes.
    takeover_margins: (Duration, Duration),
    commands: [AtomicU64; 5],
    grants: Mutex<HashMap<Arc<str>, Grant>>,
    /// The claims that were written and not confirmed, until a majority has them.
    unconfirmed: Mutex<HashMap<LeaseId, Instant>>,
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
    Look,
}

impl Server {
    pub(super) fn new(scenario: Scenario, takeover_margins: (Duration, Duration)) -> Self {
        let memory = MemoryStore::new().starting_at(DateTime::from_millis(BEGINNING));
        memory.jump(HOUR);
        Self {
            memory,
            ledger: Ledger::default(),
            calm: AtomicBool::new(scenario == Scenario::Calm),
            silent: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            blocks: Blocks::default(),
            tenures: Tenures::default(),
            turns: Turns::default(),
            works: Works::default(),
            handles: Handles::default(),
            overload: Overload::default(),
            term: AtomicU64::new(0),
            no_primary: AtomicBool::new(false),
            scenario,
            has_sound_clock: scenario.has_sound_clock(),
            takeover_margins,
            commands: Default::default(),
            grants: Mutex::default(),
            unconfirmed: Mutex::default(),
            digest: AtomicU64::new(0),
            traced: std::env::var_os("MONGOLOCK_SEED").is_some(),
            start: Instant::now(),
        }
    }

    pub(super) fn claim(&self, now: Ms, row: &Row, key: &LeaseId, tokens: i64, margin: Ms) -> Reply {
        let before = self.memory.claimed_by(&key.name);
        self.note_early_end(now, key, margin);
        let reply = self.memory_reply(now, row);
        self.observe(&key.name);
        if reply.has(&key.lock_id) {
            if permit_id::parts(&key.name).is_some() && self.memory.locks_of(&key.lock_id) > 1 {
                self.ledger
                    .breach(format!("the claim {} has a second permit", key.lock_id));
            }
            if self.scenario == Scenario::Calm && before.is_some_and(|id| id != key.lock_id) {
                self.ledger
                    .breach(format!("a lease of {} ran out though nothing failed", key.name));
            }
            let last_token = token_in(&reply);
            self.ledger.reserve(key, last_token - (tokens - 1)..=last_token);
            self.granted(key, tokens, last_token, duration(self.memory.now() - now));
        }
        reply
    }

    /// Notes that a claim ends a lease early because the clock was set back after the claim had read it. Such a claim has
    /// a clock that is ahead, so it is not a fault of the protocol.
    fn note_early_end(&self, now: Ms, key: &LeaseId, margin: Ms) {
        let ahead = duration(now - self.memory.now());
        let lease = self.memory.lease_of(&key.name, margin);
        let ended = lease.filter(|(id, lasts)| *id != key.lock_id && !lasts.is_zero() && *lasts <= ahead);
        if let Some((id, _)) = ended {
            self.ledger.forced(&key.name, Some(id));
        }
    }

    /// Notes which claim has the lock, and checks that the lease does not end while its holder still relies on it.
    pub(super) fn observe(&self, name: &str) {
        let (least, greatest) = self.takeover_margins;
        if self.has_sound_clock {
            self.ledger
                .check_end(name, self.memory.lease_of(name, millis(least)).as_ref());
        }
        self.tenures
            .observe(name, self.memory.lease_of(name, millis(greatest)));
    }

    /// Checks that a renewal leaves no lease that lasts longer than any renewal can have granted.
    pub(super) fn check_renewal(&self, now: Ms, key: &LeaseId, expiry: Ms) {
        let lease = self.memory.lease_of(&key.name, 0);
        let end = lease.map_or(now, |(_, lasts)| self.memory.now() + millis(lasts));
        let lasts = end - now;
        if lasts > expiry + 60_000 {
            self.ledger
                .breach(format!("a renewal of {} leaves a lease of {lasts} ms", key.name));
        }
    }

    /// Adds documents of processes that have died while they waited for this name.
    pub(super) fn add_expired_waiters(&self, name: &str, number: usize) {
        let expired = |_| WaiterEntry {
            name: Arc::from(name),
            provider: ProviderMark::random(),
            owner: Arc::from("expired"),
            waited: None,
            time_slot: Duration::from_millis(20),
            last: None,
            keeps_place: false,
        };
        let expired: Vec<WaiterEntry> = (0..number).map(expired).collect();
        self.memory.move_to_end(&expired);
    }

    /// Whether a process has a place in the line for a lock.
    pub(super) fn is_in_line(&self, name: &Arc<str>, process: usize) -> bool {
        let (lines, owner) = (
            self.memory.lines(std::slice::from_ref(name)),
            format!("p{process}"),
        );
        let mut waiters = lines.get(name).into_iter().flatten();
        waiters.any(|waiter| waiter.owner == owner)
    }

    /// Whether every process may acquire this lock.
    pub(super) fn is_free(&self, name: &str) -> bool {
        let (_, greatest) = self.takeover_margins;
        self.memory.lease_of(name, millis(greatest)).is_none()
    }

    /// The time since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn term(&self) -> u64 {
        self.term.load(Relaxed)
    }

    pub(super) fn is_primary(&self) -> bool {
        !self.no_primary.load(Relaxed)
    }

    pub(super) fn step_down(&self) {
        self.term.fetch_add(1, Relaxed);
        self.no_primary.store(true, Relaxed);
    }

    pub(super) fn step_up(&self) {
        self.no_primary.store(false, Relaxed);
    }

    pub(super) fn count(&self, order: &Order, process: usize) {
        self.commands[order.kind as usize].fetch_add(1, Relaxed);
        self.note(|| format!("{:?} of {process} arrives: {}", order.kind, order.names()));
    }

    /// The numbers of acquire requests, renewals, releases, background releases and looks.
    pub(super) fn counts(&self) -> [u64; 5] {
        [0, 1, 2, 3, 4].map(|command| self.commands[command].load(Relaxed))
    }

    /// A digest of everything that was noted, with the times.
    pub(super) fn digest(&self) -> u64 {
        self.digest.load(Relaxed)
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        let what = format!("{:>10?} {}", self.start.elapsed(), what());
        let what = without_labels(&what);
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        // The order within a millisecond is not always the same: tokio's own generator cannot be seeded.
        self.digest.fetch_add(hasher.finish(), Relaxed);
        if self.traced {
            println!("{what}");
        }
    }

    /// Prints what a traced run does inside the server. The digest is without it: which of two requests comes first within a
    /// millisecond is not always the same.
    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>10?} {}", self.start.elapsed(), what());
        }
    }

    /// Notes that claims were written whose sender learns that no majority has confirmed them.
    pub(super) fn unconfirmed(&self, keys: &[LeaseId], until: Instant) {
        lock(&self.unconfirmed).extend(keys.iter().map(|key| (key.clone(), until)));
    }

    /// Whether a majority read shows what this claim has written.
    pub(super) fn is_confirmed(&self, key: &LeaseId) -> bool {
        lock(&self.unconfirmed)
            .get(key)
            .is_none_or(|until| *until <= Instant::now())
    }

    /// The time at which the lease of this claim began.
    pub(super) fn granted_at(&self, key: &LeaseId) -> Option<Instant> {
        let grants = lock(&self.grants);
        grants
            .get(&key.name)
            .filter(|grant| grant.lock_id == key.lock_id)
            .map(|grant| grant.at)
    }

    /// Notes that this claim has the lease of the one before it, and with it the lock.
    pub(super) fn passed_on(&self, key: &LeaseId) {
        self.trace(|| format!("{} passes on to {}", key.name, key.lock_id));
        if let Some(grant) = lock(&self.grants).get_mut(&key.name) {
            grant.lock_id = Arc::clone(&key.lock_id);
        }
    }

    /// Notes that this claim has resumed a lease with this token, if that is not known yet.
    pub(super) fn resumed(&self, key: &LeaseId, token: i64) {
        let before = lock(&self.grants)
            .get(&key.name)
            .filter(|grant| grant.lock_id != key.lock_id)
            .map(|grant| grant.last_token);
        let Some(before) = before else { return };
        if token <= before {
            self.ledger.breach(format!(
                "the lease of {} is resumed with {token} after {before}",
                key.name
            ));
        }
        self.passed_on(key);
        if let Some(grant) = lock(&self.grants).get_mut(&key.name) {
            grant.last_token = token;
        }
    }

    fn granted(&self, key: &LeaseId, tokens: i64, last_token: i64, late: Duration) {
        let mut grants = lock(&self.grants);
        let before = grants.get(&key.name);
        if before.is_some_and(|before| before.lock_id == key.lock_id) {
            return;
        }
        let (name, process) = (&key.name, number_in(&key.lock_id));
        self.trace(|| format!("{name} goes to {process:?} until {last_token}"));
        if self.scenario == Scenario::Turns
            && let Some(process) = number_in(&key.lock_id)
        {
            for breach in self.turns.acquired(&key.name, process) {
                self.ledger.breach(breach);
            }
        }
        let before = before.map_or(0, |before| before.last_token);
        if last_token - tokens < before {
            self.ledger.breach(format!(
                "tokens of {} up to {last_token} after {before}",
                key.name
            ));
        }
        let grant = Grant {
            lock_id: Arc::clone(&key.lock_id),
            last_token,
            at: Instant::now() - late,
        };
        grants.insert(Arc::clone(&key.name), grant);
    }
}

/// A token without the date at which a simulation begins.
pub(super) fn shown_token(token: i64) -> i64 {
    let first = (BEGINNING - 1000) * 1000;
    if token > first { token - first } else { token }
}

/// The driver prints the labels of an error as a set, in random order: the same run must give the same digest.
fn without_labels(text: &str) -> String {
    let mut parts = text.split("labels: {");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str(part.split_once('}').map_or("", |(_, after)| after));
    }
    kept
}
