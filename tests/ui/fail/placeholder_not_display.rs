use mongolock::{LockError, distributed_lock};

use std::path::PathBuf;

#[distributed_lock(name = "job:<id>:<path>")]
async fn job(id: Option<u64>, path: PathBuf) -> Result<(), LockError> {
    let _ = (id, path);
    Ok(())
}

fn main() {}
