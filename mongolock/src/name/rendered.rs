//! A name that is rendered, and the rules for names.

use std::sync::Arc;
use std::time::SystemTime;

use mongodb::bson::DateTime;

use crate::LockError;
use crate::one_line::shortened;
use crate::options::refused;

/// The greatest length of a name in bytes: the name is an `_id` and stands in an index, and a longer one is almost
/// certainly a mistake.
pub(crate) const MAX_BYTES: usize = 1024;

/// The number of characters of a name that an error shows.
const SHOWN: usize = 120;

/// A lock's name as it was rendered, and why it could not be rendered as a whole. It is checked when the lock is
/// acquired.
#[derive(Debug, Clone)]
pub(crate) struct RenderedName {
    /// Only the beginning of a name that is too long.
    pub(crate) text: Arc<str>,
    /// The flaw is on the heap, because almost no name has one and every lock contains this value.
    pub(super) flaw: Option<Box<Flaw>>,
    /// The template that describes the name.
    pub(crate) template: Option<&'static str>,
}

/// A flaw of a name that its text does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The text was cut at [`MAX_BYTES`]. What was kept can be shorter than that, because a character is never cut.
    TooLong,
    /// The `Display` of the name, or of a placeholder of it, has returned an error.
    DisplayFailed(Option<&'static str>),
    /// The value of this placeholder is empty.
    Empty(&'static str),
    /// The name ends with this time, which cannot be a tick: it has a fraction of a second or is out of range.
    WrongTick(SystemTime),
}

impl RenderedName {
    /// Checks the name against the rules for names.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        let broken = || broken_rule(&self.text).map(|reason| invalid(&self.text, reason));
        let flaw = self.flaw.as_deref().map(|flaw| flaw.error(&self.text));
        flaw.or_else(broken).map_or(Ok(()), Err)
    }
}

impl Flaw {
    /// The error for a name that was rendered to this text.
    pub(super) fn error(self, name: &str) -> LockError {
        let reason = match self {
            Self::TooLong => format!("it is longer than {MAX_BYTES} bytes"),
            Self::DisplayFailed(None) => "its `Display` returned an error".to_owned(),
            Self::DisplayFailed(Some(placeholder)) => {
                format!("`<{placeholder}>` cannot be rendered: its `Display` returned an error")
            }
            Self::Empty(placeholder) => format!(
                "`<{placeholder}>` rendered to an empty string, with which different values would share one lock"
            ),
            Self::WrongTick(tick) => {
                let wrong = rfc3339(tick).unwrap_or("out of range".to_owned());
                let bound = "it must be the scheduled time, in whole seconds from 1970 to 9999";
                return refused("once_at", format_args!("{wrong}"), bound);
            }
        };
        invalid(name, reason)
    }
}

fn broken_rule(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".into());
    }
    if let Some(control) = name.chars().find(|c| c.is_control()) {
        return Some(format!("it contains the control character {control:?}"));
    }
    (name.trim() != name).then(|| "it begins or ends with white space".into())
}

/// The text of a time that is a part of a name; `None` for one without a text.
pub(super) fn rfc3339(tick: SystemTime) -> Option<String> {
    DateTime::from_system_time(tick).try_to_rfc3339_string().ok()
}

fn invalid(name: &str, reason: String) -> LockError {
    LockError::InvalidName {
        name: shortened(name, SHOWN),
        reason,
    }
}
