use mongolock::{LockError, LockName, distributed_lock};

#[derive(LockName)]
#[lock("nightly")]
struct Nightly;

#[distributed_lock(name = "report:<id>", escape = "all")]
async fn report(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = Nightly, escape = "none")]
async fn nightly() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
