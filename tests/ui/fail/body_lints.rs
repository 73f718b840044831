#![deny(unused)]

use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<id>")]
async fn job(id: u64, unused: u64, mut fixed: u64) -> Result<u64, LockError> {
    let mut same = fixed;
    Ok(same)
}

fn main() {}
