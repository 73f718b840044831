//! Runs the cases, and says what each has shown.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::cases::{self, Case};
use crate::copies;
use crate::core::MS;
use crate::search::{self, Found};

/// The number of cases that run at a time.
const AT_A_TIME: usize = 2;

/// The number of steps that are printed of a breach, the last ones.
const MOST_LINES: usize = 60;

/// Runs the cases whose names contain one of these words, in the order of the words, or all of the usual ones. With `--exact` the words
/// are whole names.
#[must_use]
pub fn run(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let mode = std::env::var("MONGOLOCK_EXPLORE").unwrap_or_default();
    let is_exact = arguments.iter().any(|argument| argument == "--exact");
    let words = arguments.iter().filter(|argument| !argument.starts_with('-'));
    let fits = |name: &str, word: &str| name == word || !is_exact && name.contains(word);
    let place = |name: &str| words.clone().position(|word| fits(name, word));
    let is_wanted = |name: &str| words.clone().next().is_none() || place(name).is_some();
    let mut cases = cases::all(mode.contains("long"));
    cases.retain(|case| is_wanted(&case.name));
    cases.sort_by_key(|case| place(&case.name));
    println!(
        "{:<56} {:>10} {:>8} {:>8} {:>6} {:>8}  outcome",
        "case", "states", "ends", "free ms", "ghosts", "seconds"
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
            failed += usize::from(found.breach.is_some());
            report(case, &found);
            if failed > 0 && mode.contains("first") {
                // Whoever asks for the first breach does not wait for other cases.
                println!("0 cases passed, 1 failed");
                std::process::exit(1);
            }
        }
    });
    let mut number = cases.len();
    if is_wanted("copies") {
        number += 1;
        failed += usize::from(!copies_have_ids_of_their_own());
    }
    println!("{} cases passed, {failed} failed", number - failed);
    ExitCode::from(u8::from(failed > 0))
}

fn copies_have_ids_of_their_own() -> bool {
    let (twice, claims) = copies::ids_twice();
    let outcome = if twice == 0 && claims > 0 {
        "all of them hold"
    } else {
        "FAILED"
    };
    println!(
        "{:<56} {claims:>10} claims of copied cores, {twice} with the id of another one  {outcome}",
        "copies"
    );
    twice == 0 && claims > 0
}

/// Says what a case has shown.
fn report(case: &Case, found: &Found) {
    let outcome = match &found.breach {
        Some(_) => "FAILED",
        None if found.is_whole => "all of them hold",
        None => "the first ones hold, cut here",
    };
    println!(
        "{:<56} {:>10} {:>8} {:>8} {:>6} {:>8.1}  {outcome}",
        case.name,
        found.states,
        found.ends,
        found.longest_free / MS,
        found.ghosts,
        found.seconds
    );
    if let Some((breach, steps)) = &found.breach {
        println!("      {} steps: {breach}", steps.len());
        let lines = search::told(&case.setup, steps);
        for line in &lines[lines.len().saturating_sub(MOST_LINES)..] {
            println!("      {line}");
        }
    }
}
