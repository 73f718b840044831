use mongolock::{LockError, distributed_lock};

#[allow(async_fn_in_trait)]
pub trait Service {
    #[distributed_lock(name = "job")]
    async fn job(&self) -> Result<(), LockError>;
}

fn main() {}
