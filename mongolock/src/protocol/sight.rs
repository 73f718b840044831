use super::document::{Document, margin_after};
use super::text::{KEPT_PREFIX, MARK_PREFIX};
use super::value::{Ms, Name};

/// A document as a command has read it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sight {
    pub(crate) document: Document,
    /// The server's time of the command; `None` if the reply has none.
    pub(crate) now: Option<Ms>,
}

impl Sight {
    pub(crate) fn lock_id(&self) -> Option<&str> {
        self.document.lock_id.text().map(AsRef::as_ref)
    }

    /// Whether the document has this id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.lock_id() == Some(id)
    }

    /// Whether the document has the mark of this claim.
    pub(crate) fn is_marked_by(&self, claim: &str) -> bool {
        self.lock_id().and_then(|id| id.strip_prefix(MARK_PREFIX)) == Some(claim)
    }

    /// Whether this claim was released, and its minimum hold keeps the lock taken.
    pub(crate) fn is_kept_by(&self, claim: &str) -> bool {
        self.lock_id().and_then(|id| id.strip_prefix(KEPT_PREFIX)) == Some(claim)
    }

    /// The milliseconds until the lease ends: negative after its end, and `None` if that is not known.
    pub(crate) fn left(&self) -> Option<Ms> {
        Some(self.document.expires_at.date()?.saturating_sub(self.now?))
    }

    /// The milliseconds since the lock was acquired.
    pub(crate) fn held_for(&self) -> Option<Ms> {
        let held = self.now?.saturating_sub(self.document.acquired_at.date()?);
        Some(held.max(0))
    }

    /// The milliseconds until the lock is free if it is neither renewed nor released. A released lock is free whatever
    /// end its document has, because the clock that set that end may have been ahead.
    pub(crate) fn until_free(&self, margin: Ms) -> Option<Ms> {
        if self.has("") {
            return Some(0);
        }
        let margin = margin_after(&self.document.lock_id, margin);
        Some(self.left()?.saturating_add(margin).max(0))
    }

    /// Whether the lock is free at the time of the sight.
    pub(crate) fn is_free(&self, margin: Ms) -> bool {
        self.now.is_none_or(|now| self.document.is_free(now, margin))
    }
}

/// An event of the change stream for a lock. Renewals are not reported.
#[derive(Debug, Clone)]
pub(crate) struct News {
    pub(crate) name: Name,
    /// The document; without `acquiredAt` if that has not changed, and `None` if it was deleted.
    pub(crate) sight: Option<Sight>,
}
