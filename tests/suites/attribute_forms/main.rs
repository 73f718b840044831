//! Forms of the attribute that must compile and work, in memory. The suite `ui` has the forms that must not compile.

// The tests are about signatures, most of which are unusual.
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

/// The test is not in `hygiene`, because `tokio::test` allows lints that `hygiene` forbids.
#[tokio::test]
async fn the_names_of_the_user_stay_theirs() -> Result<(), mongolock::LockError> {
    hygiene::run().await
}
