//! The commands of the protocol, on MongoDB or in memory.

mod admin;
mod admission;
#[cfg(any(test, fuzzing))]
mod any_document;
mod change_stream;
mod claims;
mod command;
mod connection;
mod detached;
mod dispatch;
mod document_stream;
pub(crate) mod driver_error;
mod filter;
mod gate;
mod gather;
mod home;
mod index_state;
mod info;
mod look;
mod mark;
mod memory;
mod mongo;
mod overload;
mod reachability;
pub(crate) mod reply;
mod several;
mod stream_reader;
mod taken;
pub(crate) mod takeover;
mod transaction;
mod ttl_index;
mod waiters;

use std::sync::Arc;

#[cfg(test)]
pub(crate) use admission::DEFAULT_POOL;
pub(crate) use admission::{Admission, AdmissionClass, Admissions, Lane};
#[cfg(fuzzing)]
pub(crate) use any_document::read_document;
pub(crate) use change_stream::{HolderChange, LockStream, StreamFilter};
pub(crate) use command::{
    ACQUIRE_REQUEST, AcquireReply, AcquireRequest, ClaimEnd, Claimed, Dates, Detachment, Extended,
    GuardChange, GuardOutcome, HoldsOf, LeaseId, RenewReply, SeenHold,
};
pub(crate) use connection::{Connection, connect};
#[cfg(test)]
pub(crate) use detached::extended;
pub(crate) use document_stream::{ChangeKind, DocumentChange, DocumentStream};
pub use filter::LockFilter;
#[cfg(test)]
pub(crate) use gather::AfterRelease;
pub(crate) use gather::{ClaimItem, Outcomes, ReleaseItem};
pub(crate) use index_state::IndexCheck;
pub use index_state::IndexState;
pub use info::{LockInfo, LockState};
pub(crate) use info::{Page, as_rfc3339};
pub(crate) use look::{HeldPermits, Looked, RunningLease, RunningLeases};
pub(crate) use mark::{MarkReply, MarkRequest};
pub(crate) use memory::MemoryStore;
pub(crate) use mongo::{MongoStore, WAITERS_SUFFIX};
pub(crate) use overload::Trouble;
pub(crate) use reachability::Reachability;
pub(crate) use stream_reader::Begin;
pub(crate) use taken::{TakenLock, TakenOrDamaged};
pub(crate) use waiters::{ProviderMark, Waiter, WaiterEntry, WaitersByName};

use crate::opaque::Opaque;
#[cfg(test)]
use crate::simulation::Link;

/// The server. Each method sends one command unless its comment says otherwise. A caller must not drop a future before
/// its end: the store itself gives up a command without a reply, when its outcome no longer depends on the reply.
pub(crate) enum Store {
    Mongo(Opaque<MongoStore>),
    Memory(Arc<MemoryStore>),
    #[cfg(test)]
    Simulated(Arc<Link>),
}
