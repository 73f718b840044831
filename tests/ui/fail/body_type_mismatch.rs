use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<id>")]
async fn job(id: u64) -> Result<u64, LockError> {
    if id == 0 {
        return Ok("none");
    }
    Ok(id.to_string())
}

fn main() {}
