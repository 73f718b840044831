use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<path>")]
async fn job(path: &str) -> Result<String, LockError> {
    Ok(std::fs::read_to_string(path)?)
}

fn main() {}
