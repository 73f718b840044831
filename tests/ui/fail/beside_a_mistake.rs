//! A mistake in the attribute is reported alone: what stands in for the locked function adds no lint.

#![deny(unused)]

use mongolock::{LockContext, LockError, distributed_lock};

#[distributed_lock(name = "job:<idd>")]
pub async fn one_expression(id: u64, #[lock] _lock: LockContext) -> Result<u64, LockError> { Ok(id) }

#[distributed_lock(name = "job:<idd>")]
pub async fn one_line(id: u64, #[lock] lock: LockContext) -> Result<u64, LockError> { println!("{lock:?}"); Ok(id) }

#[distributed_lock(name = "job:<idd>")]
pub async fn without_the_lock(id: u64) -> Result<u64, LockError> { Ok(id) }

fn main() {}
