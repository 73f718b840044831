use mongolock::{Busy, LockError, distributed_lock};

#[distributed_lock(name = "job:<id>", on_busy = no_busy)]
async fn too_few(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn no_busy(id: &u64) -> Result<u64, LockError> {
    Ok(*id)
}

#[distributed_lock(name = "job:<id>", on_busy = by_value)]
async fn other_argument(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn by_value(id: u64, _: &Busy) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(name = "job:<id>", on_busy = other_output)]
async fn other_return(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn other_output(id: &u64, _: &Busy) -> u64 {
    *id
}

#[distributed_lock(name = "job:<id>", on_busy = is_async)]
async fn asynchronous(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

async fn is_async(id: &u64, _: &Busy) -> Result<u64, LockError> {
    Ok(*id)
}

#[distributed_lock(name = "job:<id>", on_busy = no_such_function)]
async fn missing(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
