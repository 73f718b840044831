//! The locks that one read has found, as rows, and the columns that order them.

use std::collections::HashSet;
use std::time::Duration;

use clap::ValueEnum;
use mongolock::LockInfo;

use crate::json::since;
use crate::output::name_of;
use crate::show::lines;
use crate::text::escaped;

/// The column that decides the order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    /// The most waiters first
    Waiters,
    /// The oldest hold first
    Age,
    /// The lease that ends first
    Remaining,
    /// In alphabetical order
    Holder,
    /// In alphabetical order
    Name,
}

impl Column {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Waiters => Self::Age,
            Self::Age => Self::Remaining,
            Self::Remaining => Self::Holder,
            Self::Holder => Self::Name,
            Self::Name => Self::Waiters,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Waiters => "waiters",
            Self::Age => "age",
            Self::Remaining => "remaining",
            Self::Holder => "holder",
            Self::Name => "name",
        }
    }
}

/// A lock that is held. Its texts are safe for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// The name of the lock, or of the semaphore and the number of the permit.
    pub(super) name: String,
    /// What the waiters wait for: the lock, or the semaphore.
    pub(super) awaited: String,
    pub(super) holder: String,
    /// The time since the acquisition, when it was read.
    pub(super) age: Duration,
    /// The time until the lease ends, when it was read.
    pub(super) remaining: Duration,
    /// The owners of the waiters in their order.
    pub(super) waiters: Vec<String>,
    /// The note of the holder; empty if there is none.
    pub(super) note: String,
    /// What `show` says, when it was read.
    pub(super) details: Vec<String>,
}

impl Row {
    pub(super) fn of(info: &LockInfo) -> Self {
        let owner = info.owner.as_deref();
        let detached = if info.detached { " (detached)" } else { "" };
        Self {
            name: name_of(info),
            awaited: info.name.clone(),
            holder: owner.map_or_else(|| "-".into(), escaped).into_owned() + detached,
            age: since(info, info.acquired_at).unwrap_or_default(),
            remaining: info.remaining,
            waiters: info
                .waiters
                .iter()
                .map(|waiter| escaped(&waiter.owner).into_owned())
                .collect(),
            note: info.note.as_deref().map(escaped).unwrap_or_default().into_owned(),
            details: lines(info),
        }
    }

    /// Whether the name, the holder, its note or a waiter has the text in it. The text is in small letters.
    pub(super) fn has(&self, text: &str) -> bool {
        let mut shown = [&self.name, &self.holder, &self.note]
            .into_iter()
            .chain(&self.waiters);
        text.is_empty() || shown.any(|shown| shown.to_lowercase().contains(text))
    }
}

/// What one read has found.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) rows: Vec<Row>,
    /// Whether there are more.
    pub(super) is_cut: bool,
    /// The number of documents that cannot be read as a lock.
    pub(super) damaged: u64,
}

impl Locks {
    /// The number of waiters. Those for a semaphore are in the row of each of its permits, and count once.
    pub(super) fn waiters(&self) -> usize {
        let mut all = HashSet::new();
        for row in &self.rows {
            all.extend(row.waiters.iter().map(|owner| (&row.awaited, owner)));
        }
        all.len()
    }
}
