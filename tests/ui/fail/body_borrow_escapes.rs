use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job")]
async fn job() -> Result<&'static str, LockError> {
    let text = String::new();
    Ok(&text)
}

fn main() {}
