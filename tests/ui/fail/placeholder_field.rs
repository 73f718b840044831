use mongolock::{LockError, distributed_lock};

struct Order {
    number: u64,
}

#[distributed_lock(name = "job:<order.numbr>")]
async fn job(order: Order) -> Result<(), LockError> {
    let _ = order.number;
    Ok(())
}

#[distributed_lock(name = "job:<order.id()>")]
async fn called(order: Order) -> Result<(), LockError> {
    let _ = order.number;
    Ok(())
}

fn main() {}
