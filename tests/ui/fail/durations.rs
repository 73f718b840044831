//! Durations and numbers: how they are written, and their bounds.

#![allow(unused)]

use mongolock::{LockError, distributed_lock};

const FIVE: u32 = 5;

// The value of a constructor where a text is expected.
#[distributed_lock(
    name = "job",
    expiry = Duration::from_secs(90),
    max_hold = std::time::Duration::from_millis(500),
    acquire_timeout = Duration::from_secs(90),
    min_hold = Duration::from_secs(SECONDS)
)]
async fn constructed() -> Result<(), LockError> { Ok(()) }

// Texts that are no duration.
#[distributed_lock(name = "job", expiry = "30")]
async fn without_a_unit() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", expiry = "30 s")]
async fn with_a_space() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", expiry = "1h30m")]
async fn compound() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", expiry = "1.5s")]
async fn fraction() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", expiry = "2min")]
async fn other_unit() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", expiry = "-1s")]
async fn negative() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", expiry = "soon")]
async fn word() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", expiry = "")]
async fn empty() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", expiry = "99999999999999999999s")]
async fn huge() -> Result<(), LockError> { Ok(()) }

// Durations that are out of their bounds.
#[distributed_lock(name = "job", expiry = "99ms", acquire_timeout = "8d", min_hold = "169h", max_hold = "8d")]
async fn out_of_bounds() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", once_per = "999ms")]
async fn period_too_short() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", once_per = "367d")]
async fn period_too_long() -> Result<(), LockError> { Ok(()) }

// Durations that contradict each other.
#[distributed_lock(name = "job", min_hold = "1h", max_hold = "1m")]
async fn maximum_below_the_minimum() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", max_hold = "1m", min_hold = "61s")]
async fn minimum_above_the_maximum() -> Result<(), LockError> { Ok(()) }

// This is no mistake: both are equal.
#[distributed_lock(name = "job", max_hold = "1m", min_hold = "60s")]
async fn minimum_equal_to_the_maximum() -> Result<(), LockError> { Ok(()) }

// Numbers of permits.
#[distributed_lock(name = "job", permits = 0)]
async fn no_permit() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", permits = 1001)]
async fn too_many_permits() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", permits = "5")]
async fn permits_as_a_text() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", permits = FIVE)]
async fn permits_as_a_constant() -> Result<(), LockError> { Ok(()) }

fn main() {}
