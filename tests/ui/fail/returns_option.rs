use mongolock::distributed_lock;

#[distributed_lock(name = "job:<id>")]
async fn job(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {}
