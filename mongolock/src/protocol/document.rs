use super::value::Value;

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
}
