use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<id + 1>")]
async fn job(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = "job:<id:03>")]
async fn padded(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = "job:< id >")]
async fn spaced(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = "job:<ids[0]>")]
async fn indexed(ids: Vec<u64>) -> Result<(), LockError> {
    let _ = ids;
    Ok(())
}

#[distributed_lock(name = "job:<id.pow(2)>")]
async fn called(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
