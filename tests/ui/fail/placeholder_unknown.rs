use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<idd>")]
async fn job(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(name = "job:<tenant>")]
async fn other(id: u64, region: &str) -> Result<(), LockError> {
    let _ = (id, region);
    Ok(())
}

#[distributed_lock(name = "job:<id>")]
async fn nothing() -> Result<(), LockError> {
    Ok(())
}

struct Service {
    tenant: String,
}

impl Service {
    #[distributed_lock(name = "job:<tenant>")]
    async fn run(&self) -> Result<(), LockError> {
        println!("{}", self.tenant);
        Ok(())
    }
}

fn main() {}
