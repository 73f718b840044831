//! The files of the library that decide, compiled as they are, against a modelled server and a modelled network: every order of
//! the steps within bounds, and random orders beyond them. `README.md` in this folder says what is explored.
// With `cfg(test)` the files of the library would have their unit tests.
#![cfg(not(test))]
#![forbid(unsafe_code)]

// The files of the library name these crates. Here all of them are this one, with modules of the same paths.
extern crate self as fastrand;
extern crate self as mongodb;
extern crate self as tokio;

pub mod bson;
pub mod time;

mod acquire;
#[path = "../../../mongolock/src/backoff.rs"]
mod backoff;
mod cases;
mod error;
mod hash;
mod id;
mod judge;
mod lease;
mod line;
#[path = "../../../mongolock/src/moment.rs"]
#[allow(dead_code, reason = "only a part of the library is explored")]
mod moment;
mod network;
mod notifier;
mod process;
mod queue;
mod random;
mod report;
mod search;
mod server;
mod setup;
mod step;
mod store;
#[path = "../../../mongolock/src/timing.rs"]
#[allow(dead_code, reason = "only a part of the library is explored")]
mod timing;
mod world;

pub(crate) use error::{Busy, LockError};
pub(crate) use id::lock_id;

pub use report::run;

/// The number that a decision of the library draws: it stands for `fastrand::f64`.
#[must_use]
pub fn f64() -> f64 {
    time::luck()
}
