//! The program `mongolock` on real servers, with real processes.
//!
//! `MONGOLOCK_REPEAT=20` repeats each test of `faults` so many times.

#![cfg(target_os = "linux")]

mod end;
mod faults;
mod fixture;
mod operators;
mod records;
mod signals;
mod terminal;
