//! The program `mongolock` on real servers, with real processes.
//!
//! `MONGOLOCK_REPEAT=20` repeats each test of `faults` so many times.

#![cfg(target_os = "linux")]

mod archive;
mod connections;
mod deployments;
mod doctor;
mod end;
mod faults;
mod fixture;
mod guide;
mod inputs;
mod inside;
mod lease_faults;
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
