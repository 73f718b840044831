//! The judgement of the soak is judged: what is planted among the sections must be found.

use std::time::Duration;

use anyhow::{Context, ensure};
use mongolock_tests::{End, Event, History, Hold, Step};

use super::FREE;
use super::verdict::Seen;

/// Checks that an overlap, a token that falls, a free lock and a forgotten process are found.
pub(crate) fn are_found(seen: &Seen) -> anyhow::Result<()> {
    let is_usual = |hold: &&Hold| seen.is_ours(seen.place(hold)) && hold.end == End::Held;
    let later = &seen.holds[seen.holds.len() / 2..];
    let usual = later
        .iter()
        .find(is_usual)
        .context("the soak has had hardly any section")?;

    let overlapping = with(seen, usual.begun, usual.ended, None).judge();
    ensure!(
        overlapping.overlaps.len() > seen.verdict.overlaps.len(),
        "an overlap was not found"
    );
    let falling = with(seen, usual.ended, usual.ended, usual.token).judge();
    ensure!(
        falling.falling_tokens.len() > seen.verdict.falling_tokens.len(),
        "a token was not found"
    );

    // A time without faults after the last section.
    let last = seen.holds.last().context("no section")?.ended;
    let later = last + FREE * 100;
    let free = Seen {
        holds: with(seen, later, later, None).holds(),
        ..seen.clone()
    };
    ensure!(
        free.free().iter().any(|gap| gap.unexplained > FREE * 90),
        "a free lock was not found"
    );

    let life = usual.process;
    let mut forgotten = seen.clone();
    forgotten.holds.retain(|hold| hold.process != life);
    let lived = seen.lives[life]
        .ended
        .map(|ended| ended.saturating_sub(seen.lives[life].begun));
    let found = forgotten
        .without_a_turn()
        .into_iter()
        .any(|gap| Some(gap.span.time()) == lived);
    ensure!(found, "a forgotten process was not found");
    Ok(())
}

/// The history with one more section, of the process that was started last. It lives to the end: what a killed one does
/// after its kill does not count.
fn with(seen: &Seen, begun: Duration, ended: Duration, token: Option<i64>) -> History {
    let mut history = seen.history.clone();
    let lease = Duration::ZERO;
    let process = seen.lives.len().saturating_sub(1);
    for (at, step) in [
        (begun, Step::Acquired { token, lease }),
        (ended, Step::Ended { is_lost: false }),
    ] {
        // No task has this number.
        let event = Event::at(usize::MAX, at, step);
        history.add(Event { process, ..event });
    }
    history
}
