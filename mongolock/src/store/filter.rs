use crate::{LockInfo, LockState};

/// The conditions for the locks that [`LockAdmin::list`](crate::LockAdmin::list),
/// [`LockAdmin::stream`](crate::LockAdmin::stream) and [`LockAdmin::events`](crate::LockAdmin::events) return. A lock must meet
/// all that are set.
///
/// Prefixes and owners are compared as plain strings: no character has a special meaning.
///
/// ```
/// use mongolock::{LockFilter, LockState};
///
/// let stuck = LockFilter::new().prefix("report:").state(LockState::Expired).limit(100);
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a filter does nothing until it is passed to a method of `LockAdmin`"]
pub struct LockFilter {
    pub(crate) name: Option<String>,
    pub(crate) prefix: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) state: Option<LockState>,
    pub(crate) limit: Option<u32>,
}

impl LockFilter {
    /// A filter without conditions: every lock that has a document.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects only the lock with exactly this name, or the permits of the semaphore with this name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Selects only locks whose names begin with this text.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Selects only locks of exactly this owner: those that it holds, and those whose lease expired without a release.
    /// A released lock has no owner.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Selects only locks in this state.
    pub fn state(mut self, state: LockState) -> Self {
        self.state = Some(state);
        self
    }

    /// Returns at most this number of locks, the first ones in the order of their names; 0 returns none.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether the lock or permit that is shown with this name meets the conditions about names.
    pub(crate) fn admits_name(&self, name: &str) -> bool {
        let (own, prefix) = (self.name.as_deref(), self.prefix.as_deref());
        own.is_none_or(|own| own == name) && prefix.is_none_or(|prefix| name.starts_with(prefix))
    }

    /// Whether a lock meets the conditions, by the rules of the query in `store/look.rs`; the limit is not checked.
    pub(crate) fn admits(&self, info: &LockInfo) -> bool {
        self.admits_name(&info.name)
            && (self.owner.is_none() || self.owner == info.owner)
            && self.state.is_none_or(|state| state == info.state)
    }
}
