//! Deadlocks between holds: callers that hold something and wait for something else, in a circle.
//!
//! | file | what it has |
//! |---|---|
//! | `rule.rs` | which holds are stuck, and the circle that a caller is in |
//! | `waits.rs` | the waits of this provider whose callers hold something: a circle of them is found at once |
//! | `reading.rs` | what the documents of all processes say of the holders of a name, and of what those wait for |
//!
//! `acquire/nested.rs` decides when to read. A deadlock is reported, and ends no wait.

mod reading;
mod rule;
mod waits;

pub(crate) use self::reading::read;
pub(crate) use self::rule::Circle;
pub(crate) use self::waits::{NestedCall, OUTER_HOLDS, Waits};
