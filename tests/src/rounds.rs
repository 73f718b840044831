//! How often a test repeats what is random.

/// The number of rounds that `MONGOLOCK_ROUNDS` asks for, or this one: a full run has little time, and the figures in
/// VERIFICATION are those of many more rounds.
///
/// # Panics
/// When the variable is not a number.
#[must_use]
pub fn rounds(otherwise: usize) -> usize {
    let rounds = std::env::var("MONGOLOCK_ROUNDS").ok();
    rounds.map_or(otherwise, |rounds| {
        rounds.parse().expect("MONGOLOCK_ROUNDS is a number")
    })
}
