//! The judgement of the soak is judged: what is planted among the sections must be found.

use std::time::Duration;

use anyhow::{Context, ensure};

use super::FREE;
use super::holds::{End, Hold};
use super::verdict::Seen;

/// Checks that an overlap, a token that falls, a free lock and a forgotten process are found.
pub(crate) fn are_found(seen: &Seen) -> anyhow::Result<()> {
    let middle = seen.holds.len() / 2;
    let is_usual = |hold: &Hold| seen.is_ours(hold.place) && hold.end == End::Held;
    let index = (middle.max(1)..seen.holds.len())
        .find(|index| is_usual(&seen.holds[index - 1]) && is_usual(&seen.holds[*index]));
    let index = index.context("the soak has had hardly any section")?;

    let overlapping = changed(seen, |holds| {
        holds[index - 1].ended = holds[index].begun + Duration::from_nanos(1);
    });
    ensure!(
        overlapping.overlaps().0.len() > seen.overlaps().0.len(),
        "an overlap was not found"
    );

    let falling = changed(seen, |holds| holds[index].token = holds[index - 1].token);
    ensure!(
        falling.falling_tokens().len() > seen.falling_tokens().len(),
        "a token was not found"
    );

    // A time without faults after the last section.
    let last = seen.holds.last().context("no section")?.clone();
    let later = last.ended + FREE * 100;
    let free = changed(seen, |holds| {
        holds.push(Hold {
            begun: later,
            ended: later,
            ..last.clone()
        });
    });
    ensure!(
        free.free().iter().any(|gap| gap.unexplained > FREE * 90),
        "a free lock was not found"
    );

    let life = seen.holds[index].life;
    let forgotten = changed(seen, |holds| holds.retain(|hold| hold.life != life));
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

fn changed(seen: &Seen, change: impl FnOnce(&mut Vec<Hold>)) -> Seen {
    let mut holds = seen.holds.clone();
    change(&mut holds);
    Seen {
        holds,
        ..seen.clone()
    }
}
