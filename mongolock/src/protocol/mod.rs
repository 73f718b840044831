//! What the commands mean: a row says of one document when it changes, and how.
//!
//! This is the executable meaning of the protocol. Memory and the models run it, and a property test compares it with what
//! MongoDB makes of the same rows. A row may take effect twice, or late.

mod apply;
mod document;
mod id;
mod row;
mod sight;
pub(crate) mod text;
mod value;

pub(crate) use apply::apply;
pub(crate) use document::Document;
pub(crate) use id::{Id, Kind};
pub(crate) use row::{LATE_COMMAND, LONGEST, Order, Reply, Row, Then, Until, When};
pub(crate) use sight::{News, Sight};
pub(crate) use value::{LockId, Ms, Name, Value};
