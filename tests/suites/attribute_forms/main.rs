//! Uses of the attribute that must compile and do what they say, in memory; the suite `ui` has what must not compile.

// The signatures are what is tested, and most of them are odd.
#![allow(clippy::all, clippy::pedantic, unreachable_pub)]

mod arguments;
mod attributes;
mod body;
mod generics;
mod hygiene;
mod macro_rules;
mod names;
mod options;
mod receivers;
mod returns;
mod send;

/// Here, because `tokio::test` allows what `hygiene` forbids.
#[tokio::test]
async fn the_names_of_the_user_stay_theirs() -> Result<(), mongolock::LockError> {
    hygiene::run().await
}
