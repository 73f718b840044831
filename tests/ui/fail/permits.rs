use mongolock::{LockError, distributed_lock};

const FIVE: u32 = 5;

#[distributed_lock(name = ["first", "second"], permits = 5)]
async fn several_names() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", permits = 5, once = true)]
async fn once() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", once_per = "1d", permits = 5)]
async fn once_per() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", permits = 0)]
async fn none() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", permits = 1001)]
async fn too_many() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", permits = "5")]
async fn text() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", permits = FIVE)]
async fn constant() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
