//! The ends of turns, and their names in `--json` and in the history.

use serde::Deserialize;

/// How a turn has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It has not ended.
    Held,
    Released,
    Done,
    /// The lease was over without a release.
    Expired,
    /// As `Expired`, at this time or earlier: the next holder came, or the document was deleted.
    ExpiredBy,
    /// Events are missing, or the document was damaged.
    Unknown,
}

impl End {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Released => "released",
            Self::Done => "done",
            Self::Expired => "expired",
            Self::ExpiredBy => "expired_by",
            Self::Unknown => "unknown",
        }
    }
}
