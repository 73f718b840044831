//! The program `mongolock` on real servers, with real processes.
//!
//! `MONGOLOCK_REPEAT=20` repeats each test of `faults` and `at_any_moment` so many times.

#![cfg(target_os = "linux")]

mod archive;
mod at_any_moment;
mod connections;
mod deployments;
mod doctor;
mod end;
mod faults;
mod fixture;
mod guide;
mod inputs;
mod inside;
mod leases;
mod log;
mod namespace;
mod operators;
mod patience;
mod records;
mod scene;
mod signals;
mod terminal;
mod watch;
mod words;
