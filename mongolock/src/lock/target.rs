//! What a lock acquires.

use std::sync::Arc;
use std::time::SystemTime;

use crate::LockError;
use crate::engine::Lease;
use crate::few::Few;
use crate::name::RenderedName;
use crate::options::{MOST_NAMES, ensure};
use crate::permit_id::{self, MOST_PERMITS};

/// The lock of a name, the locks of several names, or a permit of a semaphore.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The names in their order, each once. Only a set without names, which [`check`](Self::check) refuses, has none.
    pub(super) names: Few<RenderedName>,
    /// The index of the name that represents the lock or the set in errors, metrics and spans: the one that the caller has written first.
    pub(super) title: usize,
    /// The number of permits, if the name is that of a semaphore.
    pub(crate) permits: Option<u32>,
}

impl Target {
    pub(crate) fn one(name: RenderedName, permits: Option<u32>) -> Self {
        Self {
            names: Few::One([name]),
            title: 0,
            permits,
        }
    }

    pub(crate) fn several(mut names: Vec<RenderedName>) -> Self {
        let title = names.first().map(|title| Arc::clone(&title.text));
        // The sort is stable: of equal names the first one as written stays. One that could not be rendered comes before
        // them, so that it is refused.
        names.sort_by_cached_key(|name| (Arc::clone(&name.text), name.check().is_ok()));
        names.dedup_by(|later, kept| later.text == kept.text);
        let title = title.and_then(|title| names.iter().position(|name| name.text == title));
        Self {
            names: names.into_iter().collect(),
            title: title.unwrap_or(0),
            permits: None,
        }
    }

    /// The locks of the work at this scheduled time.
    pub(crate) fn at(self, tick: SystemTime) -> Self {
        let names = self.names.iter().map(|name| name.at(tick)).collect();
        Self { names, ..self }
    }

    /// Returns an error for a number or a name that breaks a rule.
    pub(super) fn check(&self) -> Result<(), LockError> {
        let permits = self.permits.unwrap_or(1);
        let bound = format_args!("it must be 1 to {MOST_PERMITS}");
        ensure((1..=MOST_PERMITS).contains(&permits), "permits", permits, bound)?;
        let reason = match self.names.len() {
            0 => "a set of locks needs at least one name".to_owned(),
            1..=MOST_NAMES => return self.names.iter().try_for_each(RenderedName::check),
            count => format!("a set of locks has {count} names, more than {MOST_NAMES}"),
        };
        let name = String::new();
        Err(LockError::InvalidName { name, reason })
    }

    /// Whether this is the lease of a hold of the name.
    pub(super) fn is_hold(&self, lease: &Lease, name: &str) -> bool {
        match self.permits {
            Some(_) => permit_id::parts(&lease.key().name).is_some_and(|(semaphore, _)| semaphore == name),
            None => lease.token_of(name).is_some(),
        }
    }
}
