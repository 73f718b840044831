//! The commands of the protocol, on MongoDB or in memory.

mod admin;
mod admission;
#[cfg(any(test, fuzzing))]
mod any_document;
mod change_stream;
mod command;
mod commands;
mod connection;
mod dispatch;
mod document_stream;
pub(crate) mod driver_error;
mod error;
mod filter;
mod gate;
mod gather;
mod home;
mod index_state;
mod info;
mod look;
mod memory;
mod mongo;
mod operators;
mod overload;
#[cfg(any(test, feature = "next"))]
#[allow(dead_code, reason = "the faces do not use it yet")]
mod plain;
mod reachability;
pub(crate) mod reply;
mod sending;
mod stream_reader;
mod transaction;
mod ttl_index;
mod waiters;

use std::sync::Arc;

#[cfg(test)]
pub(crate) use admission::DEFAULT_POOL;
pub(crate) use admission::{Admission, AdmissionClass, Admissions, Lane};
#[cfg(fuzzing)]
pub(crate) use any_document::read_document;
pub(crate) use change_stream::{LockStream, StreamFilter};
pub(crate) use command::{
    ACQUIRE_REQUEST, AcquireReply, AcquireRequest, ClaimEnd, Claimed, Dates, Detachment, Extended,
    GuardChange, GuardOutcome, LeaseId, MarkReply, MarkRequest, RenewReply,
};
pub(crate) use connection::{Connection, connect};
pub(crate) use document_stream::{ChangeKind, DocumentChange, DocumentStream};
pub use filter::LockFilter;
#[cfg(any(test, feature = "next"))]
pub(crate) use home::has_ended;
pub(crate) use index_state::IndexCheck;
pub use index_state::IndexState;
pub use info::{LockInfo, LockState};
pub(crate) use info::{Page, as_rfc3339};
#[cfg(test)]
pub(crate) use look::duration;
pub(crate) use look::{HeldPermits, Looked, RunningLease, RunningLeases};
pub(crate) use memory::MemoryStore;
#[cfg(any(test, feature = "next"))]
pub(crate) use mongo::millis;
pub(crate) use mongo::{MongoStore, WAITERS_SUFFIX};
pub(crate) use operators::{SeenHold, Selected, TakenLock, TakenOrDamaged};
pub(crate) use overload::Trouble;
#[cfg(any(test, feature = "next"))]
pub(crate) use plain::NotRun;
pub(crate) use reachability::Reachability;
pub(crate) use sending::{Ran, Sending};
pub(crate) use stream_reader::Begin;
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
