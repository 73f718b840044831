//! A model of the protocol. Every state that its assumptions allow is looked at.
//!
//! `README.md` in this folder says what the model asks, and which assumptions it makes.
#![forbid(unsafe_code)]

mod cases;
mod check;
mod lease;
mod protocol;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::check::is_long_run;

/// The number of short models that run at a time. A long one may need all the memory.
const AT_A_TIME: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let is_long = is_long_run();
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let mut cases = cases::all();
    cases.retain(|case| case.is_long() == is_long && filter.is_none_or(|filter| case.name.contains(filter)));
    println!(
        "{:<72} {:>10} {:>6} {:>8}  outcome",
        "model", "states", "depth", "seconds"
    );
    let (next, passed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..if is_long { 1 } else { AT_A_TIME } {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    passed.fetch_add(usize::from((case.run)(case.name)), Ordering::Relaxed);
                }
            });
        }
    });
    let passed = passed.into_inner();
    println!("{passed} passed, {} failed", cases.len() - passed);
    ExitCode::from(u8::from(passed < cases.len()))
}
