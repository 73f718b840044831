//! The meaning of the commands: a row says when one document changes, and how.
//!
//! This is the executable specification of the protocol. The memory store and the models run it, and a property test
//! compares it with the effect of the same rows on MongoDB. A row may take effect twice, or late.

mod apply;
mod document;
mod id;
pub(crate) mod permit_id;
mod row;
mod sight;
pub(crate) mod text;
mod value;

pub(crate) use apply::apply;
pub(crate) use document::Document;
pub(crate) use id::{Id, IdKind};
pub(crate) use row::{LATE_COMMAND, LONGEST, Reply, Row, RowOrder, Then, Until, When};
pub(crate) use sight::{News, Sight};
pub(crate) use value::{LockId, Ms, Name, Value};
