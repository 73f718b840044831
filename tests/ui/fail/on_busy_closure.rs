use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", on_busy = |id, busy| Ok(*id))]
async fn closure(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(name = "job", on_busy = answer(id, busy), expiry = "3s")]
async fn call(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(name = "job", on_busy = answer<u8, u16>)]
async fn without_turbofish(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(name = "job", on_busy = "in_progress")]
async fn quoted(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
