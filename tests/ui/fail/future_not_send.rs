use mongolock::{LockError, distributed_lock};

use std::rc::Rc;

#[distributed_lock(name = "job")]
async fn job() -> Result<(), LockError> {
    let shared = Rc::new(1);
    tokio::task::yield_now().await;
    println!("{shared}");
    Ok(())
}

#[distributed_lock(name = "output")]
async fn output() -> Result<Rc<u64>, LockError> {
    Ok(Rc::new(1))
}

fn spawn() {
    tokio::spawn(job());
    tokio::spawn(output());
}

fn main() {}
