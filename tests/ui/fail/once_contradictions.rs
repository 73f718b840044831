use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", once = true, once_per = "1d")]
async fn both() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", once_per = "1d", min_hold = "1m")]
async fn with_minimum_hold() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", once = "yes")]
async fn not_true() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", once = false)]
async fn not_once() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", once_per = "999ms")]
async fn too_short() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", once_per = "367d")]
async fn too_long() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = ["first", "second"], once = true)]
async fn several_once() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = ["first", "second"], once_per = "1d")]
async fn several_once_per() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
