use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job", expiry = "30")]
async fn bare() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expiry = "30 s")]
async fn spaced() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expiry = "1h30m")]
async fn compound() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expiry = "1.5s")]
async fn fraction() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expiry = "2min")]
async fn unit() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expiry = "-1s")]
async fn negative() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expiry = "soon")]
async fn word() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expiry = "")]
async fn empty() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job", expiry = "99999999999999999999s")]
async fn huge() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
