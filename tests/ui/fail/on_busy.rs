//! `on_busy`: its values, and its function.

#![allow(unused)]

use mongolock::{Busy, LockError, distributed_lock};

// Values that it does not have.
#[distributed_lock(name = "job", on_busy = "skipp")]
async fn misspelt() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", on_busy = "retry")]
async fn unknown() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", on_busy = skip)]
async fn without_quotes() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", on_busy = Wait)]
async fn as_a_variant() -> Result<(), LockError> { Ok(()) }

#[distributed_lock(name = "job", on_busy = 3)]
async fn number() -> Result<(), LockError> { Ok(()) }

// Something else than the path of a function.
#[distributed_lock(name = "job", on_busy = |id, busy| Ok(*id))]
async fn closure(id: u64) -> Result<u64, LockError> { Ok(id) }

#[distributed_lock(name = "job", on_busy = answer(id, busy), expiry = "3s")]
async fn call(id: u64) -> Result<u64, LockError> { Ok(id) }

#[distributed_lock(name = "job", on_busy = answer<u8, u16>)]
async fn without_a_turbofish(id: u64) -> Result<u64, LockError> { Ok(id) }

#[distributed_lock(name = "job", on_busy = "in_progress")]
async fn quoted(id: u64) -> Result<u64, LockError> { Ok(id) }

// Arguments to which the function gets no reference.
#[distributed_lock(name = "job:<id>", on_busy = answer)]
async fn pattern((id, _): (u64, u64)) -> Result<u64, LockError> { Ok(id) }

#[distributed_lock(name = "job", on_busy = answer)]
async fn unnamed(_: (u64, u64)) -> Result<u64, LockError> { Ok(1) }

#[distributed_lock(name = "job", on_busy = answer)]
async fn conditional(#[cfg(unix)] pair: (u64, u64)) -> Result<u64, LockError> { Ok(pair.0) }

// A wait without a limit never calls it.
#[distributed_lock(name = "job", on_busy = answer, acquire_timeout = "none")]
async fn endless(pair: (u64, u64)) -> Result<u64, LockError> { Ok(pair.0) }

fn answer(pair: &(u64, u64), _: &Busy) -> Result<u64, LockError> {
    Ok(pair.0)
}

// A function with other arguments or another return type than it is called with.
#[distributed_lock(name = "job:<id>", on_busy = no_busy)]
async fn too_few_arguments(id: u64) -> Result<u64, LockError> { Ok(id) }

fn no_busy(id: &u64) -> Result<u64, LockError> {
    Ok(*id)
}

#[distributed_lock(name = "job:<id>", on_busy = by_value)]
async fn argument_by_value(id: u64) -> Result<u64, LockError> { Ok(id) }

fn by_value(id: u64, _: &Busy) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(name = "job:<id>", on_busy = other_output)]
async fn other_return_type(id: u64) -> Result<u64, LockError> { Ok(id) }

fn other_output(id: &u64, _: &Busy) -> u64 {
    *id
}

#[distributed_lock(name = "job:<id>", on_busy = is_async)]
async fn asynchronous(id: u64) -> Result<u64, LockError> { Ok(id) }

async fn is_async(id: &u64, _: &Busy) -> Result<u64, LockError> {
    Ok(*id)
}

fn main() {}
