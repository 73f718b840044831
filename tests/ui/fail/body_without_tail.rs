use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<id>")]
async fn job(id: u64) -> Result<u64, LockError> {
    let doubled = id * 2;
    println!("{doubled}");
}

fn main() {}
