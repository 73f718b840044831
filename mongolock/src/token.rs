use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use mongodb::bson::Bson;
use serde::{Deserialize, Serialize};

/// A fencing token: a number that is strictly greater for every later hold of the same lock.
///
/// Pass it with each write to the resource that the lock protects, and let the resource refuse a token smaller than the
/// greatest one it has seen. A stale holder, whose process was paused beyond its lease, then cannot overwrite the work
/// of the next holder ([Kleppmann, *How to do distributed
/// locking*](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html)). For data in MongoDB,
/// [`FencedCollection`](crate::FencedCollection) does this.
///
/// The tokens of one lock increase across release, expiry, failover and the deletion of its document. They are not
/// consecutive. They stay below 2^53, so that JSON and JavaScript represent them exactly.
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
    /// The value for a hold without a token, which is that of a permit. It is less than every token.
    pub(crate) const NONE: Self = Self(i64::MIN);

    /// The token of a hold that has one.
    pub(crate) fn if_any(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }

    /// The token as a number, as it is stored in documents and sent in messages.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Converts a token that was stored or sent as a number.
impl From<i64> for FencingToken {
    fn from(value: i64) -> Self {
        Self(value)
    }
}

/// Parses a token that was sent as text, for instance in an HTTP header.
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

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::FencingToken;

    #[test]
    fn a_token_is_a_number_in_every_format() {
        let json = "1795225770144000";
        let token: FencingToken = serde_json::from_str(json).expect("a number is a token");
        assert_eq!(serde_json::to_string(&token).ok().as_deref(), Some(json));
        assert_eq!(token.to_string(), json);
        assert_eq!(
            doc! { "token": token },
            doc! { "token": 1_795_225_770_144_000_i64 }
        );
        assert_eq!(i64::from(token), token.get());
    }
}
