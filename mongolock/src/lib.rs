//! Distributed locks on MongoDB: put [`#[distributed_lock]`](macro@distributed_lock) on an `async fn`, and only one
//! call per lock name runs at a time, across all processes that share a MongoDB database.
//!
//! ```no_run
//! use mongodb::bson::{Document, doc};
//! use mongodb::{Client, Collection};
//! use mongolock::{FencedExt, LockContext, LockError, LockProvider, distributed_lock};
//!
//! #[distributed_lock(name = "report:<id>")]
//! async fn rebuild_report(
//!     id: i64,
//!     reports: &Collection<Document>,
//!     #[lock] lock: LockContext, // filled in by the attribute: callers do not pass it
//! ) -> Result<(), LockError> {
//!     // MongoDB refuses this write if a newer lock holder has already written.
//!     let reports = reports.fenced(lock.fencing_token());
//!     reports.update_one(doc! { "_id": id }, doc! { "$set": { "rebuilt": true } }).upsert(true).await?;
//!     Ok(())
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), LockError> {
//!     let uri = "mongodb://localhost/app";
//!     let locks = LockProvider::connect(uri).await?; // a client for the locks alone
//!     locks.clone().set_global()?;
//!     let database = Client::with_uri_str(uri).await?.database("app");
//!     rebuild_report(42, &database.collection("reports")).await?;
//!
//!     // The same lock with a guard, without the attribute.
//!     let guard = locks.lock("report:42").await?;
//!     guard.release().await?;
//!     locks.shutdown().await;
//!     Ok(())
//! }
//! ```
//!
//! A lock is a lease. It is renewed while the function runs, and expires on its own if the process crashes. If it
//! cannot be renewed, the function is cancelled and the call returns [`LockError::Lost`]. Each acquisition gets a
//! monotonically increasing [`FencingToken`], so your data can refuse the write of a stale holder: a process that was
//! paused and has not noticed the loss of its lock. The page on [leases](guide::leases) says what is guaranteed, and
//! what is not.
//!
//! # Where to begin
//!
//! | item | what it is for |
//! |---|---|
//! | [`distributed_lock`](macro@distributed_lock) | the attribute, with all its arguments, such as `once_at` for a cron job |
//! | [`derive(LockName)`](derive@LockName) | lock names that are declared once and proved to differ |
//! | [`LockProvider`] | where the locks are kept: [`connect`](LockProvider::connect), [`in_memory`](LockProvider::in_memory) for tests, with [`scope`](LockProvider::scope); its [builder](LockProviderBuilder) has the defaults |
//! | [`DistributedLock`], [`LockSet`], [`Semaphore`] | one lock; several locks, all or nothing; up to N permits. Await one to get a [`LockGuard`] or a [`Permit`]. All three are one type, [`Lock`] |
//! | [`Leader`] | an election: one leader among all processes. It runs a body with a [`LockContext`]; a body that returns resigns |
//! | [`LockContext`] | the hold of the running code: its token, whether the lock is lost, and commits that succeed only while it is held |
//! | [`FencedCollection`], [`Fenced`] | data that refuses stale writes, with [`LockError::Stale`] |
//! | [`LeaseHandle`] | a lock that stays held without a process |
//! | [`LockError`] | one short fact; [`help`](LockError::help) says what to do |
//! | [`LockAdmin`] | what all processes hold, and forced releases |
//! | [`blocking`] | the same locks for programs without async code |
//!
//! # The guide
//!
//! Before the first lock: [choosing an API](guide::choosing_an_api), [leases](guide::leases), [fencing](guide::fencing).
//! Before production: [production](guide::production). When something is wrong: [troubleshooting](guide::troubleshooting).
//!
//! By task: [several locks](guide::choosing_an_api#several-locks), [permits](guide::choosing_an_api#at-most-n-calls),
//! [scheduled jobs](guide::jobs), [web services and editing sessions](guide::web_service), [tests](guide::testing),
//! [metrics, spans and events](guide::observing), [names in other libraries and locks shared with .NET](guide::migration).
//!
//! # Features
//!
//! | feature | what it does |
//! |---|---|
//! | `bson-2` (default), `bson-3` | the driver's feature of that name, which chooses the version of the crate `bson`; without the default features choose one |
//! | `rustls-tls` (default), `openssl-tls` | the driver's TLS implementation; one of them must be on |
//! | `dns-resolver` (default) | addresses that begin with `mongodb+srv` |
//! | `metrics` | counters, gauges and histograms for the crate `metrics`: see [observing](guide::observing#metrics) |
//!
//! Spans and events of [`tracing`] need no feature. All have the target `mongolock`; names and fields are stable, and
//! nothing is reported at `info` or above in normal operation.
//!
//! # Versions
//!
//! Rust 1.89 or later; raising it is a minor change. The driver `mongodb` 3.9.1 or later. MongoDB 4.4.2 or later, preferably a
//! replica set: [which versions were run](guide::production#server-versions).

// On docs.rs rustdoc labels each item that needs a feature. No public item needs one so far: the features choose TLS,
// bson and metrics behind the same interface.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod backoff;
pub mod blocking;
mod commit;
mod context;
mod core;
mod detach;
mod duration;
mod engine;
mod error;
mod fence;
mod few;
mod guard;
pub mod guide;
mod handle;
mod health;
mod home;
mod leader;
mod lock;
mod meter;
mod name;
mod one_line;
mod opaque;
mod options;
mod output;
mod probe;
mod protocol;
mod provider;
mod run;
#[cfg(test)]
mod simulation;
mod store;
mod sync;
mod task;
mod timing;
mod token;
mod trace;

#[doc(hidden)]
pub mod attribute;

use protocol::{permit_id, text as lock_id};

pub use admin::{ForceRelease, LockAdmin, LockEvent, LockEventKind, LockEvents, LockInfoStream};
pub use context::LockContext;
pub use core::LossReason;
pub use detach::Detach;
pub use error::{Busy, LockError};
pub use fence::{Fenced, FencedCollection, FencedExt, FencedWrite};
pub use guard::{Guard, LockGuard, Permit};
pub use handle::LeaseHandle;
pub use health::{Health, HeldInfo, WakeUp};
pub use leader::Leader;
pub use lock::kinds::{DistributedLock, LockSet, One, Permits, Semaphore, Several};
pub use lock::{Lock, LockKind};
#[doc(inline)]
pub use mongolock_macros::{LockName, distributed_lock};
pub use name::{IntoLockName, LockName, escape};
pub use options::OnLost;
pub use output::{LockOutput, Skipped};
pub use provider::{LockProvider, LockProviderBuilder};
pub use store::{IndexState, LockFilter, LockInfo, LockState};
pub use token::FencingToken;

/// The code of the README is tested with that of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
