//! The searches and the random runs of the explorer; `README.md` in this folder says what they judge.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    mongolock_explore::run(&std::env::args().skip(1).collect::<Vec<_>>())
}
