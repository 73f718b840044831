//! The lines of the answer, and its JSON.

use mongodb::bson::DateTime;
use mongolock::{LockInfo, WaiterInfo};
use serde::Serialize;

use super::chain::{Held, Holder, Leads, Lock, Waiting};
use super::past::{Past, Renewals};
use crate::duration::between;
use crate::ids::{owner, shown};
use crate::json::{line, millis, rfc3339};
use crate::notes::Notes;
use crate::output::{state, taken};
use crate::text::{count, escaped, short};

/// What is known of a lock or semaphore.
pub(super) struct Answer<'a> {
    pub(super) name: &'a str,
    /// The time of the answer, by the server's clock.
    pub(super) now: DateTime,
    /// The lock and the semaphore of the name, as far as they are held.
    pub(super) locks: Vec<Lock<'a>>,
    /// Those that nobody holds and that are not free: work is marked as done, or a minimum hold is not over.
    pub(super) kept: Vec<LockInfo>,
    pub(super) waiters: Vec<WaiterInfo>,
    /// What the holders have noted.
    pub(super) notes: Notes,
    pub(super) past: Past,
}

impl Answer<'_> {
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![escaped(self.name).into_owned()];
        for kept in &self.kept {
            let permit = permit(kept.permit);
            lines.push(format!("  not free   {permit}{}", taken(kept)));
        }
        if self.locks.is_empty() && self.kept.is_empty() {
            lines.push("  nobody holds it".to_owned());
        }
        for lock in &self.locks {
            self.lock(lock, 1, &mut lines);
        }
        if let Some((usual, turns)) = self.past.usual() {
            let turns = count(u64::try_from(turns).unwrap_or(u64::MAX), "turn");
            lines.push(format!("  before     {turns} in 10m, median {}", short(usual)));
        }
        for (index, waiter) in self.waiters.iter().enumerate() {
            let field = if index == 0 { "waiters" } else { "" };
            let (owner, since) = (escaped(&waiter.owner), rfc3339(waiter.since));
            lines.push(format!("  {field:<10} {}. {owner} since {since}", index + 1));
        }
        lines
    }

    /// The holders of a lock, with so many steps before them.
    fn lock(&self, lock: &Lock<'_>, depth: usize, lines: &mut Vec<String>) {
        let indent = "  ".repeat(depth);
        for held in &lock.holders {
            let holder = held.holder;
            let permit = permit(holder.permit);
            lines.push(format!(
                "{indent}held by    {permit}{} since {} ({}), lease {}",
                escaped(owner(&holder.lock_id)),
                rfc3339(holder.since),
                short(held.age),
                short(held.remaining),
            ));
            if let Some(note) = self.notes.note(&holder.lock_id) {
                lines.push(format!("{indent}note       {}", escaped(note)));
            }
            if let Some(renewals) = self.renewals(holder, depth) {
                let every = renewals.every.map(|every| format!("every {}, ", short(every)));
                let (every, last) = (every.unwrap_or_default(), short(renewals.last));
                lines.push(format!("{indent}renewals   {every}last {last} ago"));
            }
            for waiting in &held.waits {
                let perhaps = if waiting.is_certain { "" } else { "perhaps " };
                let (name, since) = (escaped(shown(&waiting.wait.name)), short(waiting.age));
                let to = match &waiting.leads {
                    Leads::To(lock) if lock.holders.is_empty() => ", which nobody holds now",
                    Leads::To(_) => "",
                    Leads::Back { is_certain: true } => ": deadlock",
                    Leads::Back { is_certain: false } => ": perhaps a deadlock",
                    Leads::Shown => ", see above",
                };
                lines.push(format!("{indent}{perhaps}waits for {name} for {since}{to}"));
                if let Leads::To(lock) = &waiting.leads {
                    self.lock(lock, depth + 1, lines);
                }
            }
        }
    }

    /// The renewals of a holder of the lock itself. Those behind it are not asked for.
    fn renewals(&self, holder: &Holder, depth: usize) -> Option<Renewals> {
        let renewals = || self.past.renewals(holder.permit, self.now);
        (depth == 1).then(renewals)?
    }

    pub(super) fn json(&self) -> String {
        let usual = self.past.usual();
        let waiters = self.waiters.iter().map(|waiter| WaiterLine {
            owner: &waiter.owner,
            since: rfc3339(waiter.since),
            waiting_ms: millis(between(waiter.since, self.now)),
        });
        let holders = self.locks.iter().flat_map(|lock| self.holders(lock, 1));
        let kept = self.kept.iter().map(|kept| KeptLine {
            state: state(kept.state),
            permit: kept.permit,
            owner: kept.owner.as_deref(),
            remaining_ms: millis(kept.remaining),
        });
        line(&AnswerLine {
            name: self.name,
            holders: holders.collect(),
            kept: kept.collect(),
            waiters: waiters.collect(),
            turns: usual.map(|(_, turns)| turns),
            median_turn_ms: usual.map(|(usual, _)| millis(usual)),
        })
    }

    fn holders<'l>(&'l self, lock: &'l Lock<'_>, depth: usize) -> Vec<HolderLine<'l>> {
        let holder = |held: &'l Held<'_>| {
            let renewals = self.renewals(held.holder, depth);
            HolderLine {
                owner: owner(&held.holder.lock_id),
                permit: held.holder.permit,
                note: self.notes.note(&held.holder.lock_id),
                acquired_at: rfc3339(held.holder.since),
                held_ms: millis(held.age),
                remaining_ms: millis(held.remaining),
                renewed_every_ms: renewals.as_ref().and_then(|renewals| renewals.every.map(millis)),
                renewed_ms_ago: renewals.as_ref().map(|renewals| millis(renewals.last)),
                waits_for: held
                    .waits
                    .iter()
                    .map(|waiting| self.waiting(waiting, depth))
                    .collect(),
            }
        };
        lock.holders.iter().map(holder).collect()
    }

    fn waiting<'l>(&'l self, waiting: &'l Waiting<'_>, depth: usize) -> WaitingLine<'l> {
        WaitingLine {
            name: shown(&waiting.wait.name),
            since: rfc3339(waiting.wait.since),
            waiting_ms: millis(waiting.age),
            certain: waiting.is_certain,
            deadlock: match waiting.leads {
                Leads::Back { is_certain: true } => Some("certain"),
                Leads::Back { is_certain: false } => Some("perhaps"),
                Leads::To(_) | Leads::Shown => None,
            },
            holders: match &waiting.leads {
                Leads::To(lock) => Some(self.holders(lock, depth + 1)),
                Leads::Back { .. } | Leads::Shown => None,
            },
        }
    }
}

/// The number of a permit, before what is said of it.
fn permit(number: Option<u32>) -> String {
    number.map_or_else(String::new, |number| format!("permit {number}, "))
}

#[derive(Serialize)]
struct AnswerLine<'a> {
    name: &'a str,
    holders: Vec<HolderLine<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept: Vec<KeptLine<'a>>,
    waiters: Vec<WaiterLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turns: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    median_turn_ms: Option<u64>,
}

#[derive(Serialize)]
struct HolderLine<'a> {
    owner: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    acquired_at: String,
    held_ms: u64,
    remaining_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    renewed_every_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    renewed_ms_ago: Option<u64>,
    waits_for: Vec<WaitingLine<'a>>,
}

/// A lock or permit that nobody holds and that is not free.
#[derive(Serialize)]
struct KeptLine<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    remaining_ms: u64,
}

#[derive(Serialize)]
struct WaitingLine<'a> {
    name: &'a str,
    since: String,
    waiting_ms: u64,
    /// Whether the holder itself waits; its guard may be in another task otherwise.
    certain: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadlock: Option<&'static str>,
    /// Left out for a lock that the chain has before.
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<HolderLine<'a>>>,
}

#[derive(Serialize)]
struct WaiterLine<'a> {
    owner: &'a str,
    since: String,
    waiting_ms: u64,
}
