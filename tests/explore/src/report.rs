//! Runs the cases, and says what each has shown.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::cases::{self, Case, Kind};
use crate::search::{self, Found};

/// The number of cases that run at a time.
const AT_A_TIME: usize = 2;

/// The number of steps that are printed of a breach, the last ones.
const MOST_LINES: usize = 40;

/// Runs the cases whose names contain the first of these words, or all of the usual ones.
#[must_use]
pub fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let is_long = std::env::var("MONGOLOCK_EXPLORE").is_ok_and(|value| value == "long");
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let is_wanted = |case: &Case| {
        let is_named = |filter: &String| case.name.contains(filter.as_str());
        case.is_long == is_long && filter.is_none_or(is_named)
    };
    let cases: Vec<Case> = cases::all().into_iter().filter(is_wanted).collect();
    println!(
        "{:<76} {:>10} {:>10} {:>7} {:>7} {:>8} {:>7}  outcome",
        "case", "states", "steps", "ends", "free s", "lost s", "seconds"
    );
    let next = AtomicUsize::new(0);
    let mut failed = 0;
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..AT_A_TIME {
            let (sender, next, cases) = (sender.clone(), &next, &cases);
            scope.spawn(move || {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _ = sender.send((case, case.run()));
                }
            });
        }
        drop(sender);
        for (case, found) in receiver {
            failed += usize::from(!report(case, &found, filter.is_some()));
        }
    });
    println!("{} cases passed, {failed} failed", cases.len() - failed);
    ExitCode::from(u8::from(failed > 0))
}

/// Says what a case has shown, and returns whether that is what must be.
fn report(case: &Case, found: &Found, is_told: bool) -> bool {
    let breach = found.breach.as_ref();
    let is_expected = match (case.breaks, breach) {
        (None, None) => found.is_whole || case.kind != Kind::Whole,
        (Some(expected), Some((breach, _))) => expected == *breach,
        _ => false,
    };
    let verdict = match breach {
        _ if !is_expected => "FAILED",
        None if found.is_whole => "all of them hold",
        None => "holds",
        Some(_) => "breaks, as it must",
    };
    println!(
        "{:<76} {:>10} {:>10} {:>7} {:>7.3} {:>8.3} {:>7.1}  {verdict}",
        case.name,
        found.states,
        found.transitions,
        found.ends,
        found.longest.free.as_secs_f64(),
        found.longest.given_up.as_secs_f64(),
        found.seconds
    );
    if let Some((breach, steps)) = breach {
        println!("      {} steps: {breach}", steps.len());
        if is_told || !is_expected {
            let lines = search::told(&case.setup, steps);
            for line in &lines[lines.len().saturating_sub(MOST_LINES)..] {
                println!("      {line}");
            }
        }
    }
    is_expected
}
