//! Options that exclude each other, and values that an option does not have.

#![allow(unused)]

use mongolock::{LockError, LockName, distributed_lock};

#[derive(LockName)]
#[lock("nightly")]
struct Nightly;

// One attempt has no time to wait, and an endless wait is never busy.
#[distributed_lock(name = "job", on_busy = "fail", acquire_timeout = "1s")]
async fn fail_with_a_timeout() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", on_busy = "skip", acquire_timeout = "none")]
async fn skip_without_a_limit() -> Result<(), LockError> { Ok(()) }

// Work that may succeed only once.
#[distributed_lock(name = "job", once = true, once_per = "1d")]
async fn once_and_once_per() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", once_per = "1d", min_hold = "1m")]
async fn once_with_a_minimum_hold() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", once = "yes")]
async fn once_is_not_true() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", once = false)]
async fn once_is_false() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = ["first", "second"], once = true)]
async fn once_with_several_names() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = ["first", "second"], once_per = "1d")]
async fn once_per_with_several_names() -> Result<(), LockError> { Ok(()) }

// The scheduled time.
#[distributed_lock(name = "job", once = true, once_at = tick)]
async fn once_and_once_at(tick: std::time::SystemTime) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = ["first", "second"], once_at = tick)]
async fn once_at_with_several_names(tick: std::time::SystemTime) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", once_at = )]
async fn once_at_without_a_value() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", once_at = tick = 1)]
async fn once_at_is_no_expression(tick: std::time::SystemTime) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", tick = tick)]
async fn a_synonym_of_once_at(tick: std::time::SystemTime) -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", once_at = lock)]
async fn once_at_is_the_lock(#[lock] lock: mongolock::LockContext) -> Result<(), LockError> { Ok(()) }

// Permits.
#[distributed_lock(name = ["first", "second"], permits = 5)]
async fn permits_with_several_names() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", permits = 5, once = true)]
async fn permits_with_once() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", once_per = "1d", permits = 5)]
async fn permits_with_once_per() -> Result<(), LockError> { Ok(()) }

// What to do when the lock is lost.
#[distributed_lock(name = "job", on_lost = "cancle")]
async fn misspelt_on_lost() -> Result<(), LockError> { Ok(()) }

fn main() {}
