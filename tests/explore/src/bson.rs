//! The date of a document, with the path that it has in the driver.

/// A number of milliseconds by the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateTime(i64);

impl DateTime {
    /// The date with this number.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Self(millis)
    }
}
