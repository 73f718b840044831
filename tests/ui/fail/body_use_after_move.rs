use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "job:<id>")]
async fn job(id: String) -> Result<(), LockError> {
    drop(id);
    println!("{id}");
    Ok(())
}

fn main() {}
