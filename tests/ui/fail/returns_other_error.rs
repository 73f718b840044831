use mongolock::distributed_lock;

struct JobError;

#[distributed_lock(name = "job:<id>")]
async fn job(id: u64) -> Result<u64, JobError> {
    if id == 0 { Err(JobError) } else { Ok(id) }
}

fn main() {}
