//! <!-- Where the README's links lead from here: the first definition of a link is the one that counts. -->
//!
//! [report]: https://github.com/mongolock/mongolock/blob/main/examples/src/bin/report/main.rs
//! [report_service]: https://github.com/mongolock/mongolock/blob/main/examples/src/bin/report_service/main.rs
//! [queue_workers]: https://github.com/mongolock/mongolock/blob/main/examples/src/bin/queue_workers/main.rs
//! [nightly_job]: https://github.com/mongolock/mongolock/blob/main/examples/src/bin/nightly_job/main.rs
//! [edit_document]: https://github.com/mongolock/mongolock/blob/main/examples/src/bin/edit_document/main.rs
//! [transfer]: https://github.com/mongolock/mongolock/blob/main/examples/src/bin/transfer/main.rs
//! [paused_writer]: https://github.com/mongolock/mongolock/blob/main/examples/src/bin/paused_writer/main.rs
//! [leases]: guide::leases
//! [durations]: guide::durations
//! [fencing]: guide::fencing
//! [jobs]: guide::jobs
//! [testing]: guide::testing
//! [deployments]: guide::deployments
//! [rights]: guide::rights
//! [operating]: guide::operating
//! [migration]: guide::migration
//! [mongolock]: https://github.com/mongolock/mongolock/blob/main/mongolock/
//! [mongolock-macros]: https://github.com/mongolock/mongolock/blob/main/mongolock-macros/
//! [examples]: https://github.com/mongolock/mongolock/blob/main/examples/
//! [tests]: https://github.com/mongolock/mongolock/blob/main/tests/
//! [BEHAVIOURS.md]: https://github.com/mongolock/mongolock/blob/main/tests/BEHAVIOURS.md
//! [CHANGELOG.md]: https://github.com/mongolock/mongolock/blob/main/CHANGELOG.md
//! [MIT]: https://github.com/mongolock/mongolock/blob/main/LICENSE-MIT
//! [Apache-2.0]: https://github.com/mongolock/mongolock/blob/main/LICENSE-APACHE
//!
#![doc = include_str!("../README.md")]
//!
//! # More
//!
//! The [`guide`] goes on from here: what a lease promises, how to choose its times, fencing, jobs, tests, deployments,
//! rights, operation, and the way from DistributedLock.MongoDB.
//!
//! # What can be observed
//!
//! Spans and events of [`tracing`], all with the target `mongolock`; names and fields are stable. Nothing is reported at
//! `info` or above while all goes well.
//!
//! | name | kind, level | fields | when |
//! |---|---|---|---|
//! | `mongolock.acquire` | span, debug | `lock.name`, `lock.owner`, `lock.token`, `waited_ms`, `outcome`: `acquired`, `busy`, `timeout`, `shut_down`, `error` | a call waits for a lock |
//! | `mongolock.hold` | span, debug | `lock.name`, `lock.owner`, `lock.token`, `held_ms`, `outcome`: `returned`, `lost`, `panicked` | a body runs under a lock |
//! | `mongolock.waiting` | event, debug | `lock.name`, `remaining_ms`, `pause_ms` | an attempt found the lock held |
//! | `mongolock.retrying` | event, warn | `lock.name`, `error`, `pause_ms`; `locks` for a look at several (`lock.name` is the first) | an attempt failed and is repeated |
//! | `mongolock.acquired` | event, debug | `lock.name`, `lock.owner`, `lock.token` | a lock was acquired |
//! | `mongolock.renewed` | event, trace | `lock.name`, `lock.token` | a lease was renewed |
//! | `mongolock.released` | event, debug | `lock.name`, `lock.token`, `held_ms` | a hold ended as it should |
//! | `mongolock.lost` | event, warn | `lock.name`, `lock.token`, `held_ms`, `reason`: `expired`, `gone`, `shut_down` | a hold ended early |
//! | `mongolock.forced` | event, info | `lock.name`; or `lock.owner` and `locks` | an operator has released a lock, or all of an owner |
//! | `mongolock.stale` | event, warn | `collection`, `lock.token`, `seen` | a write of a `FencedCollection` came too late |
//! | `mongolock.renewal_failed` | event, warn | `locks`, `lock.name` (the first), `error` | a renewal failed and is repeated |
//! | `mongolock.release_failed` | event, warn | `locks`, `lock.name` (the first), `error` | a release in the background was given up |
//! | `mongolock.wake_up_failed` | event, debug | `error`; or `pause_ms` | the change stream broke or cannot be had, or costs more than it brings; waiting polls |
//! | `mongolock.index` | event, debug or warn | `state` | the TTL index is there, or why not |

mod acquire;
mod admin;
mod backoff;
mod commit;
mod context;
mod engine;
mod error;
mod fenced;
mod guard;
pub mod guide;
mod index_task;
mod lease;
mod lock;
mod name;
mod notifier;
mod options;
mod output;
mod provider;
mod queue;
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
#[path = "private.rs"]
pub mod __private;

pub use admin::LockAdmin;
pub use context::LockContext;
pub use error::LockError;
pub use fenced::{Fenced, FencedCollection, FencedExt, FencedWrite};
pub use guard::LockGuard;
pub use lock::DistributedLock;
#[doc(inline)]
pub use mongolock_macros::distributed_lock;
pub use output::{LockOutput, Skipped};
pub use provider::{LockProvider, LockProviderBuilder};
pub use store::{IndexState, LockFilter, LockInfo, LockState};
pub use token::FencingToken;
