//! Forms of the attribute that must compile and work, with in-memory locks. The suite `ui` has the forms that must not
//! compile.

// The tests are about signatures, most of which are unusual.
#![allow(clippy::all, clippy::pedantic, unreachable_pub)]

mod arguments;
mod attributes;
mod body;
mod busy_functions;
mod generics;
mod hygiene;
mod injective;
mod lock_argument;
mod lock_names;
mod macro_rules;
mod names;
mod options;
mod receivers;
mod returns;
mod send;

/// The test is not in `hygiene`, because `tokio::test` allows lints that `hygiene` forbids.
#[tokio::test]
async fn user_items_with_standard_names_do_not_interfere() -> Result<(), mongolock::LockError> {
    hygiene::run().await
}
