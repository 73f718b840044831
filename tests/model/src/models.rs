//! Models of the protocol. Each one asks one question, and every state that its assumptions allow is looked at.
//!
//! `README.md` in this folder says what each model asks, and which assumptions it makes.
#![forbid(unsafe_code)]

mod cases;
mod check;
mod commit;
mod lease;
mod protocol;
mod shared;

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::cases::Case;
use crate::check::{Outcome, is_long_run};

/// The memory that the short models may use, in megabytes.
const MEMORY: u64 = 2048;

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
    let outcomes = run(&cases, if is_long { 1 } else { AT_A_TIME });
    let failed_models = outcomes
        .iter()
        .filter(|outcome| !outcome.problems.is_empty())
        .count();
    let (mut failed, passed) = (failed_models, outcomes.len() - failed_models);
    let states: usize = outcomes.iter().map(|outcome| outcome.states).sum();
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

/// Runs the models, so many at a time, and reports each when it ends.
fn run(cases: &[Case], at_a_time: usize) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut outcomes = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = (case.run)();
            print!("{}", report(case.name, &outcome));
            outcomes.push(outcome);
        }
        outcomes
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_a_time).map(|_| scope.spawn(work)).collect();
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().expect("a model panicked"));
        ended.flatten().collect()
    })
}

/// The line of a model, and below it the steps of its counterexample and what differs from the expectation.
fn report(name: &str, outcome: &Outcome) -> String {
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
    let mut report = format!("{name:<72} {states:>10} {depth:>6} {seconds:>8.1}  {verdict}\n");
    for line in outcome.counterexample.iter().chain(&outcome.problems) {
        let _ = writeln!(report, "      {line}");
    }
    report
}

/// The greatest size of this process's memory in megabytes, where the system says it.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / 1024)
}
