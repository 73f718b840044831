//! Models of the protocol. Each one asks one question, and every state that its assumptions allow is looked at.
//!
//! `README.md` in this folder says what each model asks, and which assumptions it makes.
#![forbid(unsafe_code)]

mod cases;
mod check;
mod commit;
mod detached;
mod done;
mod handover;
mod lease;
mod names;
mod permits;
mod protocol;
mod shared;
mod waiting;

use std::process::ExitCode;

use crate::check::Outcome;

/// The memory that the short models may use, in megabytes.
const MEMORY: u64 = 2048;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let is_long = std::env::var("MONGOLOCK_MODELS").is_ok_and(|value| value == "long");
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let (mut passed, mut failed, mut states) = (0, 0, 0);
    println!(
        "{:<72} {:>10} {:>6} {:>8}  outcome",
        "model", "states", "depth", "seconds"
    );
    for case in cases::all() {
        let is_wanted = filter.is_none_or(|filter| case.name.contains(filter.as_str()));
        if case.is_long() != is_long || !is_wanted {
            continue;
        }
        let outcome = (case.run)();
        report(case.name, &outcome);
        states += outcome.states;
        if outcome.problems.is_empty() {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    let memory = peak_memory();
    println!("{states} states in all");
    if let Some(memory) = memory {
        println!("{memory} MB of memory at most");
    }
    if !is_long && memory.is_some_and(|memory| memory > MEMORY) {
        println!("that is more than {MEMORY} MB");
        failed += 1;
    }
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

fn report(name: &str, outcome: &Outcome) {
    let is_expected = outcome.problems.is_empty();
    let verdict = match outcome.counterexample.is_empty() {
        _ if !is_expected => "FAILED",
        true => "holds",
        false => "breaks, as it must",
    };
    let Outcome {
        states,
        depth,
        seconds,
        ..
    } = outcome;
    println!("{name:<72} {states:>10} {depth:>6} {seconds:>8.1}  {verdict}");
    for line in outcome.counterexample.iter().chain(&outcome.problems) {
        println!("      {line}");
    }
}

/// The greatest size of this process's memory in megabytes, where the system says it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / 1024)
}
