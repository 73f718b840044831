//! The ends of turns, and their names in `--json` and in the history.

/// How a turn has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// All of them.
    const ALL: [Self; 6] = [
        Self::Held,
        Self::Released,
        Self::Done,
        Self::Expired,
        Self::ExpiredBy,
        Self::Unknown,
    ];

    /// The end that [`as_str`](Self::as_str) has named.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.as_str() == name)
    }

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
