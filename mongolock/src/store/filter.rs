use crate::{LockInfo, LockState};

/// Which locks [`LockAdmin::list`](crate::LockAdmin::list) returns: those that meet every condition that is set.
///
/// Strings are only strings: no character of a prefix or an owner has a meaning of its own.
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
    /// Every lock that has a document.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only locks whose names begin with this text.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Only locks of exactly this owner: those that it holds, and those whose lease it let run out. A released lock has
    /// no owner.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Only locks in this state.
    pub fn state(mut self, state: LockState) -> Self {
        self.state = Some(state);
        self
    }

    /// At most so many, the first in the order of the names; 0 gives none.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The conditions without the limit, by the rules of the query in `store/admin.rs`.
    pub(crate) fn admits(&self, info: &LockInfo) -> bool {
        let prefix = self.prefix.as_deref();
        prefix.is_none_or(|prefix| info.name.starts_with(prefix))
            && (self.owner.is_none() || self.owner == info.owner)
            && self.state.is_none_or(|state| state == info.state)
    }
}
