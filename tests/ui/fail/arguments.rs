//! How the arguments of the attribute are written.

#![allow(unused)]

use mongolock::{LockError, LockName, distributed_lock};

#[derive(LockName)]
enum Lock {
    #[lock("a")]
    A,
    #[lock("b:<0>")]
    B(u64),
}

#[derive(LockName)]
#[lock("c")]
struct Nightly;

// Arguments that have these names in other libraries.
#[distributed_lock(key = "job", ttl = "30s", timeout = "1s")]
async fn other_library() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", lock_at_most_for = "30s", lockAtLeastFor = "1s", wait = "1s")]
async fn scheduler_library() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", lease = "30s", skip = true, limit = 5, max_concurrent = 5, daily)]
async fn words_for_the_same() -> Result<(), LockError> { Ok(()) }

// A misspelt argument.
#[distributed_lock(name = "job", expires = "30s")]
async fn misspelt() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", expiry = "30s", expiry = "40s")]
async fn repeated() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", #[cfg(feature = "slow")] expiry = "5m")]
async fn with_an_attribute() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name: "job:<id>", expiry: "30s")]
async fn with_colons(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job" expiry = "30s")]
async fn without_a_comma() -> Result<(), LockError> { Ok(()) }

// Values without the name of their argument.
#[distributed_lock("job")]
async fn text_alone() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", skip)]
async fn value_alone() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(Lock::B(id), expiry = "30s")]
async fn tuple_alone(id: u64) -> Result<(), LockError> { Ok(()) }

// The name of an argument without its value.
#[distributed_lock(name = "job", expiry)]
async fn without_a_value() -> Result<(), LockError> { Ok(()) }

// Values in parentheses.
#[distributed_lock(name("job"))]
async fn listed() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = (Nightly))]
async fn declared_name_in_parentheses() -> Result<(), LockError> { Ok(()) }

// Values of another kind than a string literal.
#[distributed_lock(name = "job", expiry = 30, on_busy = skip, acquire_timeout = None, min_hold = Duration::from_secs(1))]
async fn not_strings() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(expiry = "30s")]
async fn without_a_name(id: u64) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", crate = "mongolock")]
async fn crate_as_a_text() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", provider = ?)]
async fn provider_is_no_expression() -> Result<(), LockError> { Ok(()) }

fn main() {}
