//! A server that rejects commands for overload, as MongoDB 8.2 and later do, and what must hold meanwhile.
//!
//! A rejected command has written nothing. The driver repeats it after pauses of its own, during which its process hears
//! nothing. Only the driver can give an error labels, so a rejection has none here, and its code alone says what it is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use mongodb::error::Error;
use tokio::time::{Instant, sleep};

use super::fleet::World;
use super::link::Link;
use super::order::Order;
use super::pool::Connection;
use super::server::Command;
use super::{between, chance, errors};
use crate::lease::{Lease, margin};
use crate::store::LeaseId;
use crate::sync::lock;
use crate::timing::{OVERLOAD_MEMORY, RENEWAL_LIMIT_MAX, RENEWAL_LIMIT_MIN};

/// The longest time for which all commands are rejected and no lease may be lost: a third of the shortest lease has passed
/// before, and the last third is for rejections of a part of the commands.
pub(super) const SHORT: Duration = Duration::from_secs(2);

/// The time for which at most half of the commands are rejected before and after a time in which all are: all leases are
/// renewed in it.
const RECOVERY: Duration = Duration::from_secs(5);

/// The time after which a process restrains its acquire requests while all commands are rejected.
const RESTRAINED_AFTER: Duration = Duration::from_secs(5);

/// The largest number of acquire requests and queries about locks of one process in a second after that. One that does not
/// restrain them sends two for each name that a caller waits for.
const MOST_ASKED: u32 = 20;

/// The time after the last request or release of a claim from which on another release of it is a late one: releases that are
/// repeated have shorter pauses.
const LATE: Duration = Duration::from_secs(8);

/// The longest time of a request: the driver's pauses, and the repetitions of a command that several calls have in common.
const REQUEST: Duration = Duration::from_millis(1500);

/// The number of times that the driver repeats a rejected command by default.
const DRIVER_RETRIES: u32 = 2;

/// What the server rejects, and what each process has learned of it.
#[derive(Default)]
pub(super) struct Overload {
    /// The number of commands in a thousand that the server rejects.
    rate: AtomicU32,
    /// Whether the rejections have the labels on which the driver repeats a command.
    is_labelled: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The time since which all commands are rejected.
    total_since: Option<Instant>,
    /// The end of the last time in which all commands were rejected for longer than [`SHORT`].
    long_until: Option<Instant>,
    processes: HashMap<usize, Learned>,
    /// The time at which a hold of a process last began of whose lease a third was over.
    begun_late: HashMap<(usize, Arc<str>), Instant>,
    claims: HashMap<LeaseId, Asked>,
}

/// What one process has learned and sent.
#[derive(Default)]
struct Learned {
    /// The time at which it last got a rejection.
    rejected: Option<Instant>,
    /// The beginning of a second, and the number of requests in it, while all commands are rejected.
    asked: Option<(Instant, u32)>,
}

/// What a process has asked for with one claim.
struct Asked {
    /// The number of requests without a reply, and of those that were not rejected.
    not_rejected: u32,
    /// The time of the last request, of its end, or of the last release.
    last: Instant,
}

impl Overload {
    /// Has the server reject this number of commands in a thousand from now on.
    fn set(&self, rate: u32, is_labelled: bool) {
        let state = &mut *lock(&self.state);
        let now = Instant::now();
        if let Some(since) = state.total_since.take_if(|_| rate < 1000)
            && now - since > SHORT
        {
            state.long_until = Some(now);
        }
        if rate == 1000 {
            state.total_since.get_or_insert(now);
        }
        self.rate.store(rate, Relaxed);
        self.is_labelled.store(is_labelled, Relaxed);
    }

    fn rejects(&self, rng: &mut Rng) -> bool {
        chance(rng, self.rate.load(Relaxed))
    }

    /// Notes a hold that begins whose lease lasts for this time at the server: after rejections, little of the lease may be left
    /// when its process learns of it. Returns what is wrong about it.
    pub(super) fn begins(&self, process: usize, lease: &Lease, lasts: Option<Duration>) -> Option<String> {
        if lease.remaining() < lease.options.expiry * 2 / 3 {
            let names = lease.keys().iter().map(|key| (process, Arc::clone(&key.name)));
            let now = Instant::now();
            lock(&self.state).begun_late.extend(names.map(|name| (name, now)));
        }
        let (remaining, lasts) = (lease.remaining(), lasts?);
        (remaining + margin(lease.options.expiry) + REQUEST < lasts)
            .then(|| format!("{process} begins with {remaining:?} of a lease that lasts for {lasts:?}"))
    }

    /// Whether a lease of this process for these names may be lost that began after this time: all commands were rejected for
    /// long, or its hold has begun late.
    pub(super) fn may_lose(&self, process: usize, names: &[Arc<str>], since: Option<Instant>) -> bool {
        let state = lock(&self.state);
        let is_since = |at: Instant| since.is_none_or(|since| at >= since);
        let begun_late = |name: &Arc<str>| state.begun_late.get(&(process, Arc::clone(name))).copied();
        let is_long = |total: Instant| total.elapsed() > SHORT;
        let of_all = state.total_since.is_some_and(is_long) || state.long_until.is_some_and(is_since);
        of_all || names.iter().filter_map(begun_late).any(is_since)
    }

    /// Whether the process has got a rejection within the time for which it remembers one.
    pub(super) fn is_known_to(&self, process: usize) -> bool {
        let state = lock(&self.state);
        let last = state.processes.get(&process).and_then(|learned| learned.rejected);
        last.is_some_and(|last| last.elapsed() < OVERLOAD_MEMORY)
    }

    /// Notes that a command is sent, and returns what is wrong about it.
    fn sent(&self, process: usize, order: &Order) -> Option<String> {
        let state = &mut *lock(&self.state);
        match order.kind {
            Command::Claim => {
                for key in &order.keys {
                    state.claim_sent(key);
                }
                state.asked(process)
            }
            Command::Look => state.asked(process),
            Command::Renew => is_split(order).then(|| {
                let names = order.names();
                format!(
                    "{process} renews {names} in a smaller group, though the server only rejects commands"
                )
            }),
            Command::Withdraw => {
                let late = order.keys.iter().find(|key| state.is_late_release(key))?;
                Some(format!(
                    "{process} releases {late:?} late, though each of its requests was rejected"
                ))
            }
            Command::Release => None,
        }
    }

    /// Notes that a command has ended.
    fn ended(&self, process: usize, order: &Order, is_rejected: bool) {
        let state = &mut *lock(&self.state);
        if is_rejected {
            let learned = state.processes.entry(process).or_default();
            learned.rejected = Some(Instant::now());
        }
        if matches!(order.kind, Command::Claim) {
            for key in &order.keys {
                state.claim_ended(key, is_rejected);
            }
        }
    }
}

impl State {
    fn claim_sent(&mut self, key: &LeaseId) {
        let now = Instant::now();
        let claim = self.claims.entry(key.clone()).or_insert(Asked {
            not_rejected: 0,
            last: now,
        });
        claim.not_rejected += 1;
        claim.last = now;
    }

    fn claim_ended(&mut self, key: &LeaseId, is_rejected: bool) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.not_rejected -= u32::from(is_rejected);
            claim.last = Instant::now();
        }
    }

    /// Whether a release is one for a request that may take effect late, although the server has rejected each.
    fn is_late_release(&mut self, key: &LeaseId) -> bool {
        let Some(claim) = self.claims.get_mut(key) else {
            return false;
        };
        let is_late = claim.not_rejected == 0 && claim.last.elapsed() > LATE;
        claim.last = Instant::now();
        is_late
    }

    /// Counts the acquire requests and queries of a process while all commands are rejected.
    fn asked(&mut self, process: usize) -> Option<String> {
        self.total_since
            .filter(|since| since.elapsed() > RESTRAINED_AFTER)?;
        let learned = self.processes.entry(process).or_default();
        let (begun, number) = learned.asked.get_or_insert((Instant::now(), 0));
        if begun.elapsed() > Duration::from_secs(1) {
            (*begun, *number) = (Instant::now(), 0);
        }
        *number += 1;
        (*number == MOST_ASKED + 1)
            .then(|| format!("{process} asks for locks {number} times in a second, though all is rejected"))
    }
}

/// Whether a renewal has the short limit of one in a smaller group.
fn is_split(order: &Order) -> bool {
    let shortest = Duration::from_millis(order.shortest_expiry().unsigned_abs());
    order.limit < (shortest / 6).clamp(RENEWAL_LIMIT_MIN, RENEWAL_LIMIT_MAX)
}

/// One command in flight, for the checks; one that is dropped has no reply.
pub(super) struct Noted<'a> {
    link: &'a Link,
    order: Order,
}

impl Noted<'_> {
    pub(super) fn ended(self, is_rejected: bool) {
        let overload = &self.link.server.overload;
        overload.ended(self.link.process.number, &self.order, is_rejected);
    }
}

impl Link {
    /// How often the driver of a process repeats a rejected command; that of a client that this library has made never does.
    pub(super) fn driver_retries(rng: &mut Rng) -> u32 {
        if rng.bool() { DRIVER_RETRIES } else { 0 }
    }

    /// Notes for the checks that a command is sent.
    pub(super) fn noted(&self, order: &Order) -> Option<Noted<'_>> {
        self.knobs.overload?;
        if let Some(breach) = self.server.overload.sent(self.process.number, order) {
            self.server.trace(|| breach.clone());
            self.server.ledger.breach(breach);
        }
        let order = order.clone();
        Some(Noted { link: self, order })
    }

    /// Sends a command until the server does not reject it, as often as the driver does; an error if it is rejected each time.
    /// The command has no connection during the driver's pauses.
    pub(super) async fn admitted(&self, connection: &mut Option<Connection>) -> Result<(), Error> {
        if self.knobs.overload.is_none() {
            return Ok(());
        }
        let mut repeats = 0;
        while self.server.overload.rejects(&mut self.rng()) {
            sleep(self.between(0, 4)).await;
            if repeats == self.driver_retries || !self.server.overload.is_labelled.load(Relaxed) {
                return Err(errors::command(errors::OVERLOADED));
            }
            repeats += 1;
            *connection = None;
            sleep(self.between(0, 100 << repeats)).await;
            *connection = Some(self.connection().await);
        }
        Ok(())
    }
}

impl World {
    /// Has the server reject parts of the commands, and all of them for no longer than this.
    pub(super) async fn overload(self: Arc<Self>, longest: Duration) {
        let rng = &mut self.plan.rng(1 << 38);
        let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        while !self.is_over() {
            match rng.u8(0..6) {
                0 => self.reject(0, between(rng, 0, 3000), rng).await,
                1 => self.reject(500, between(rng, 500, 8000), rng).await,
                2 => self.reject_all(between(rng, 500, millis), rng).await,
                // The last seconds show whether requests give way.
                3 if longest > SHORT => self.reject_all(longest, rng).await,
                _ => self.reject(900, between(rng, 500, 12_000), rng).await,
            }
        }
        self.server.overload.set(0, true);
    }

    /// Has the server reject all commands for this time. All leases are renewed just before, and again after it.
    async fn reject_all(&self, lasts: Duration, rng: &mut Rng) {
        self.reject(500, RECOVERY, rng).await;
        self.reject(1000, lasts, rng).await;
        self.reject(500, RECOVERY, rng).await;
    }

    async fn reject(&self, rate: u32, lasts: Duration, rng: &mut Rng) {
        let is_labelled = chance(rng, 800);
        self.server.note(|| {
            format!("{rate} of 1000 commands are rejected for {lasts:?}, with labels: {is_labelled}")
        });
        self.server.overload.set(rate, is_labelled);
        sleep(lasts).await;
    }
}
