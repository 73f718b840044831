use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = " {id}<idd>", expiry = "1", ttl = "x", on_busy = "fail", acquire_timeout = "x", on_lost = "y")]
fn job(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
