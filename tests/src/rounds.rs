//! How often a test repeats what is random.

/// The number of rounds that `MONGOLOCK_ROUNDS` asks for, or this one, which fits into a full run.
pub fn rounds(otherwise: usize) -> usize {
    let rounds = std::env::var("MONGOLOCK_ROUNDS").ok();
    rounds.map_or(otherwise, |rounds| {
        rounds.parse().expect("MONGOLOCK_ROUNDS is a number")
    })
}
