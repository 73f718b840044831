//! What the service is asked and what it answers, as JSON.

use std::time::Duration;

use mongolock::FencingToken;
use serde::{Deserialize, Serialize};

use crate::reports::{Report, Revision};

/// The body of a POST. A duration of this type is at most a minute: nobody can keep a report for longer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Request {
    /// How long the work takes.
    pub(crate) work_ms: u16,
    /// Whether to wait while others change the report.
    pub(crate) wait: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            work_ms: 100,
            wait: true,
        }
    }
}

/// The report was changed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changed {
    pub(crate) id: u32,
    /// How many changes the report has seen, this one included.
    pub(crate) revision: usize,
    pub(crate) token: FencingToken,
    pub(crate) instance: String,
    /// From the request to the lock.
    pub(crate) waited_ms: u64,
    /// From the lock to the end of the work.
    pub(crate) held_ms: u64,
}

/// The report as it is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) id: u32,
    pub(crate) revisions: Vec<Revision>,
}

impl From<Report> for Content {
    fn from(report: Report) -> Self {
        let Report { id, revisions, .. } = report;
        Self { id, revisions }
    }
}

/// The request was refused or failed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Problem {
    pub(crate) error: Reason,
    pub(crate) message: String,
    /// The lock that the request was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lock: Option<String>,
    /// How long the request waited for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited_ms: Option<u64>,
}

/// Why, for programs; [`ServiceError`](crate::error::ServiceError) has the statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    LockTimeout,
    LockBusy,
    LockLost,
    TooLate,
    ShuttingDown,
    NoDatabase,
    WriteFailed,
    NotFound,
    Internal,
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
