//! The commands of the protocol, on MongoDB or in memory.

#[cfg(test)]
mod any_document;
mod backend;
mod change_stream;
mod connection;
mod detached;
mod error;
mod filter;
mod gate;
mod index_state;
mod info;
mod look;
mod memory;
mod mongo;
mod overload;
mod reachability;
mod read;
pub(crate) mod reply;
mod rows;
mod stream_reader;
mod transaction;
mod ttl_index;

pub(crate) use crate::duration::millis;
pub(crate) use backend::Store;
#[cfg(test)]
pub(crate) use change_stream::LockStream;
pub(crate) use connection::{Connection, connect};
pub use filter::LockFilter;
pub use index_state::IndexState;
pub use info::{LockInfo, LockState};
pub(crate) use info::{as_rfc3339, info};
#[cfg(test)]
pub(crate) use look::ALL;
pub(crate) use look::{Found, Looked};
pub(crate) use memory::MemoryStore;
pub(crate) use mongo::MongoStore;
pub(crate) use reachability::Reachability;
pub(crate) use read::PAGE_SIZE;
pub(crate) use reply::{NotRun, is_of_statement};
pub(crate) use stream_reader::{Begin, Change, StreamReader, second};
pub(crate) use transaction::{GuardChange, GuardOutcome, LeaseId};
