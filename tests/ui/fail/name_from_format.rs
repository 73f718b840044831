use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = format!("report:{}", id))]
async fn positional(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = &format!("report:{tenant}:{}", self.id()))]
async fn inline(tenant: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = format!("report:{:03}", id))]
async fn with_a_width(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
