use mongolock::{Busy, LockError, distributed_lock};

#[distributed_lock(name = "job:<id>", on_busy = answer)]
async fn pattern((id, _): (u64, u64)) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(name = "job", on_busy = answer)]
async fn unnamed(_: (u64, u64)) -> Result<u64, LockError> {
    Ok(1)
}

#[distributed_lock(name = "job", on_busy = answer, acquire_timeout = "none")]
async fn endless(pair: (u64, u64)) -> Result<u64, LockError> {
    Ok(pair.0)
}

#[distributed_lock(name = "job", on_busy = answer)]
async fn conditional(#[cfg(unix)] pair: (u64, u64)) -> Result<u64, LockError> {
    Ok(pair.0)
}

fn answer(pair: &(u64, u64), _: &Busy) -> Result<u64, LockError> {
    Ok(pair.0)
}

fn main() {}
