use std::cmp::Ordering;

use super::text::is_claim;
use super::value::{Ms, Value};

/// The fields of a lock's document.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Document {
    pub(crate) lock_id: Value,
    pub(crate) acquired_at: Value,
    pub(crate) expires_at: Value,
    pub(crate) token: Value,
}

impl Document {
    /// Whether all fields have their types.
    pub(crate) fn is_sound(&self) -> bool {
        matches!(
            self,
            Self {
                lock_id: Value::Text(_),
                acquired_at: Value::Date(_),
                expires_at: Value::Date(_),
                token: Value::Long(_),
            }
        )
    }

    /// Whether the lock has no holder.
    pub(crate) fn is_free(&self, now: Ms, margin: Ms) -> bool {
        self.lock_id.text().is_some_and(|id| id.is_empty()) || self.has_ended(now, margin)
    }

    /// Whether the lease and the margin after it are over.
    pub(super) fn has_ended(&self, now: Ms, margin: Ms) -> bool {
        let latest = now.saturating_sub(margin_after(&self.lock_id, margin));
        self.expires_at.compare(latest) != Ordering::Greater
    }
}

/// The time for which the lock stays taken after the end in its document. A mark and a minimum hold have no margin,
/// because no holder relies on them, and neither does an id that is not a text, because it belongs to no claim.
pub(super) fn margin_after(id: &Value, margin: Ms) -> Ms {
    match id.text() {
        Some(id) if is_claim(id) => margin,
        _ => 0,
    }
}
