use crate::{LockInfo, LockState};

/// The conditions for the locks that [`LockAdmin::list`](crate::LockAdmin::list) and
/// [`LockAdmin::stream`](crate::LockAdmin::stream) return. A lock must meet all that are set.
///
/// Prefixes and owners are compared as plain strings: no character has a special meaning.
///
/// ```
/// use mongolock::{LockFilter, LockState};
///
/// let stuck = LockFilter::new().prefix("report:").state(LockState::Expired).limit(100);
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a filter does nothing until it is passed to `LockAdmin::list` or `LockAdmin::stream`"]
pub struct LockFilter {
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

    /// Whether a lock meets the conditions, by the rules of the query in `store/admin.rs`; the limit is not checked.
    pub(crate) fn admits(&self, info: &LockInfo) -> bool {
        let prefix = self.prefix.as_deref();
        prefix.is_none_or(|prefix| info.name.starts_with(prefix))
            && (self.owner.is_none() || self.owner == info.owner)
            && self.state.is_none_or(|state| state == info.state)
    }
}
