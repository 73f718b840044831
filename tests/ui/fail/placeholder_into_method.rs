use mongolock::{LockError, distributed_lock};

struct Job {
    id: u64,
}

impl Job {
    fn into_id(self) -> u64 {
        self.id
    }
}

#[distributed_lock(name = "job:<job.into_id()>")]
async fn destroys(job: Job) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(name = "job:<jobs.0.into_id()>")]
async fn destroys_a_field(jobs: (Job, Job)) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
