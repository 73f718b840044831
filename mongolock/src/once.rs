//! How often the work under a lock may succeed: once in each period, or once for as long as its mark is kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration::in_millis;

/// How often the work may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Once {
    /// Once in each period of this length: the periods are multiples of it since 1970-01-01 UTC, by the server's clock.
    #[serde(rename = "per", with = "in_millis")]
    PerPeriod(Duration),
    /// Once until the mark is removed, this time after the success.
    #[serde(rename = "kept", with = "in_millis")]
    Kept(Duration),
}

impl Once {
    /// The length of the period, or how long the mark is kept.
    pub(crate) fn time(self) -> Duration {
        match self {
            Self::PerPeriod(time) | Self::Kept(time) => time,
        }
    }
}
