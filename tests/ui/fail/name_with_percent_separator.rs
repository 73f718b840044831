use mongolock::{LockError, distributed_lock};

#[distributed_lock(name = "discount:<percent>% for <customer>")]
async fn discount(percent: u8, customer: &str) -> Result<(), LockError> {
    let _ = (percent, customer);
    Ok(())
}

fn main() {}
