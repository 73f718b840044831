use mongolock::distributed_lock;

#[distributed_lock(name = "job:<id>")]
async fn job(id: u64) -> Result<u64, std::io::Error> {
    Ok(id)
}

fn main() {}
