use mongolock::distributed_lock;

#[distributed_lock(name = "job")]
async fn job() -> ! {
    loop {}
}

fn main() {}
