//! The machine of the library, compiled as it is, against a modelled server and a modelled network: every order of the steps within
//! bounds, and random orders beyond them. `README.md` in this folder says what is explored.

mod cases;
mod clock;
mod commands;
mod copies;
#[path = "../../../mongolock/src/core/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the engine of the library uses more of it"
)]
mod core;
mod failures;
mod hash;
mod judge;
mod network;
mod notices;
mod process;
#[path = "../../../mongolock/src/protocol/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the store of the library uses more of it"
)]
mod protocol;
mod random;
mod report;
mod search;
mod server;
mod setup;
mod start;
mod step;
#[path = "../../../mongolock/src/timing.rs"]
#[allow(dead_code, reason = "the library uses more of it")]
mod timing;
mod transaction;
mod world;

pub use report::run;
