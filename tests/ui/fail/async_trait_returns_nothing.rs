use mongolock::distributed_lock;
use async_trait::async_trait;

struct Local;

#[async_trait]
pub trait Service {
    async fn job(&self);
    async fn option(&self) -> Option<u64>;
}

#[async_trait]
impl Service for Local {
    #[distributed_lock(name = "job")]
    async fn job(&self) {
        println!("done");
    }

    #[distributed_lock(name = "job")]
    async fn option(&self) -> Option<u64> {
        None
    }
}

fn main() {}
