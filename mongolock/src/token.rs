use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use mongodb::bson::Bson;
use serde::{Deserialize, Serialize};

/// A number that is strictly greater for every later hold of the same lock.
///
/// Hand it to whatever the lock protects and let that refuse a token smaller than the greatest it has seen:
/// then a holder that was paused beyond its lease cannot overwrite its successor's work
/// ([Kleppmann, *How to do distributed locking*](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html)).
///
/// Tokens of one lock rise across release, expiry, failover and deletion of its document; they are not
/// consecutive. They stay below 2^53, so that they survive JSON and JavaScript.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), mongolock::LockError> {
/// let provider = mongolock::LockProvider::in_memory();
/// let first = provider.lock("report:1").await?;
/// let earlier = first.fencing_token();
/// first.release().await?;
/// assert!(provider.lock("report:1").await?.fencing_token() > earlier);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(i64);

impl FencingToken {
    pub(crate) const fn new(value: i64) -> Self {
        Self(value)
    }

    /// The token as the number that is stored and sent.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A token that was stored or sent as a number, for whoever has to compare it.
impl From<i64> for FencingToken {
    fn from(value: i64) -> Self {
        Self(value)
    }
}

/// A token that was sent as text, such as in a header.
impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl From<FencingToken> for Bson {
    fn from(token: FencingToken) -> Self {
        Self::Int64(token.0)
    }
}
