//! The commands of the protocol, on MongoDB or in memory.

#[cfg(test)]
mod any_document;
mod change_stream;
mod connection;
mod detached;
mod dispatch;
mod error;
mod filter;
mod gate;
mod home;
mod index_state;
mod info;
mod look;
mod memory;
mod mongo;
mod reachability;
pub(crate) mod refusals;
pub(crate) mod reply;
mod run;
mod stream_reader;
mod transaction;
mod ttl_index;

use std::sync::Arc;

#[cfg(test)]
pub(crate) use change_stream::LockStream;
pub(crate) use change_stream::{Change, second};
pub(crate) use connection::{Connection, connect};
pub use filter::LockFilter;
pub(crate) use home::has_ended;
pub use index_state::IndexState;
pub use info::{LockInfo, LockState};
pub(crate) use info::{as_rfc3339, info};
#[cfg(test)]
pub(crate) use look::ALL;
pub(crate) use look::Looked;
pub(crate) use memory::MemoryStore;
pub(crate) use mongo::MongoStore;
pub(crate) use mongo::millis;
pub(crate) use reachability::Reachability;
pub(crate) use run::{NotRun, PAGE_SIZE};
pub(crate) use stream_reader::{Begin, StreamReader};
pub(crate) use transaction::{GuardChange, GuardOutcome, LeaseId};

use crate::LockError;
use crate::opaque::Opaque;
use crate::protocol::Reply;
#[cfg(test)]
use crate::simulation::Link;

/// The replies to rows in their order. The error is that of the query after several rows: the command before it may have
/// applied them.
pub(crate) type Replies = Result<Vec<Reply>, LockError>;

/// The server. Each method sends one command unless its comment says otherwise. A caller must not drop a future before
/// it ends: the store itself gives up a command without a reply, when no result depends on that reply any more.
pub(crate) enum Store {
    Mongo(Opaque<MongoStore>),
    Memory(Arc<MemoryStore>),
    #[cfg(test)]
    Simulated(Arc<Link>),
}
